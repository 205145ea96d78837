"""What a long prompt does to a running stream, and the stream to the prompt.

    python -m eval.server.gap MODEL.gguf --prompt 2000 --max-gap 0.25

A stream decodes; then a prompt comes in. Measured are the longest time between two tokens of the stream until
the prompt's first token, and the prompt's speed as a part of what it has alone; in turns, with prompts that
share no beginning. Once with the Scheduler alone and once through `hy3 serve`.
"""

import argparse
import asyncio
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

import hy3core
from eval.compare import read_anew
from eval.server.client import Request, ask, events, new_client
from eval.server.process import Server
from eval.speeds import write_json

LEAST_SHARE = 0.6
SETTLED = 8  # tokens of the stream before the prompt comes


@dataclass(frozen=True)
class Beside:
    """A prompt beside a stream."""

    prompt_s: float
    longest_gap_s: float


@dataclass
class Result:
    way: str
    prompt: int  # tokens
    max_gap_s: float
    alone_s: list[float] = field(default_factory=list)
    beside: list[Beside] = field(default_factory=list)

    @property
    def gaps(self) -> list[float]:
        return [one.longest_gap_s for one in self.beside]

    @property
    def share(self) -> float:
        """Of the prompt's speed alone."""
        return statistics.median(self.alone_s) / statistics.median(one.prompt_s for one in self.beside)

    @property
    def holds(self) -> bool:
        return statistics.median(self.gaps) <= self.max_gap_s and self.share >= LEAST_SHARE

    def __str__(self) -> str:
        shares = [alone / one.prompt_s for alone, one in zip(self.alone_s, self.beside, strict=True)]
        rate = self.prompt / statistics.median(self.alone_s)
        gaps = [1000 * gap for gap in self.gaps]
        return (
            f"{self.way}: a prompt of {self.prompt} tokens alone {rate:.1f} tokens/s; "
            f"beside a stream {self.share:.0%} of that ({min(shares):.0%} to {max(shares):.0%}; asked "
            f"{LEAST_SHARE:.0%}); the stream's longest gap {statistics.median(gaps):.0f} ms "
            f"({min(gaps):.0f} to {max(gaps):.0f}; asked {self.max_gap_s * 1000:.0f})"
        )


def longest_gap(times: list[float], begin: float, end: float) -> float:
    """Between neighbours of which one or both are in the span."""
    before = [t for t in times if t < begin][-1:]
    after = [t for t in times if t > end][:1]
    around = before + [t for t in times if begin <= t <= end] + after
    return max(b - a for a, b in itertools.pairwise(around))


class Direct:
    """hy3core.Scheduler, stepped here."""

    def __init__(self, model: "hy3core.Model", ctx: int, max_gap_s: float) -> None:
        self.scheduler = hy3core.Scheduler(model, ctx=ctx, max_gap=max_gap_s)
        self.ctx = ctx

    def run(self, until: Callable[[int], bool], times: dict[int, list[float]]) -> None:
        """Steps, and notes the times of tokens by request, until that holds of a request with a new token."""
        while True:
            for event in self.scheduler.step():
                if event.error:
                    raise RuntimeError(event.error)
                if event.token is None:
                    continue
                times.setdefault(event.request, []).append(time.perf_counter())
                if until(event.request):
                    return

    def prefill(self, tokens: list[int], times: dict[int, list[float]]) -> tuple[float, float]:
        begin = time.perf_counter()
        number = self.scheduler.submit(tokens, max_tokens=1, stop_ids=[])
        self.run(lambda request: request == number, times)
        return begin, times[number][0]

    def alone(self, tokens: list[int]) -> float:
        begin, end = self.prefill(tokens, {})
        return end - begin

    def beside(self, tokens: list[int]) -> Beside:
        times: dict[int, list[float]] = {}
        stream = self.scheduler.submit([1], max_tokens=self.ctx - 1, stop_ids=[])
        self.run(lambda _: len(times[stream]) >= SETTLED, times)
        begin, end = self.prefill(tokens, times)
        self.run(lambda request: request == stream, times)
        self.scheduler.cancel(stream)
        self.scheduler.step()
        return Beside(end - begin, longest_gap(times[stream], begin, end))


class Served:
    """Through HTTP, as a client sees it."""

    def __init__(self, url: str, ctx: int, letter: int) -> None:
        self.url, self.ctx, self.letter = url, ctx, letter

    def request(self, tokens: list[int], max_tokens: int) -> Request:
        """Each token of the answer is the same letter: text to see, where random weights mostly give halves
        of characters, which are held back.
        """
        body = {
            "prompt": tokens,
            "max_tokens": max_tokens,
            "temperature": 0,
            "logit_bias": {str(self.letter): 100},
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return Request("/v1/completions", body)

    async def prefill(self, client: httpx.AsyncClient, tokens: list[int]) -> tuple[float, float]:
        begin = time.perf_counter()
        answer = await ask(client, self.request(tokens, 1))
        return begin, begin + answer.chunk_s[0]

    def alone(self, tokens: list[int]) -> float:
        async def run() -> float:
            async with new_client(self.url, 1) as client:
                begin, end = await self.prefill(client, tokens)
                return end - begin

        return asyncio.run(run())

    def beside(self, tokens: list[int]) -> Beside:
        return asyncio.run(self.run_beside(tokens))

    async def run_beside(self, tokens: list[int]) -> Beside:
        request = self.request([1], self.ctx - 1)
        times: list[float] = []
        settled = asyncio.Event()

        async def follow(response: httpx.Response) -> None:
            async for piece in events(response):
                if any(choice.get("text") for choice in piece["choices"]):
                    times.append(time.perf_counter())
                    if len(times) == SETTLED:
                        settled.set()

        async with (
            new_client(self.url, 2) as client,
            client.stream("POST", request.path, json=request.body) as response,
        ):
            following = asyncio.create_task(follow(response))
            waiting = asyncio.create_task(settled.wait())
            await asyncio.wait([following, waiting], return_when=asyncio.FIRST_COMPLETED)
            if not settled.is_set():
                raise RuntimeError(f"the stream ended after {len(times)} tokens")
            begin, end = await self.prefill(client, tokens)
            while times[-1] <= end and not following.done():
                await asyncio.sleep(0.001)
            following.cancel()
        return Beside(end - begin, longest_gap(times, begin, end))


def measure_way(way: str, engine: Direct | Served, prompts: list[list[int]], max_gap_s: float) -> Result:
    """Two prompts a round, one alone and one beside a stream; the first two are not counted."""
    result = Result(way, len(prompts[0]), max_gap_s)
    engine.alone(prompts[0])
    engine.beside(prompts[1])
    for alone, beside in zip(prompts[2::2], prompts[3::2], strict=True):
        result.alone_s.append(engine.alone(alone))
        result.beside.append(engine.beside(beside))
        print(f"{way}: {result.alone_s[-1]:.3f} s alone, {result.beside[-1]}", file=sys.stderr)
    return result


def measure(path: Path, prompt: int, threads: int, rounds: int, max_gap_s: float) -> list[Result]:
    read_anew(path)
    tokenizer = hy3core.Tokenizer(path)
    letter = tokenizer.token_id("a")
    if letter is None:
        raise RuntimeError(f"{path} has no token 'a'")
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, tokenizer.vocab_size, prompt).tolist() for _ in range(4 * rounds + 4)]
    ctx = 2 * prompt  # the stream must last longer than the prompt takes
    model = hy3core.Model(path, threads=threads)
    found = [measure_way("Scheduler", Direct(model, ctx, max_gap_s), prompts[::2], max_gap_s)]
    del model
    options = ("--ctx", str(ctx), "--threads", str(threads), "--max-gap", str(max_gap_s))
    with Server(path, *options) as server:
        found.append(measure_way("HTTP", Served(server.url, ctx, letter), prompts[1::2], max_gap_s))
    return found


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure a stream beside a long prompt.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompt", type=int, default=2000, metavar="N", help="its tokens (default 2000)")
    parser.add_argument("--max-gap", type=float, default=0.25, metavar="SECONDS", help="(default 0.25)")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5, help="of both (default 5)")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    arguments = parser.parse_args()
    if min(arguments.prompt, arguments.threads, arguments.rounds) < 1:
        parser.error("--prompt, --threads and --rounds are 1 or more.")
    return arguments


def main() -> int:
    args = read_arguments()
    results = measure(args.model, args.prompt, args.threads, args.rounds, args.max_gap)
    for result in results:
        print(result)
    if args.json:
        measured = [
            vars(one) | {"beside": [vars(b) for b in one.beside], "share": one.share} for one in results
        ]
        write_json(args.json, measured)
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"gap: {error}")
