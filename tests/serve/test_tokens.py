"""POST /tokenize and /detokenize."""

from typing import Any

import pytest


def post(server: Any, path: str, **body: Any) -> Any:
    return server.http().post(path, json=body)


@pytest.mark.parametrize("field", ["content", "prompt"])
def test_there_and_back(server: Any, field: str) -> None:
    text = "11+22=33 東京 <think:opensource> 🙂"
    found = post(server, "/tokenize", **{field: text}).json()
    assert found["tokens"] == server.service.model.tokenizer.encode(text)
    assert found["count"] == len(found["tokens"])
    back = post(server, "/detokenize", tokens=found["tokens"]).json()
    assert back == {"content": text, "prompt": text}


def test_pieces(server: Any) -> None:
    tokens = post(server, "/tokenize", content="a🙂", with_pieces=True).json()["tokens"]
    pieces = [each["piece"] for each in tokens]
    assert b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in pieces) == "a🙂".encode()
    assert any(isinstance(piece, list) for piece in pieces)


def test_a_conversation(server: Any) -> None:
    messages = [{"role": "user", "content": "11+22=?"}]
    found = post(server, "/tokenize", messages=messages, reasoning_effort="high").json()
    usage = (
        server.http()
        .post(
            "/v1/chat/completions", json={"messages": messages, "reasoning_effort": "high", "max_tokens": 1}
        )
        .json()["usage"]
    )
    assert found["count"] == usage["prompt_tokens"]
    text = post(server, "/detokenize", tokens=found["tokens"]).json()["content"]
    assert "11+22=?" in text and text.endswith("<think:opensource>")
    without = post(server, "/tokenize", messages=messages, add_generation_prompt=False).json()
    assert without["count"] < found["count"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": "a", "messages": [{"role": "user", "content": "b"}]}, "messages"),
        ("/tokenize", {"content": 5}, "content"),
        ("/detokenize", {"tokens": [99999]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0"),
        ("/detokenize", {}, "tokens"),
    ],
)
def test_bad_requests_name_the_field(server: Any, path: str, body: Any, param: str) -> None:
    answer = post(server, path, **body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_what_the_tokenizer_is(server: Any) -> None:
    info = server.http().get("/tokenizer_info").json()
    assert info["bos_token"] == "<｜hy_begin_of_sentence:opensource｜>"
    assert "add_generation_prompt" in info["chat_template"]
    text = post(server, "/tokenize", prompt="a", add_special_tokens=False).json()
    assert text["count"] == 1
