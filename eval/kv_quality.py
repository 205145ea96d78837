"""What each KV cache type takes in memory and costs in quality: the tables of docs/kv-cache.md.

    python -m eval.kv_quality [--model M.gguf] [--limit 20]

Bytes per token are those of all layers, the MTP layer included where the model has one. Quality is against
the same model with an f32 cache, over every position of a text: the mean KL(f32 || type) of the next-token
distribution, in nats, the largest one, and how often the likeliest token is the same. The bundled model reads
the held-out questions (eval/tiny) with their expected answers; the random models, of 8 heads of 128 on 2
key/value heads, read random tokens.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.numpy_hy3 import log_softmax
from support.random_hy3 import HY3, HY_MT2, in_type, make_config, make_tokens, make_weights, write_model

import hy3core
from eval.tiny.grade import SUITES, questions
from hy3 import template
from hy3.modelfile import KV_TYPES, ModelFile, kv_head_bytes

PUBLISHED = {"Hy3, 80 + 1 layers": (HY3, 81), "Hy-MT2, 48 layers": (HY_MT2, 48)}
CTX = 2048  # the longest question has 1,100 tokens
RANDOM: dict[str, Any] = {
    "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 128,
}  # fmt: skip
RANDOM_MODELS, RANDOM_TOKENS = 3, 1000


@dataclass
class Measured:
    """Over positions."""

    kl: list[float] = field(default_factory=list)
    same_top: list[bool] = field(default_factory=list)

    def add(self, exact: np.ndarray, got: np.ndarray) -> None:
        p, q = log_softmax(exact.astype(np.float64)), log_softmax(got.astype(np.float64))
        self.kl += (np.exp(p) * (p - q)).sum(axis=-1).tolist()
        self.same_top += (exact.argmax(-1) == got.argmax(-1)).tolist()


def held_out(model: hy3core.Model, limit: int | None) -> Iterator[tuple[hy3core.Model, list[int]]]:
    """The first `limit` questions of each suite."""
    render = template.for_model(model).render
    for suite in SUITES:
        for question in questions(suite)[:limit]:
            text = render(
                question.messages,
                tools=question.tools,
                add_generation_prompt=True,
                reasoning_effort=question.reasoning_effort,
            )
            yield model, model.tokenizer.encode(text + question.expected)


def random_models(folder: Path) -> Iterator[tuple[hy3core.Model, list[int]]]:
    config = make_config(**RANDOM)
    for seed in range(RANDOM_MODELS):
        path = write_model(folder / f"{seed}.gguf", config, make_weights(config, seed), in_type("f32"))
        yield hy3core.Model(str(path)), make_tokens(config, RANDOM_TOKENS, seed=100 + seed)


def measure(texts: Iterable[tuple[hy3core.Model, list[int]]]) -> dict[str, Measured]:
    out = {kv: Measured() for kv in KV_TYPES if kv != "f32"}
    for model, ids in texts:
        exact = model.session(ctx=CTX, kv="f32").eval(ids, logits="all")
        for kv, measured in out.items():
            measured.add(exact, model.session(ctx=CTX, kv=kv).eval(ids, logits="all"))
    return out


def print_bytes(bundled: Path) -> None:
    print("| bytes per token | " + " | ".join(KV_TYPES) + " |\n|---" + "|---" * len(KV_TYPES) + "|")
    for name, (shape, layers) in PUBLISHED.items():
        heads = 2 * layers * shape["num_key_value_heads"]
        row = [heads * kv_head_bytes(shape["head_dim"], kv) for kv in KV_TYPES]
        print(f"| {name} | " + " | ".join(f"{n:,}" for n in row) + " |")
    file = ModelFile(hy3core.GGUF(str(bundled)))
    row = [file.kv_bytes(1, kv) or 0 for kv in KV_TYPES]
    print(f"| {bundled.stem} | " + " | ".join(f"{n:,}" for n in row) + " |")


def print_quality(name: str, results: dict[str, Measured]) -> None:
    positions = len(next(iter(results.values())).kl)
    print(f"\n| {name}, {positions:,} positions | mean KL | largest KL | same top token |\n|---|---|---|---|")
    for kv, measured in results.items():
        same = np.mean(measured.same_top)
        print(f"| {kv} | {np.mean(measured.kl):.1e} | {max(measured.kl):.1e} | {same:.2%} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="left out: the bundled model")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="questions of each suite (20)")
    args = parser.parse_args()
    with resources.as_file(resources.files("hy3") / "models" / "hy3-tiny.gguf") as bundled:
        path = args.model or bundled
        print_bytes(path)
        print_quality(path.stem, measure(held_out(hy3core.Model(str(path)), args.limit)))
    with tempfile.TemporaryDirectory() as folder:
        print_quality(f"{RANDOM_MODELS} random models", measure(random_models(Path(folder))))


if __name__ == "__main__":
    main()
