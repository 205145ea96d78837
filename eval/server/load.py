"""Many clients at once: is every answer what it would have been alone, and does the memory stay flat?

    python -m eval.server.load                         starts a server with the bundled model
    python -m eval.server.load --model MODEL.gguf
    python -m eval.server.load --url http://127.0.0.1:8080 [--pid PID]

Every client has its own requests of mixed lengths and kinds: chat and plain, streamed and not, greedy and
sampled with a seed, with thinking, with a beginning that others share. First one client asks them all, one
after the other; then all clients ask theirs at once, again and again until --seconds are over, and each
answer must be the same to the byte. Exit 1 when one is not, when a request fails, or when the memory of the
server moves by more than 5% in the second half.
"""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from eval.server.client import Answer, Request, Said, ask, new_client
from eval.server.process import Server, memory_curve
from eval.speeds import write_json

MOST_DRIFT = 0.05  # of the memory, in the second half
# So little that finished conversations have to make room soon: the memory is to be seen when it is full.
SERVER = ("--ctx", "2048", "--parallel", "16", "--kv-budget", "8192")
TEXT = (
    "the a of to and in is it that was for on are with as his they at be this from have or by one had not "
    "what all were when we there can an your which their said if do will each about how up out them then "
    "many some so these would other into has more her two like him see time could no make than first been "
    "11 + 22 = ? 7 * 8 = ? Grüße 你好 世界 { } ( ) [ ] def return import"
)
WORDS = TEXT.split()
SYSTEM = "You are a careful helper. " + " ".join(WORDS[:60])


def some_words(rng: random.Random, least: int, most: int) -> str:
    """Of a length between, short ones as often as long ones."""
    n = round(least * (most / least) ** rng.random())
    return rng.choice([" ", " ", "\n"]).join(rng.choice(WORDS) for _ in range(n))


def make_request(rng: random.Random) -> Request:
    body: dict[str, object] = {"max_tokens": rng.choice([1, 8, 24, 64, 128])}
    if rng.random() < 0.3:
        body |= {"temperature": rng.choice([0.5, 1.0]), "top_p": 0.95, "seed": rng.randrange(1 << 31)}
    else:
        body["temperature"] = 0
    if rng.random() < 0.2:
        body["n"] = 2
    if rng.random() < 0.5:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if rng.random() < 0.3:
        return Request("/v1/completions", body | {"prompt": some_words(rng, 1, 300)})
    messages = [{"role": "user", "content": some_words(rng, 1, 200)}]
    if rng.random() < 0.5:
        messages.insert(0, {"role": "system", "content": SYSTEM})
    if rng.random() < 0.3:
        body["reasoning_effort"] = rng.choice(["low", "high"])
    return Request("/v1/chat/completions", body | {"messages": messages})


def make_requests(clients: int, each: int, seed: int) -> list[list[Request]]:
    rng = random.Random(seed)
    return [[make_request(rng) for _ in range(each)] for _ in range(clients)]


@dataclass
class Outcome:
    """Of the requests that came back, and of the memory."""

    seconds: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)  # (seconds, bytes)

    @property
    def drift(self) -> float | None:
        """How far the memory of the second half reaches above its least; None when nobody looked."""
        if not self.memory:
            return None
        later = [size for at, size in self.memory if at >= self.memory[-1][0] / 2]
        return max(later) / min(later) - 1

    @property
    def holds(self) -> bool:
        return bool(self.answers) and not self.failures and (self.drift or 0.0) <= MOST_DRIFT

    @property
    def tokens(self) -> int:
        return sum(answer.said.tokens for answer in self.answers)

    def first_token_s(self) -> list[float]:
        return [answer.chunk_s[0] for answer in self.answers if answer.chunk_s]

    def __str__(self) -> str:
        lines = [
            f"{len(self.answers)} answers in {self.seconds:.1f} s, {len(self.failures)} failures; "
            f"{self.tokens / self.seconds:.1f} tokens/s",
            f"whole answers: {percentiles([answer.seconds for answer in self.answers])}",
            f"first token of streams: {percentiles(self.first_token_s())}",
        ]
        if self.memory:
            curve = self.memory[:: max(1, len(self.memory) // 12)]
            lines.append("memory, MiB: " + ", ".join(f"{at:.0f} s {size / 2**20:.1f}" for at, size in curve))
            lines.append(f"in the second half it moves by {self.drift:.1%} (limit {MOST_DRIFT:.0%})")
        return "\n".join(lines + self.failures[:20])


def percentiles(seconds: Sequence[float]) -> str:
    if len(seconds) < 2:
        return "too few to tell"
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"median {cuts[49]:.3f} s, 90% {cuts[89]:.3f}, 99% {cuts[98]:.3f}, longest {max(seconds):.3f}"


async def ask_alone(url: str, key: str | None, requests: list[list[Request]]) -> list[list[Said]]:
    async with new_client(url, 1, key) as client:
        return [[(await ask(client, request)).said for request in own] for own in requests]


async def ask_together(
    url: str, key: str | None, requests: list[list[Request]], alone: list[list[Said]], seconds: float
) -> Outcome:
    """Each client goes through its requests at least once, and goes on until the time is over."""
    outcome = Outcome()
    began = time.perf_counter()

    async def run(own: list[Request], expected: list[Said], number: int) -> None:
        while True:
            for at, (request, said) in enumerate(zip(own, expected, strict=True)):
                name = f"client {number}, request {at} ({request.path})"
                try:
                    answer = await ask(client, request)
                except Exception as error:  # whatever it is, it is to be told with its request
                    outcome.failures.append(f"{name}: {type(error).__name__}: {error}")
                    continue
                outcome.answers.append(answer)
                if answer.said != said:
                    outcome.failures.append(f"{name}: {answer.said} instead of {said}")
            if time.perf_counter() - began >= seconds or len(outcome.failures) > 100:
                return

    async with new_client(url, len(requests), key) as client:
        pairs = zip(requests, alone, strict=True)
        await asyncio.gather(*(run(own, expected, n) for n, (own, expected) in enumerate(pairs)))
    outcome.seconds = time.perf_counter() - began
    return outcome


def run_load(
    url: str, pid: int | None, requests: list[list[Request]], seconds: float, key: str | None = None
) -> Outcome:
    alone = asyncio.run(ask_alone(url, key, requests))
    together = ask_together(url, key, requests, alone, seconds)
    if pid is None:
        return asyncio.run(together)
    with memory_curve(pid, every_s=max(0.05, seconds / 240)) as curve:
        outcome = asyncio.run(together)
    outcome.memory = curve
    return outcome


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Load a server and compare its answers.")
    parser.add_argument("--url", help="a running server (default: start one)")
    parser.add_argument("--pid", type=int, help="its process, to watch the memory")
    parser.add_argument("--key", help="its API key")
    parser.add_argument("-m", "--model", type=Path, help="for the server to start (default: the bundled one)")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=20, help="of each client (default 20)")
    parser.add_argument("--seconds", type=float, default=120.0, help="at least (default 120)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    arguments = parser.parse_args()
    if arguments.url and arguments.model:
        parser.error("Give --url or --model, not both.")
    if arguments.clients < 1 or arguments.requests < 1:
        parser.error("--clients and --requests are 1 or more.")
    return arguments


def main() -> int:
    args = read_arguments()
    with ExitStack() as stack:
        url, pid = args.url, args.pid
        if url is None:
            server = stack.enter_context(Server(args.model, *SERVER))
            url, pid = server.url, server.process.pid
        requests = make_requests(args.clients, args.requests, args.seed)
        outcome = run_load(url, pid, requests, args.seconds, args.key)
    print(outcome)
    if args.json:
        write_json(
            args.json,
            {
                "seconds": outcome.seconds,
                "tokens": outcome.tokens,
                "answer_s": [answer.seconds for answer in outcome.answers],
                "first_token_s": outcome.first_token_s(),
                "memory": outcome.memory,
                "drift": outcome.drift,
                "failures": outcome.failures,
            },
        )
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
