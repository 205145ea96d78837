"""The thread that steps the scheduler, and the way of its events to the requests that wait in asyncio.

All requests are computed by one thread, the only one that calls `Scheduler.step`. After each step it hands
the events over to the event loop in one call, however many there are. With nothing to do it sleeps. Each
request opens an `Inbox`, submits one or more generations to it and reads their events.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from hy3.serve.errors import ApiError
from hy3core import Event, Scheduler

log = logging.getLogger("hy3.serve")

FAILED_STEP_SECONDS = 0.1  # before the next try, should every step fail


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Inbox:
    """Where the events of one HTTP request arrive. Belongs to the event loop's thread; `close` it."""

    def __init__(self, engine: "Engine", places: int) -> None:
        self.places = places
        self._engine = engine
        self._keys: dict[int, int] = {}  # running: the scheduler's number -> ours
        self._arrived: deque[tuple[int, Event]] = deque()
        self._news = asyncio.Event()
        self._gone = False

    def submit(self, key: int, tokens: Sequence[int], **options: Any) -> int:
        """Starts a generation whose events come with `key`; the options are those of Scheduler.submit."""
        number = self._engine.submit(self, tokens, options)
        self._keys[number] = key
        return number

    def cancel(self, key: int) -> None:
        """Ends a generation early. Its last event, with the usage, still comes."""
        for number, its_key in self._keys.items():
            if its_key == key:
                self._engine.cancel(number)

    async def get(self) -> list[tuple[int, Event]]:
        """All events since the last time, at least one; ClientGone when the client hung up."""
        await self._news.wait()
        if self._gone:
            raise ClientGone
        events = list(self._arrived)
        self._arrived.clear()
        self._news.clear()
        return events

    def client_gone(self) -> None:
        self._gone = True
        self._news.set()

    def close(self) -> None:
        """Frees the places of what still runs. May be called again."""
        self._engine.close_inbox(self, list(self._keys))
        self._keys.clear()

    def take(self, event: Event) -> None:
        key = self._keys.get(event.request)
        if key is None:  # cancelled meanwhile
            return
        if event.finish is not None:
            del self._keys[event.request]
            self.places -= 1  # whether or not the client reads the rest of its answer
        self._arrived.append((key, event))
        self._news.set()


class Engine:
    """`slots` generations run at once and `queue` more may wait. Start it in the event loop it serves."""

    def __init__(self, scheduler: Scheduler, slots: int, queue: int) -> None:
        self.slots, self.queue = slots, queue
        self.draining = False
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._running: dict[int, Inbox] = {}
        self._inboxes: set[Inbox] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._pace = Pace()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._step_until_closed, name="hy3-engine", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def stats(self) -> Mapping[str, Any]:
        return self._scheduler.stats

    @property
    def live(self) -> int:
        """Generations that run or wait, or that requests being prepared will start."""
        return sum(inbox.places for inbox in self._inboxes)

    def open(self, places: int = 1) -> Inbox:
        """For a request of that many generations: an error now, if there is no room in the queue."""
        if self.draining:
            raise ApiError(503, "The server is shutting down.", code="shutting_down")
        if self.live + places > self.slots + self.queue:
            seconds = self._pace.seconds_until_free(self.live + places - self.slots - self.queue, self.slots)
            raise ApiError(
                429,
                f"The queue is full: {self.live} generations run or wait. Try again in {seconds} seconds.",
                code="queue_full",
                headers={"Retry-After": str(seconds)},
            )
        inbox = Inbox(self, places)
        self._inboxes.add(inbox)
        self._idle.clear()
        return inbox

    def submit(self, inbox: Inbox, tokens: Sequence[int], options: Mapping[str, Any]) -> int:
        with self._lock:  # so that its first event cannot come before we know whose it is
            if self._closed:
                raise ApiError(503, "The server is shutting down.", code="shutting_down")
            number = self._scheduler.submit(tokens, **options)
            self._running[number] = inbox
            self._pace.begin(number)
            self._work.notify()
        return number

    def cancel(self, number: int) -> None:
        self._scheduler.cancel(number)

    def close_inbox(self, inbox: Inbox, numbers: Sequence[int]) -> None:
        with self._lock:
            for number in numbers:
                if self._running.pop(number, None) is not None:
                    self._scheduler.cancel(number)
                    self._pace.end(number)
            self._work.notify()  # the scheduler frees what is cancelled in a step
        self._inboxes.discard(inbox)
        if not self._inboxes:
            self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Takes nothing new, and ends what is not done after that time."""
        self.draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except asyncio.TimeoutError:
            self._fail_all("The server is shutting down.")

    def close(self) -> None:
        """Ends the thread; a step that is under way is awaited."""
        with self._lock:
            self._closed = True
            self._work.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _step_until_closed(self) -> None:
        while True:
            with self._lock:
                while not (self._running or self._closed or self._has_work()):
                    self._work.wait()
                if self._closed:
                    return
            try:
                events = self._scheduler.step()
            except Exception as error:
                log.exception("a step failed")
                self._fail_all(f"The engine failed: {error}")
                time.sleep(FAILED_STEP_SECONDS)
            else:
                self._hand_over(events)

    def _has_work(self) -> bool:
        """Cancelled generations are not among `_running`, but the scheduler holds them until it steps."""
        stats = self._scheduler.stats
        return bool(stats["running"] or stats["waiting"])

    def _hand_over(self, events: Sequence[Event]) -> None:
        with self._lock:
            told = [(inbox, event) for event in events if (inbox := self._running.get(event.request))]
            for _, event in told:
                if event.finish is not None:
                    del self._running[event.request]
                    self._pace.end(event.request)
        if told:
            self._call(deliver, told)

    def _fail_all(self, reason: str) -> None:
        with self._lock:
            failed = [(inbox, failure(number, reason)) for number, inbox in self._running.items()]
            for number in self._running:
                self._scheduler.cancel(number)
                self._pace.end(number)
            self._running.clear()
        self._call(deliver, failed)

    def _call(self, function: Any, *args: Any) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)


def failure(number: int, reason: str) -> Event:
    """The end of a generation without the scheduler saying so."""
    return Event(number, None, None, None, "error", reason, None)


def deliver(told: Sequence[tuple[Inbox, Event]]) -> None:
    for inbox, event in told:
        inbox.take(event)


class Pace:
    """How long generations take, to say when a place will be free."""

    MOST_SECONDS = 60

    def __init__(self) -> None:
        self._begun: dict[int, float] = {}
        self._mean = 1.0  # seconds, moving

    def begin(self, number: int) -> None:
        self._begun[number] = time.monotonic()

    def end(self, number: int) -> None:
        begun = self._begun.pop(number, None)
        if begun is not None:
            self._mean += 0.1 * (time.monotonic() - begun - self._mean)

    def seconds_until_free(self, places: int, slots: int) -> int:
        return max(1, min(self.MOST_SECONDS, round(self._mean * places / slots)))
