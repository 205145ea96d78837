"""hy3 beside llama.cpp on one GGUF: do the logits agree?

    python eval/compare_llama.py MODEL.gguf              teacher-forced logits over 300 tokens

Needs `llama-cpp-python` 0.3.36, in this environment or in that of --peer-python. How the speeds compare is
eval/compare.py's question.
"""

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from eval.peer import PEER_PYTHON, Remote

MAX_KL = 5e-3


@dataclass
class Agreement:
    """Of hy3's logits with llama.cpp's, over the positions of some text. KL(llama.cpp || hy3), in nats."""

    positions: int
    mean_kl: float
    largest_kl: float
    mean_error: float  # the largest difference of two logits in a row, averaged over the rows
    largest_error: float
    largest_logit: float
    disagreements: int  # rows whose top tokens differ
    # Among them: how far llama.cpp has its own top token above hy3's, as a part of twice the logit error: the
    # largest difference in the other rows, since with the row itself it would bound the gap by
    # arithmetic alone.
    largest_gap: float

    @property
    def holds(self) -> bool:
        return self.mean_kl < MAX_KL and self.largest_gap <= 1

    def __str__(self) -> str:
        return (
            f"{self.positions} positions: mean KL {self.mean_kl:.1e} (limit {MAX_KL:.0e}), largest "
            f"{self.largest_kl:.1e}; logits up to {self.largest_logit:.1f} differ by "
            f"{self.mean_error:.1e} in a row, {self.largest_error:.1e} at most; "
            f"{self.disagreements} top tokens differ, with a gap of {self.largest_gap:.2f} of twice the "
            "error of the other rows at most (limit 1)"
        )


def log_softmax(row: np.ndarray) -> np.ndarray:
    row = row.astype(np.float64) - row.max()
    return np.asarray(row - np.log(np.exp(row).sum()))


def agreement(hy3: np.ndarray, llama: np.ndarray) -> Agreement:
    if hy3.shape != llama.shape:
        raise ValueError(f"hy3 gave logits of shape {hy3.shape}, llama.cpp {llama.shape}")
    kls, errors = [], []
    gaps = {}  # by row
    # Row by row: 300 x 120,832 doubles are a quarter of a GiB.
    for ours, theirs in zip(hy3, llama, strict=True):
        p, q = log_softmax(theirs), log_softmax(ours)
        kls.append(float((np.exp(p) * (p - q)).sum()))
        top, other = int(theirs.argmax()), int(ours.argmax())
        if top != other:
            gaps[len(errors)] = float(theirs[top] - theirs[other])
        errors.append(float(np.abs(ours - theirs).max()))
    elsewhere = {row: max((e for i, e in enumerate(errors) if i != row), default=0.0) for row in gaps}
    return Agreement(
        positions=len(hy3),
        mean_kl=statistics.fmean(kls),
        largest_kl=max(kls),
        mean_error=statistics.fmean(errors),
        largest_error=max(errors),
        largest_logit=float(np.abs(llama).max()),
        disagreements=len(gaps),
        largest_gap=max((gap / (2 * elsewhere[row] or 1e-30) for row, gap in gaps.items()), default=0.0),
    )


def compare_logits(
    path: str, texts: list[list[int]], threads: int, peer_python: str = PEER_PYTHON
) -> Agreement:
    """Over all positions of the texts, each from an empty context."""
    ctx = max(len(tokens) for tokens in texts)
    with Remote("Hy3", path, threads, ctx) as remote:
        ours = [remote.logits(tokens) for tokens in texts]
    with Remote("Llama", path, threads, ctx, python=peer_python) as remote:
        theirs = [remote.logits(tokens) for tokens in texts]
    return agreement(np.concatenate(ours), np.concatenate(theirs))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare hy3 with llama.cpp on one GGUF.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, help="a text to go over instead of random tokens")
    parser.add_argument("--tokens", type=int, default=300, help="how many tokens of it (default 300)")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer-python", default=PEER_PYTHON, help="interpreter that has llama-cpp-python")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    return parser.parse_args()


def main() -> int:
    args = read_arguments()
    path = str(args.model)
    with Remote("Hy3", path, args.threads, 1) as remote:
        vocab = remote.vocab_size()
        text = remote.encode(args.text.read_text(encoding="utf-8"))[: args.tokens] if args.text else None
    tokens = text or np.random.default_rng(0).integers(0, vocab, args.tokens).tolist()
    result = compare_logits(path, [tokens], args.threads, args.peer_python)
    print(f"logits: {result}")
    print("agreement holds" if result.holds else "agreement does NOT hold")
    if args.json:
        measured = {"model": args.model.name, "threads": args.threads, "agreement": asdict(result)}
        args.json.write_text(json.dumps(measured, indent=1) + "\n")
    return 0 if result.holds else 1


if __name__ == "__main__":
    sys.exit(main())
