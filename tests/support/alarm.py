"""Signals that arrive while a call computes."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Alarm(Exception):
    """What the handler raises."""


@contextmanager
def alarms() -> Iterator[Callable[[float], None]]:
    """set_alarm(seconds): then an Alarm is raised; 0 takes it back."""

    def handler(number: int, frame: object) -> None:
        raise Alarm

    def set_alarm(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        yield set_alarm
    finally:
        set_alarm(0)
        signal.signal(signal.SIGALRM, previous)


def seconds_to_stop(act: Callable[[], object], delay: float, times: int = 3) -> float:
    """From a signal `delay` seconds after the beginning of act() until it raises; the least of several times,
    since a busy machine may hold one of them up. The last act() is one that was stopped: where it ends before
    the signal, the delay is halved.
    """
    latencies: list[float] = []
    with alarms() as set_alarm:
        while len(latencies) < times:
            begin = time.perf_counter()
            set_alarm(delay)
            try:
                act()
            except Alarm:
                latencies.append(time.perf_counter() - begin - delay)
                continue
            set_alarm(0)
            delay /= 2
            assert delay > 1e-3, "too quick to be stopped"
    return min(latencies)
