"""What a step spends its time on: the shares of products, attention and everything else, from perf's samples.

    python eval/step_shares.py                  a slice with Hy3's widths, written for it (about 500 MB)
    python eval/step_shares.py MODEL.gguf

Decodes single tokens after a prompt, then evaluates prompts of 512, each for some seconds, and samples where
the process is. Needs Linux's `perf`, and a build whose symbols were not stripped (`pip install .` keeps
them). Shares say little of how fast a step is, and hold on a busy machine too.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import hy3core

# What a function belongs to, by its name; the first that matches. The router's weights are the only float32
# matrices of a quantized file.
PARTS = {
    "router": r"choose_experts|FloatProduct<.*LoadF32",
    "products": r"unpack|[Pp]roduct|Panel|few_rows",
    "attention": r"[Aa]ttention|attend_span|add_span|float_block|float_sums|score_block|mix_block|code_query|"
    r"code_weights|weigh|store_row|write_cache",
    "quantization of activations": r"::quantize",
    "norms": r"rms_norm",
    "RoPE": r"rotate|rope",
    "SwiGLU": r"swiglu",
    "sums of experts and residuals": r"add_row|add_scaled",
    "sampling": r"Sampler|largest_of|check_finite|\bexp\b|ieee754_exp|__exp",
    "embedding": r"dequantize|read_bytes|embed",
    "copies, mostly of products' results": r"memmove|memcpy",
    "threads": r"ThreadPool|atomic|clock|futex|sched|irq|steady_clock|FunctionRef",
}
MATRIX_WORK = ("products", "attention")


def part_of(symbol: str) -> str:
    return next((part for part, names in PARTS.items() if re.search(names, symbol)), "the rest")


@contextmanager
def sampled(to: Path) -> Iterator[None]:
    """perf's samples of this process, all its threads, while the context lasts."""
    command = ["perf", "record", "-q", "-F", "1000", "-o", str(to), "-p", str(os.getpid())]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(1)  # until it has attached
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def shares(samples: Path) -> tuple[dict[str, float], list[str]]:
    """Part of all samples by part of the step; lines about the largest functions of the rest."""
    command = [
        "perf",
        "report",
        "-i",
        str(samples),
        "--stdio",
        "--no-children",
        "-F",
        "sample,symbol",
        "-t",
        "\t",
    ]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts: Counter[str] = Counter()
    rest: Counter[str] = Counter()
    for line in report.splitlines():
        number, _, symbol = line.partition("\t")
        if number.strip().isdigit():
            part = part_of(symbol)
            counts[part] += int(number)
            if part == "the rest":
                rest[symbol.strip()] += int(number)
    total = counts.total()
    lines = [f"{100 * n / total:5.1f}%  {symbol[:90]}" for symbol, n in rest.most_common(6)]
    return {part: counts[part] / total for part in (*PARTS, "the rest")}, lines


def run_for(seconds: float, work: Callable[[], None]) -> int:
    """How often it did the work."""
    end, times = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        work()
        times += 1
    return times


def measure(model: hy3core.Model, depth: int, seconds: float) -> dict[str, dict[str, float]]:
    """Shares by workload. Prints the largest functions of the rest."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, model.config.vocab_size, 512).tolist()
    session = model.session(ctx=max(512, depth + 17))
    sampling = hy3core.Sampling(temperature=0.9, seed=1)

    def decode() -> None:
        session.truncate(min(session.position, depth - 1))
        for _ in session.generate(prompt[:depth], max_tokens=16, sampling=sampling, stop_ids=[]):
            pass

    def prefill() -> None:
        session.reset()
        session.eval(prompt)

    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, work in {"decode": decode, "prefill of 512": prefill}.items():
            work()
            samples = Path(folder) / "samples"
            with sampled(samples):
                run_for(seconds, work)
            out[name], lines = shares(samples)
            print(f"{name}, the rest:", *lines, sep="\n")
    return out


def write_hy3_widths(path: Path) -> None:
    """One sparse layer of Hy3 with 16 experts, eight of them used, and a small vocabulary."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from eval.synth import slice_config, write_slice

    config = slice_config("hy3", 1, dense_layers=0, num_experts=16, vocab_size=16384)
    write_slice(path, config, "q4_k", "q8_0")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path, nargs="?", help="a GGUF; left out: one with Hy3's widths")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--depth", type=int, default=128, help="tokens before the decoded ones, up to 512")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    args = parser.parse_args()
    if shutil.which("perf") is None:
        parser.error("perf is not installed. It comes with Linux's tools (Debian: linux-perf).")
    with tempfile.TemporaryDirectory() as folder:
        path = args.model or Path(folder) / "hy3-widths.gguf"
        if args.model is None:
            write_hy3_widths(path)
        model = hy3core.Model(str(path), threads=args.threads)
        measured = measure(model, min(args.depth, 512), args.seconds)
    print(f"{'':36}" + "".join(f"{name:>16}" for name in measured))
    for part in (*PARTS, "the rest"):
        print(f"{part:36}" + "".join(f"{100 * m[part]:15.1f}%" for m in measured.values()))
    outside = {name: 1 - sum(m[part] for part in MATRIX_WORK) for name, m in measured.items()}
    print(f"{'all but products and attention':36}" + "".join(f"{100 * x:15.1f}%" for x in outside.values()))


if __name__ == "__main__":
    main()
