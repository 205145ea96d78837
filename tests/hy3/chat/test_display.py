"""What reaches the screen, and what reaches a pipe."""

import io

import pytest

from hy3.chat.display import Display
from hy3.chat.reply import Chunk


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


THOUGHT = [
    Chunk("\nhmm", True),
    Chunk("\n", False),
    Chunk("\n6", False),
    Chunk("6\n", False),
    Chunk("\n7", False),
]


def shown(out: io.StringIO, chunks: list[Chunk], thinking: bool) -> str:
    display = Display(thinking, out)
    for chunk in chunks:
        display.show(chunk)
    display.end()
    return out.getvalue()


def test_a_terminal_gets_the_thinking_dimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert shown(Terminal(), THOUGHT, thinking=True) == "\x1b[2mhmm\n\x1b[0m66\n\n7\n"


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(Terminal(), THOUGHT, thinking=True) == "hmm\n66\n\n7\n"


def test_an_answer_that_ends_in_thought_leaves_the_terminal_normal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert shown(Terminal(), [Chunk("hmm", True)], thinking=True) == "\x1b[2mhmm\x1b[0m\n"


def test_a_pipe_gets_what_the_model_wrote_between_tags() -> None:
    assert shown(io.StringIO(), THOUGHT, thinking=True) == "<think>\nhmm</think>\n\n66\n\n7\n"
    assert shown(io.StringIO(), [Chunk("66\n", False)], thinking=False) == "66\n"


def test_control_characters_do_not_reach_a_terminal() -> None:
    evil = [Chunk("a\x1b]0;title\x07\x9b2J\r\tb\n", False)]
    assert shown(Terminal(), evil, thinking=False) == "a␛]0;title␇�2J␍\tb\n"
    assert shown(io.StringIO(), evil, thinking=False) == evil[0].text
