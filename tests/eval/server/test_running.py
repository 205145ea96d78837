"""The tools of eval/server against servers of their own, in short."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from eval.server import fuzz, gap, load, throughput
from eval.server.bodies import SOUND
from eval.server.client import new_client
from eval.server.process import Server
from eval.server.throughput import HTTP, SCHEDULER

MODEL = Path(__file__).parents[3] / "src/hy3/models/hy3-tiny.gguf"
CASES = 300


def test_load(report: Callable[[str], None]) -> None:
    with Server(None, *load.SERVER) as server:
        outcome = load.run_load(server.url, server.process.pid, load.make_requests(8, 3, seed=1), seconds=4)
    for line in str(outcome).splitlines():
        report(f"load: {line}")
    assert not outcome.failures
    assert len(outcome.answers) >= 24
    assert outcome.drift is not None  # how large it is, is for the long run to say


def test_fuzz(report: Callable[[str], None]) -> None:
    with Server(None, *fuzz.SERVER) as server:
        tally = asyncio.run(fuzz.run_cases(server.url, None, 1, range(CASES), patience=60))
        report(f"fuzz: {str(tally).splitlines()[0]}")
        assert not tally.failures, "\n".join([*tally.failures, server.log[-3000:]])
        assert server.alive
    assert tally.statuses["200"] > CASES / 10  # or nothing reaches the engine
    assert tally.statuses["400"] > CASES / 4


def test_the_bodies_to_begin_with_are_sound() -> None:
    """Each is answered, so that what is wrong with a case is what was changed."""

    async def run(url: str) -> list[str]:
        async with new_client(url, 1) as client:
            replies = [(path, await client.post(path, json=body)) for path, body in SOUND]
        return [f"{path}: {reply.text}" for path, reply in replies if reply.status_code != 200]

    with Server(None, *fuzz.SERVER) as server:
        assert asyncio.run(run(server.url)) == []


def test_throughput_of_a_small_model() -> None:
    report = throughput.measure(MODEL, streams=3, tokens=6, threads=2, rounds=2, python=None)
    assert [(one.way, one.streams) for one in report.rates] == [
        (SCHEDULER, 1), (HTTP, 1), (SCHEDULER, 3), (HTTP, 3),
    ]  # fmt: skip
    assert all(len(one.rounds) == 2 and min(one.rounds) > 0 for one in report.rates)


def test_gaps_of_a_small_model(report: Callable[[str], None]) -> None:
    results = gap.measure(MODEL, prompt=600, threads=2, rounds=2, max_gap_s=0.25)
    for result in results:
        report(f"gap: {result}")
        assert len(result.beside) == len(result.alone_s) == 2
        # Twice of what is asked, and half: other work on this machine takes its part.
        assert min(result.gaps) <= 0.5
        assert result.share >= 0.3
