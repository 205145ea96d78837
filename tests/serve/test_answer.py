"""From tokens to the parts of an answer, however the text is cut into tokens."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from hy3.serve.answer import (
    Answer,
    CallArguments,
    CallStart,
    Part,
    ReasoningDelta,
    Style,
    TextDelta,
    TokenScore,
)


@dataclass
class Letters:
    """A tokenizer whose tokens are Unicode's code points."""

    def token_id(self, text: str) -> int | None:
        return None

    def stream_decoder(self, special: bool) -> Any:
        return type("Decoder", (), {"push": lambda _, token: chr(token)})()


@dataclass
class Token:
    token: int | None
    logprob: float | None = None
    top: Any = None
    finish: str | None = None


def read(text: str, style: Style, reason: str = "stop", scored: bool = False) -> tuple[Answer, list[Part]]:
    answer = Answer(Letters(), style)  # type: ignore[arg-type]
    parts: list[Part] = []
    for letter in text:
        parts += answer.push(Token(ord(letter), -1.0 if scored else None))  # type: ignore[arg-type]
        if answer.ended:
            break
    return answer, parts + answer.finish(reason)


def text_of(parts: list[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextDelta))


def calls_of(parts: list[Part]) -> list[tuple[str, Any]]:
    names = [part.name for part in parts if isinstance(part, CallStart)]
    arguments = ["" for _ in names]
    for part in parts:
        if isinstance(part, CallArguments):
            arguments[part.index] += part.fragment
    return [(name, json.loads(text)) for name, text in zip(names, arguments, strict=True)]


def call(name: str, **arguments: str) -> str:
    body = "".join(
        f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in arguments.items()
    )
    return f"<tool_call>{name}<tool_sep>{body}</tool_call>"


def test_reasoning_is_apart() -> None:
    answer, parts = read("so\nso</think>yes", Style(thinking=True))
    assert "".join(part.text for part in parts if isinstance(part, ReasoningDelta)) == "so\nso"
    assert text_of(parts) == "yes"
    assert (answer.tokens, answer.reasoning_tokens, answer.finish_reason) == (16, 13, "stop")


def test_two_calls() -> None:
    answer, parts = read(
        f"Well: <tool_calls>{call('f', a='1')}{call('g', b='x')}</tool_calls>",
        Style(tools={"f": {}, "g": {}}),
    )
    assert calls_of(parts) == [("f", {"a": 1}), ("g", {"b": "x"})]
    assert text_of(parts).strip() == "Well:"
    assert answer.finish_reason == "tool_calls"


def test_one_call_ends_the_answer_where_the_second_begins() -> None:
    style = Style(tools={"f": {}, "g": {}}, one_call=True)
    answer, parts = read(f"<tool_calls>{call('f', a='1')}{call('g', b='x')}</tool_calls> more", style)
    assert calls_of(parts) == [("f", {"a": 1})]
    assert answer.ended and answer.finish_reason == "tool_calls"
    assert text_of(parts) == ""


def test_without_tools_a_call_is_text() -> None:
    text = f"<tool_calls>{call('f', a='1')}</tool_calls>"
    answer, parts = read(text, Style())
    assert text_of(parts) == text and answer.finish_reason == "stop"


@pytest.mark.parametrize("cut", range(20, 80, 7))
def test_a_call_cut_off_has_whole_arguments(cut: int) -> None:
    text = f"<tool_calls>{call('f', a='1', b='some text')}</tool_calls>"[:cut]
    answer, parts = read(text, Style(tools={"f": {}}), "length")
    assert all(isinstance(arguments, dict) for _, arguments in calls_of(parts))
    assert answer.finish_reason == "length"


def test_the_stop_string_counts_in_the_answer_alone() -> None:
    answer, parts = read("a.b</think>c.d", Style(thinking=True, stops=["."]))
    assert text_of(parts) == "c" and answer.ended and answer.finish_reason == "stop"


def test_scores_come_with_their_text() -> None:
    _, parts = read("ab</think>cd STOP ef", Style(thinking=True, stops=["STOP"]), scored=True)
    assert [chr(part.token) for part in parts if isinstance(part, TokenScore)] == list("cd ")
    _, parts = read("cd ST", Style(stops=["STOP"]), scored=True)
    assert [chr(part.token) for part in parts if isinstance(part, TokenScore)] == list("cd ST")
