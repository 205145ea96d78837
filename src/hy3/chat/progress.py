"""What a prompt that takes long shows on stderr meanwhile: a bar on a terminal, a line elsewhere."""

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 2.0  # seconds before anything is shown


class PromptProgress:
    """`with PromptProgress(total) as progress`: `progress.update(done)` after each chunk, in tokens."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._bar: Progress | None = None
        self._ended = False
        self._lock = threading.Lock()
        # A thread of its own, since a chunk alone may take longer than anyone waits without a sign of life.
        self._timer = threading.Timer(PATIENCE, self._show)
        self._timer.daemon = True

    def __enter__(self) -> "PromptProgress":
        self._timer.start()
        return self

    def update(self, done: int) -> None:
        with self._lock:
            self._done = done
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the terminal as it was."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()

    def _show(self) -> None:
        with self._lock:
            if self._ended:
                return
            if not sys.stderr.isatty():
                print(f"hy3: computing a prompt of {self._total} tokens", file=sys.stderr, flush=True)
                return
            self._bar = bar()
            self._bar.add_task("prompt", total=self._total, completed=self._done)
            self._bar.start()


def bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tokens"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
