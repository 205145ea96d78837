"""What a long context costs: time for a token and private memory, at depths that double up to the whole.

    python -m eval.long_context --ctx 131072 --kv q4             hours, since all of the context is computed
    python -m eval.long_context --ctx 16384 --json OUT

A model that was trained for less is stretched with YaRN. The tokens are random: what is measured does not
depend on them. The cost of a token should be a constant and a part that grows with the depth, since attention
reads all keys and values before it; printed are the line that fits best and how far the points are from it.
Time is that of the process on all its threads, and the least of several tokens, so that other programs
disturb it less. Private memory (RssAnon) leaves out the mapped weights; it should grow as the cache does.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hy3core

BUNDLED = Path(__file__).parents[1] / "src/hy3/models/hy3-tiny.gguf"
DECODED = 32  # tokens at a depth, of which the quickest counts


def private_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no RssAnon in /proc/self/status")


def depths(ctx: int, least: int) -> list[int]:
    """`least` at least, doubled, up to what leaves room for the decoded tokens."""
    last = ctx - DECODED
    found = [last]
    while found[0] // 2 >= least:
        found.insert(0, found[0] // 2)
    return found


def open_session(path: Path, ctx: int, kv: str, threads: int) -> hy3core.Session:
    trained = hy3core.Model(path).config.ctx
    factor = max(1.0, ctx / trained)
    model = hy3core.Model(path, threads=threads, rope_factor=factor if factor > 1 else 0.0)
    return model.session(ctx=ctx, kv=kv)


def measure(session: hy3core.Session, least: int) -> Iterator[dict[str, float]]:
    rng = np.random.default_rng(0)
    vocab = session.model.config.vocab_size
    for depth in depths(session.ctx, least):
        begin = time.perf_counter()
        session.eval(rng.integers(0, vocab, depth - session.position), logits="none")
        filled = time.perf_counter() - begin
        seconds = []
        for token in rng.integers(0, vocab, DECODED):
            begin = time.process_time()
            session.eval([token])
            seconds.append(time.process_time() - begin)
        yield {
            "depth": depth,
            "prefill_s": filled,
            "ms_per_token": 1000 * min(seconds),
            "private_bytes": private_bytes(),
        }
        session.truncate(depth)


def line(points: list[dict[str, float]]) -> dict[str, float]:
    """Least squares: a constant, what 1,000 tokens of depth add, and the largest distance as a part of the
    cost.
    """
    x = np.array([point["depth"] for point in points])
    y = np.array([point["ms_per_token"] for point in points])
    slope, constant = np.polyfit(x, y, 1)
    distance = np.abs(slope * x + constant - y) / y
    return {
        "ms": float(constant),
        "ms_per_1000_tokens": float(1000 * slope),
        "worst": float(distance.max()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-m", "--model", type=Path, default=BUNDLED)
    parser.add_argument("--ctx", type=int, default=16384)
    parser.add_argument("--least", type=int, default=512, help="tokens: no depth below this (512)")
    parser.add_argument("--kv", default="f16")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    session = open_session(options.model, options.ctx, options.kv, options.threads)
    points = []
    print("   depth  prefill s  ms/token  private MiB")
    for point in measure(session, options.least):
        points.append(point)
        print(
            f"{point['depth']:8.0f} {point['prefill_s']:10.1f} {point['ms_per_token']:9.2f} "
            f"{point['private_bytes'] / 2**20:12.1f}",
            flush=True,
        )
    result: dict[str, Any] = {"kv": options.kv, "ctx": options.ctx, "points": points, "line": line(points)}
    fit = result["line"]
    print(
        f"a token: {fit['ms']:.2f} ms + {fit['ms_per_1000_tokens']:.3f} ms for each 1,000 tokens of depth, "
        f"within {fit['worst']:.0%}"
    )
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
