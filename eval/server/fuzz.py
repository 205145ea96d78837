"""Random and mutated requests: the server answers each with 2xx or 4xx, and lives.

    python -m eval.server.fuzz --n 5000            starts a server with the bundled model
    python -m eval.server.fuzz --url http://127.0.0.1:8080

What the cases are: eval/server/bodies.py. A status of 5xx, an answer that breaks off, an error of the server
in the middle of a stream and an answer that does not come within --patience seconds are failures, and so is a
sound request that is answered otherwise after the cases than before. Exit 1 when there are any.
"""

import argparse
import asyncio
import collections
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from eval.server.bodies import SOUND, Case, make_case
from eval.server.client import Request, ask, new_client
from eval.server.process import Server

# A short context ends the answers that a mutation has freed of their max_tokens.
SERVER = ("--ctx", "512", "--kv-budget", "8192")
MOST_FAILURES = 20
# What OpenAI's and Anthropic's clients take for an error of the server, in a stream that began with 200.
SERVER_ERRORS = {"server_error", "internal_error", "internal_server_error", "api_error"}
SOUND_REQUEST = Request(*SOUND[0])


@dataclass
class Tally:
    statuses: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)  # seconds, case
    count: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        statuses = ", ".join(f"{status} {n}" for status, n in sorted(self.statuses.items()))
        slow, number = self.slowest
        text = (
            f"{self.count} requests in {self.seconds:.0f} s: {statuses}; the slowest took {slow:.1f} s "
            f"(case {number}); {len(self.failures)} failures"
        )
        return "\n".join([text, *self.failures])


def stream_error(text: str) -> str | None:
    """An error of the server that a stream of events ends with."""
    for line in text.splitlines():
        if not line.startswith("data: {"):
            continue
        event = json.loads(line[len("data: ") :])
        error = event.get("error") or (event.get("response") or {}).get("error") or {}
        if SERVER_ERRORS & {error.get("type"), error.get("code")}:
            return line
    return None


async def judge(client: httpx.AsyncClient, case: Case) -> tuple[str, str | None]:
    """The status, and what is wrong with the answer."""
    try:
        reply = await client.post(case.path, content=case.body, headers={"Content-Type": "application/json"})
    except httpx.TimeoutException:
        return "hang", "no answer in time"
    except httpx.HTTPError as error:
        return "broken", f"{type(error).__name__}: {error}"
    text = reply.text
    status = str(reply.status_code)
    if reply.status_code >= 500 or reply.status_code < 200:
        return status, text[:500]
    if reply.status_code >= 300:
        sound = reply.status_code >= 400 and isinstance(reply.json().get("error"), dict)
        return status, None if sound else f"no error object: {text[:500]}"
    if reply.headers["Content-Type"].startswith("text/event-stream"):
        return status, stream_error(text)
    reply.json()
    return status, None


async def run_cases(url: str, key: str | None, seed: int, numbers: Sequence[int], patience: float) -> Tally:
    """Four at a time, so that they meet in the engine; stops early after some failures."""
    tally = Tally()
    waiting = iter(numbers)
    began = time.perf_counter()

    async def work(client: httpx.AsyncClient) -> None:
        for number in waiting:
            case = make_case(seed, number)
            sent = time.perf_counter()
            status, wrong = await judge(client, case)
            tally.slowest = max(tally.slowest, (time.perf_counter() - sent, number))
            tally.count += 1
            tally.statuses[status] += 1
            if wrong is not None:
                tally.failures.append(f"case {number} ({case.label}, {case.path}): {status} {wrong}")
            if len(tally.failures) >= MOST_FAILURES:
                return

    async with new_client(url, 5, key) as client:
        before = await ask(client, SOUND_REQUEST)
        client.timeout = httpx.Timeout(patience)
        await asyncio.gather(*(work(client) for _ in range(4)))
        try:
            after = await ask(client, SOUND_REQUEST)
        except (RuntimeError, httpx.HTTPError) as error:
            tally.failures.append(f"a sound request afterwards: {type(error).__name__}: {error}")
        else:
            if after.said != before.said:
                tally.failures.append(f"a sound request afterwards: {after.said} instead of {before.said}")
    tally.seconds = time.perf_counter() - began
    return tally


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuzz a server with request bodies.")
    parser.add_argument("--url", help="a running server (default: start one)")
    parser.add_argument("--key", help="its API key")
    parser.add_argument("-m", "--model", type=Path, help="for the server to start (default: the bundled one)")
    parser.add_argument("-n", "--n", type=int, default=5000, help="requests (default 5000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for one answer (default 60)")
    return parser.parse_args()


def main() -> int:
    args = read_arguments()
    numbers = range(args.first, args.first + args.n)
    with ExitStack() as stack:
        server = None if args.url else stack.enter_context(Server(args.model, *SERVER))
        url = server.url if server else args.url
        tally = asyncio.run(run_cases(url, args.key, args.seed, numbers, args.patience))
        if server and not server.alive:
            tally.failures.append(f"the server ended with {server.process.returncode}: {server.log[-2000:]}")
    print(tally)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
