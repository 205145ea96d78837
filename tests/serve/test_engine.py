"""The engine's thread and inboxes, on a scheduler that does as it is told."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from hy3.serve.engine import ClientGone, Engine
from hy3.serve.errors import ApiError


@dataclass
class Event:
    request: int
    token: int | None = None
    finish: str | None = None
    logprob: None = None
    top: None = None
    error: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)


class Scripted:
    """Counts for each generation, one token a step, to its max_tokens."""

    def __init__(self) -> None:
        self.live: dict[int, list[int]] = {}  # tokens so far, and at most
        self.cancelled: list[int] = []
        self.steps = 0
        self.fails = False
        self.hold = threading.Event()
        self.hold.set()

    def submit(self, tokens: Sequence[int], *, max_tokens: int, **options: Any) -> int:
        number = len(self.live) + len(self.cancelled) + self.steps * 1000 + 1
        self.live[number] = [0, max_tokens]
        return number

    def cancel(self, number: int) -> None:
        if self.live.pop(number, None):
            self.cancelled.append(number)

    def step(self) -> list[Event]:
        self.hold.wait(5)
        self.steps += 1
        if self.fails:
            raise RuntimeError("broken")
        events = [Event(number, finish="cancelled") for number in self.cancelled]
        self.cancelled.clear()
        for number, progress in list(self.live.items()):
            progress[0] += 1
            done = progress[0] == progress[1]
            events.append(Event(number, token=progress[0], finish="length" if done else None))
            if done:
                del self.live[number]
        return events

    @property
    def stats(self) -> dict[str, Any]:
        return {"running": len(self.live) + len(self.cancelled), "waiting": 0}


Body = Callable[[Engine, Scripted], Coroutine[Any, Any, None]]


def run(body: Body, slots: int = 4, queue: int = 4) -> None:
    async def main() -> None:
        scheduler = Scripted()
        engine = Engine(scheduler, slots, queue)
        engine.start()
        try:
            await asyncio.wait_for(body(engine, scheduler), 10)
        finally:
            scheduler.hold.set()
            engine.close()

    asyncio.run(main())


async def read_all(inbox: Any, ends: int = 1) -> dict[int, list[Event]]:
    """All events by key, to the last of that many generations."""
    found: dict[int, list[Event]] = {}
    while sum(event.finish is not None for events in found.values() for event in events) < ends:
        for key, event in await inbox.get():
            found.setdefault(key, []).append(event)
    return found


def test_events_come_in_order_and_apart() -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        one, two = engine.open(2), engine.open(1)
        for key, tokens in ((0, 50), (1, 70)):
            one.submit(key, [1], max_tokens=tokens)
        two.submit(5, [1], max_tokens=60)
        ones, twos = await asyncio.gather(read_all(one, 2), read_all(two))
        for events, count in ((ones[0], 50), (ones[1], 70), (twos[5], 60)):
            assert [event.token for event in events] == list(range(1, count + 1))
            assert events[-1].finish == "length"

    run(body)


def test_an_answer_that_nobody_reads_takes_no_place() -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        stalled = [engine.open(2) for _ in range(2)]
        for inbox in stalled:
            inbox.submit(0, [1], max_tokens=3)
            inbox.submit(1, [1], max_tokens=3)
        await asyncio.gather(*(read_all(inbox, 2) for inbox in stalled))
        assert engine.live == 0
        engine.open(4).close()
        for inbox in stalled:
            inbox.close()
        assert engine.live == 0

    run(body, slots=2, queue=2)


def test_a_step_is_one_call_into_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        loop, calls = asyncio.get_running_loop(), []
        soon = loop.call_soon_threadsafe

        def counting(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                calls.append(args)
            return soon(*args, **kwargs)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
        scheduler.hold.clear()
        inbox = engine.open(4)
        for key in range(4):
            inbox.submit(key, [1], max_tokens=20)
        scheduler.hold.set()
        await read_all(inbox, 4)
        assert len(calls) <= 21  # the thread may have begun with the first alone

    run(body)


def test_an_idle_engine_sleeps() -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        inbox = engine.open()
        inbox.submit(0, [1], max_tokens=3)
        await read_all(inbox)
        inbox.close()
        await asyncio.sleep(0.05)
        steps, cpu = scheduler.steps, time.process_time()
        await asyncio.sleep(0.5)
        assert scheduler.steps == steps
        assert time.process_time() - cpu < 0.1

    run(body)


def test_cancel_still_brings_the_last_event() -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        inbox = engine.open()
        inbox.submit(0, [1], max_tokens=10**9)
        await inbox.get()
        inbox.cancel(0)
        events = await read_all(inbox)
        assert events[0][-1].finish == "cancelled"

    run(body)


def test_close_frees_the_places_and_drops_what_still_comes() -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        inbox = engine.open(2)
        inbox.submit(0, [1], max_tokens=10**9)
        inbox.submit(1, [1], max_tokens=10**9)
        await inbox.get()
        inbox.close()
        inbox.close()
        assert engine.live == 0
        await asyncio.sleep(0.1)
        assert not scheduler.live and not scheduler.cancelled  # it has made a step after

    run(body)


def test_a_client_that_is_gone_waits_no_more() -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        inbox = engine.open()
        inbox.submit(0, [1], max_tokens=10**9)
        inbox.client_gone()
        with pytest.raises(ClientGone):
            await inbox.get()
        inbox.close()

    run(body)


def test_the_queue_has_its_limit() -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        inboxes = [engine.open(2), engine.open(1)]
        with pytest.raises(ApiError) as refused:
            engine.open()
        assert refused.value.status == 429
        inboxes[1].close()
        engine.open().close()

    run(body, slots=1, queue=2)


def test_a_failing_scheduler_fails_what_runs_and_does_not_spin() -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        scheduler.fails = True
        inbox = engine.open(2)
        inbox.submit(0, [1], max_tokens=5)
        inbox.submit(1, [1], max_tokens=5)
        events = await read_all(inbox, 2)
        assert [each[-1].finish for each in events.values()] == ["error", "error"]
        await asyncio.sleep(0.3)
        assert scheduler.steps < 10
        scheduler.fails = False
        inbox.submit(0, [1], max_tokens=5)
        assert (await read_all(inbox))[0][-1].finish == "length"

    run(body)


def test_drain_waits_for_what_runs_and_takes_nothing_new() -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        scheduler.hold.clear()
        inbox = engine.open()
        inbox.submit(0, [1], max_tokens=5)
        draining = asyncio.create_task(engine.drain(5))
        await asyncio.sleep(0.05)
        with pytest.raises(ApiError) as refused:
            engine.open()
        assert refused.value.status == 503
        assert not draining.done()
        scheduler.hold.set()
        assert (await read_all(inbox))[0][-1].finish == "length"
        inbox.close()
        await draining

    run(body)


def test_drain_ends_what_takes_too_long() -> None:
    async def body(engine: Engine, scheduler: Scripted) -> None:
        inbox = engine.open()
        inbox.submit(0, [1], max_tokens=10**9)
        await engine.drain(0.1)
        assert (await read_all(inbox))[0][-1].finish == "error"

    run(body)
