"""Where a chat's messages come from: a terminal with line editing and history, or the lines of a pipe."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from hy3.chat.commands import Exit


class Lines(Protocol):
    def read(self) -> str:
        """The next message or command; Exit at the end of the input; KeyboardInterrupt for Ctrl-C."""
        ...


class Pipe:
    """Lines of stdin. One that ends in a backslash goes on in the next. What is no UTF-8 becomes U+FFFD."""

    def read(self) -> str:
        lines: list[str] = []
        while True:
            data = sys.stdin.buffer.readline()
            line = data.decode("utf-8", "replace").rstrip("\r\n")
            if not data and not lines:
                raise Exit
            if not (data and line.endswith("\\")):
                return "\n".join([*lines, line])
            lines.append(line[:-1])


class Terminal:
    """prompt_toolkit: editing, history across sessions, completion of commands, Alt-Enter for a new line."""

    def __init__(self, commands: Sequence[str], warn: Callable[[str], None]) -> None:
        # Imported here: it takes a tenth of a second, and pipes do not need it.
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

        keys = KeyBindings()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        history: History
        try:
            history = FileHistory(str(history_file()))
        except OSError as error:
            warn(f"The history is not kept: {error.filename}: {error.strerror}.")
            history = InMemoryHistory()
        self._session: PromptSession[str] = PromptSession(
            "> ",
            history=history,
            key_bindings=keys,
            completer=WordCompleter(list(commands), sentence=True),
            complete_while_typing=False,
            prompt_continuation="  ",
        )

    def read(self) -> str:
        lines: list[str] = []
        try:
            while (line := self._session.prompt()).endswith("\\"):
                lines.append(line[:-1])
        except EOFError:
            raise Exit from None
        return "\n".join([*lines, line])


def history_file() -> Path:
    """In the XDG state directory; OSError if it cannot be written. Only the user may read it."""
    base = os.environ.get("XDG_STATE_HOME") or ""
    folder = (Path(base) if os.path.isabs(base) else Path.home() / ".local/state") / "hy3"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "history"
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    return file
