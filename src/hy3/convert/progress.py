"""What a conversion shows on stderr while it runs: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time

INTERVAL = 30.0  # seconds between two lines


class Progress:
    """Shows nothing but the warnings; what the others are built on."""

    def start(self, total: int, done: int) -> None:
        """Bytes of the source."""

    def advance(self, nbytes: int) -> None:
        """So many more of them are converted and written. Called from the writing thread."""

    def warn(self, text: str) -> None:
        print(f"hy3: warning: {text}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        pass

    def stop(self) -> None:
        """Leaves the terminal to others; also after an error."""


class Lines(Progress):
    def __init__(self) -> None:
        self._total = self._done = self._from = 0
        self._began = self._said = time.monotonic()

    def start(self, total: int, done: int) -> None:
        self._total, self._done, self._from = total, done, done
        self._began = self._said = time.monotonic()

    def advance(self, nbytes: int) -> None:
        self._done += nbytes
        now = time.monotonic()
        if now - self._said < INTERVAL and self._done < self._total:
            return
        self._said = now
        rate = (self._done - self._from) / max(now - self._began, 1e-9)
        left = (self._total - self._done) / max(rate, 1e-9)
        self.note(
            f"{self._done / 1e9:.2f} of {self._total / 1e9:.2f} GB, {self._done / max(self._total, 1):.0%}, "
            f"{rate / 1e6:.0f} MB/s, {clock(left)} left"
        )

    def note(self, text: str) -> None:
        print(f"hy3: {text}", file=sys.stderr, flush=True)


class Bar(Lines):
    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("converting"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=None)

    def start(self, total: int, done: int) -> None:
        self._bar.start()
        self._bar.reset(self._task, total=total, completed=done)

    def advance(self, nbytes: int) -> None:
        self._bar.advance(self._task, nbytes)

    def warn(self, text: str) -> None:
        self._bar.console.print(f"hy3: warning: {text}", markup=False, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        self._bar.console.print(f"hy3: {text}", markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._bar.stop()


def choose(quiet: bool) -> Progress:
    if quiet:
        return Progress()
    return Bar() if sys.stderr.isatty() else Lines()


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
