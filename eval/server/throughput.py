"""How much faster several streams decode together than one alone, and beside llama.cpp's parallel decoding.

    python -m eval.server.throughput MODEL.gguf --streams 8 --json OUT.json

Three ways take turns, A B C A B C, with one stream and with all: hy3's Scheduler in a process of its own,
`hy3 serve` over HTTP, and llama.cpp with a row of each sequence in a batch (the fastest of its variants, as
in eval/compare.py). The others are idle meanwhile. Prompts are one token long, so that all work is decoding.
hy3 draws at temperature 1, so that the streams differ and their experts spread as those of texts do;
llama.cpp is given the same tokens, and draws none.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import hy3core
from eval.compare import PILOTS, Peers, describe, read_anew
from eval.peer import PEER_PYTHON, Remote
from eval.server.client import Request, ask, new_client
from eval.server.process import Server
from eval.speeds import write_json

SCHEDULER, HTTP, LLAMA = "Scheduler", "HTTP", "llama.cpp"
AT_LEAST = 2.0  # times one stream's rate, of eight

Ask = Callable[[list[int]], float]  # the streams' first tokens -> tokens a second


@dataclass
class Rates:
    """Tokens a second of one way and number of streams, by round."""

    way: str
    streams: int
    rounds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rounds)

    def __str__(self) -> str:
        return (
            f"{self.way}, {self.streams} stream{'s' if self.streams > 1 else ''}: {self.rate:.2f} tokens/s "
            f"({min(self.rounds):.2f} to {max(self.rounds):.2f} in {len(self.rounds)} rounds)"
        )


@dataclass(frozen=True)
class Report:
    model: str
    threads: int
    tokens: int  # of each stream
    rates: list[Rates]
    llama_variant: str | None

    def rate(self, way: str, streams: int) -> Rates:
        return next(one for one in self.rates if (one.way, one.streams) == (way, streams))

    @property
    def most(self) -> int:
        return max(one.streams for one in self.rates)

    def gains(self) -> dict[str, tuple[float, float, float]]:
        """By name: ratio of the medians, lowest and highest of a round."""
        pairs = {
            f"{way}, {self.most} streams to one": (self.rate(way, self.most), self.rate(way, 1))
            for way in dict.fromkeys(one.way for one in self.rates)
        }
        for way in (HTTP, LLAMA):
            if any(one.way == way for one in self.rates):
                ours, other = self.rate(SCHEDULER, self.most), self.rate(way, self.most)
                pairs[f"Scheduler to {way}, {self.most} streams"] = (ours, other)
        return {name: ratio(*pair) for name, pair in pairs.items()}

    def __str__(self) -> str:
        lines = [str(one) for one in self.rates]
        lines += [
            f"{name}: {r:.2f} ({low:.2f} to {high:.2f})" for name, (r, low, high) in self.gains().items()
        ]
        if self.llama_variant:
            lines.append(f"llama.cpp: {self.llama_variant}")
        return "\n".join(lines)


def ratio(ours: Rates, theirs: Rates) -> tuple[float, float, float]:
    rounds = [a / b for a, b in zip(ours.rounds, theirs.rounds, strict=True)]
    return ours.rate / theirs.rate, min(rounds), max(rounds)


class Scheduled:
    """hy3's Scheduler; remembers what it drew, for llama.cpp."""

    def __init__(self, remote: Remote, tokens: int) -> None:
        self.remote, self.tokens = remote, tokens
        self.drawn: dict[int, list[list[int]]] = {}  # by number of streams, with the first token

    def __call__(self, starts: list[int]) -> float:
        seconds, texts = self.remote.streams(starts, self.tokens)
        self.drawn[len(starts)] = [[start, *text] for start, text in zip(starts, texts, strict=True)]
        return sum(map(len, texts)) / float(seconds)


class Served:
    """The same requests over HTTP, streamed."""

    def __init__(self, url: str, tokens: int, eos_ids: Sequence[int]) -> None:
        self.url, self.tokens = url, tokens
        self.bias = {str(token): -100 for token in eos_ids}

    def request(self, start: int, seed: int) -> Request:
        body = {
            "prompt": [start],
            "max_tokens": self.tokens,
            "temperature": 1.0,
            "seed": seed,
            "logit_bias": self.bias,  # the Scheduler's streams are told to ignore end tokens
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return Request("/v1/completions", body)

    async def together(self, starts: list[int]) -> float:
        async with new_client(self.url, len(starts)) as client:
            requests = [self.request(start, seed) for seed, start in enumerate(starts)]
            begin = time.perf_counter()
            answers = await asyncio.gather(*(ask(client, request) for request in requests))
            return sum(answer.said.tokens for answer in answers) / (time.perf_counter() - begin)

    def __call__(self, starts: list[int]) -> float:
        return asyncio.run(self.together(starts))


class Llama:
    """llama.cpp, fed with what the Scheduler drew; per number of streams its fastest variant."""

    def __init__(self, peers: Peers, scheduled: Scheduled) -> None:
        self.peers, self.scheduled = peers, scheduled
        self.best: dict[int, tuple[bool, bool]] = {}

    def choose(self, streams: int) -> None:
        def fastest(variant: tuple[bool, bool]) -> float:
            remote = self.peers.get(variant)
            return min(float(remote.streams(self.texts(streams))) for _ in range(PILOTS))

        self.best[streams] = min(self.peers.variants(), key=fastest)

    def texts(self, streams: int) -> list[list[int]]:
        """The last token was drawn, but not computed with."""
        return [text[:-1] for text in self.scheduled.drawn[streams]]

    def __call__(self, starts: list[int]) -> float:
        texts = self.texts(len(starts))
        remote = self.peers.get(self.best[len(starts)])
        return sum(map(len, texts)) / float(remote.streams(texts))


def measure(path: Path, streams: int, tokens: int, threads: int, rounds: int, python: str | None) -> Report:
    """`python` None: without llama.cpp."""
    ctx = tokens + 1
    eos_ids = hy3core.Tokenizer(path).eos_ids
    read_anew(path)
    with ExitStack() as stack:
        hy3 = stack.enter_context(Remote("Hy3", str(path), threads, ctx))
        starts: list[int] = np.random.default_rng(0).integers(0, hy3.vocab_size(), streams).tolist()
        options = ("--ctx", str(ctx), "--threads", str(threads), "--parallel", str(streams))
        server = stack.enter_context(Server(path, *options))
        scheduled = Scheduled(hy3, tokens)
        ways: dict[str, Ask] = {SCHEDULER: scheduled, HTTP: Served(server.url, tokens, eos_ids)}
        sizes = sorted({1, streams})
        for way in ways.values():
            for size in sizes:
                way(starts[:size])  # once uncounted
        variant = None
        if python is not None:
            llama = Llama(Peers(path, threads, ctx, "f16", python, stack, sequences=streams), scheduled)
            for size in sizes:
                llama.choose(size)
            ways[LLAMA] = llama
            variant = "; ".join(f"{size} streams with {describe(llama.best[size])}" for size in sizes)
        found = [Rates(way, size) for size in sizes for way in ways]
        for _ in range(rounds):
            for one in found:
                one.rounds.append(ways[one.way](starts[: one.streams]))
    return Report(path.name, threads, tokens, found, variant)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the throughput of several streams with one's.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--streams", type=int, default=8, help="(default 8)")
    parser.add_argument("-n", "--tokens", type=int, default=64, help="of each stream (default 64)")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5, help="of all ways (default 5)")
    parser.add_argument("--peer-python", default=PEER_PYTHON, help="interpreter that has llama-cpp-python")
    parser.add_argument("--no-llama", action="store_true", help="leave llama.cpp out")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    arguments = parser.parse_args()
    if min(arguments.tokens, arguments.threads, arguments.rounds) < 1 or arguments.streams < 2:
        parser.error("--tokens, --threads and --rounds are 1 or more, --streams 2 or more.")
    return arguments


def main() -> None:
    args = read_arguments()
    python = None if args.no_llama else args.peer_python
    report = measure(args.model, args.streams, args.tokens, args.threads, args.rounds, python)
    print(report)
    if args.json:
        write_json(
            args.json, vars(report) | {"rates": [vars(one) for one in report.rates], "gains": report.gains()}
        )


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:  # of an engine or the server
        sys.exit(f"throughput: {error}")
