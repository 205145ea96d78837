"""Progress of a prompt: nothing for a short one, a line in a file, a bar on a terminal, gone at the end."""

import io
import sys
import time

import pytest

from hy3.chat import progress
from hy3.chat.progress import PromptProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, out: io.StringIO, seconds: float) -> str:
    monkeypatch.setattr(sys, "stderr", out)
    with PromptProgress(5000) as prompt:
        prompt.update(1000)
        time.sleep(seconds)
        prompt.update(2000)
    return out.getvalue()


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_a_short_prompt_shows_nothing(monkeypatch: pytest.MonkeyPatch, out: io.StringIO) -> None:
    assert progress.PATIENCE == 2.0
    assert shown(monkeypatch, out, 0.05) == ""
    time.sleep(0.1)
    assert out.getvalue() == ""


def test_a_long_prompt_has_a_line_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    assert shown(monkeypatch, io.StringIO(), 0.5) == "hy3: computing a prompt of 5000 tokens\n"


def test_a_long_prompt_has_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    text = shown(monkeypatch, Terminal(), 1.0)
    assert "1000/5000" in text
    assert text.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # the cursor is back, and the bar's line is empty


def test_an_error_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    with pytest.raises(KeyboardInterrupt), PromptProgress(5000):
        time.sleep(0.5)
        raise KeyboardInterrupt
    assert "\x1b[?25h" in out.getvalue()
