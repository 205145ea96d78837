"""Halves of surrogate pairs become U+FFFD at the door, whole pairs stay, and no answer breaks of them."""

import json
from typing import Any

import pytest

from hy3.serve.surrogates import mended, suspected


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\uD83D\uDE00"', "\U0001f600"),
        (rb'"\ud83d"', "\ufffd"),
        (rb'"a\ude00b"', "a\ufffdb"),
        (rb'"\ude00\ud83d"', "\ufffd\ufffd"),
        (rb'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\ud83d\n\ude00"', "\ufffd\n\ufffd"),
        (rb'"\\ud83d"', r"\ud83d"),
        (rb'"\\\ud83d"', "\\\ufffd"),
    ],
)
def test_halves_are_mended(body: bytes, text: str) -> None:
    assert suspected(body)
    assert json.loads(mended(body)) == text


def test_other_escapes_are_not_suspected() -> None:
    assert not suspected(rb'"\u00e9\uabcd\n"')


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "\ud800", "instructions": "\udfff", "max_output_tokens": 2}),
        ("/v1/responses", {"input": "x", "metadata": {"\ud800": "\ud800"}, "max_output_tokens": 2}),
        ("/v1/responses", {"input": "x", "instructions": "\ud800", "stream": True, "max_output_tokens": 2}),
        ("/v1/completions", {"prompt": "\ud800", "echo": True, "max_tokens": 2}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "\ud800"}], "max_tokens": 2}),
        ("/tokenize", {"content": "\ud800", "prompt": "\ud800"}),
    ],
)
def test_they_are_answered(server: Any, path: str, body: dict[str, Any]) -> None:
    with server.http() as http:
        reply = http.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    assert reply.status_code == 200, reply.text
    assert "error" not in reply.text or '"error":null' in reply.text
