"""What the server does with bad requests, strangers, crowds and clients that leave; nobody else notices."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hy3.serve.guard import shape_of
from tests.serve.conftest import serve

QUESTION = [{"role": "user", "content": "11+22+33=?"}]
CHAT = "/v1/chat/completions"
# Long enough to be there when the test looks.
LONG = {"messages": QUESTION, "max_tokens": 3900, "temperature": 2.0}


def post(server: Any, body: Any, **options: Any) -> Any:
    with server.http() as http:
        if isinstance(body, bytes):
            options.setdefault("headers", {"content-type": "application/json"})
            return http.post(CHAT, content=body, **options)
        return http.post(CHAT, json=body, **options)


def long(server: Any, **fields: Any) -> dict[str, Any]:
    """A request that runs to its length: no token ends it."""
    ends = server.service.model.tokenizer.eos_ids
    return {**LONG, "logit_bias": {str(token): -100 for token in ends}, **fields}


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_free(server: Any) -> bool:
    return server.service.engine.live == 0 and server.service.engine.stats["running"] == 0


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    yield from serve(ctx=4096)


@pytest.fixture(autouse=True)
def the_others_notice_nothing(request: pytest.FixtureRequest) -> Any:
    """After each test the shared server answers as ever."""
    yield
    if "server" in request.fixturenames:
        response = post(request.getfixturevalue("server"), {"messages": QUESTION, "temperature": 0})
        assert response.json()["choices"][0]["message"]["content"] == "66"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages.0.content.0",
        ),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": 10**30}, "n"),
        ({"n": 100}, "n"),
        ({"seed": "1"}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1024": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"chat_template": "{% for i in range(10**9) %}x{% endfor %}"}, "chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"reasoning_effort": 1}}, "chat_template_kwargs.reasoning_effort"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
    ],
)
def test_the_wrong_field_is_named(server: Any, fields: dict[str, Any], param: str) -> None:
    response = post(server, json.dumps({"messages": QUESTION, **fields}).encode())
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and error["message"].endswith(".")
    assert error["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe{}",
        b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
        b'{"messages": [{"role": "\\ud800", "content": "x"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "n": ' + b"1" * 10_000 + b"}",
        b'{"messages": ' + b"[" * 100_000,
        b'{"messages": ' + b"[" * 150 + b"]" * 150 + b"}",
        b'{"chat_template_kwargs": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b'{"messages": [{"role": "user", "content": "' + b'\\"' * 100_000,
        b'{"messages": [{"role": "user", "content": "x"}], "x": [' + b"[]," * 60_000 + b"[]]}",
    ],
)
def test_a_broken_body_is_refused(server: Any, body: bytes) -> None:
    begun = time.monotonic()
    response = post(server, body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "\ud800"}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": "\udfff"}}}]},
        {"model": "\ud800"},
        {"chat_template_kwargs": {"\ud800": "\ud800"}},
        {"stop": "\ud800"},
        {"reasoning_effort": "\ud800"},
    ],
)
def test_half_of_a_surrogate_pair_does_no_harm(server: Any, fields: dict[str, Any]) -> None:
    body = json.dumps({"messages": QUESTION, "max_tokens": 3, **fields}).encode()
    assert post(server, body).status_code in (200, 400, 404)


def test_a_nested_schema_is_none_of_that(server: Any) -> None:
    schema: dict[str, Any] = {"type": "string", "description": "}]" * 200}
    for _ in range(20):
        schema = {"type": "object", "properties": {"inner": schema}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert post(server, {"messages": QUESTION, "tools": [tool], "max_tokens": 1}).status_code in (200, 400)


def test_an_unknown_model_is_not_found(server: Any) -> None:
    response = post(server, {"messages": QUESTION, "model": "gpt-9"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert "hy3-tiny" in response.json()["error"]["message"]


def test_an_unknown_path_is_not_found(server: Any) -> None:
    with server.http() as http:
        assert http.get("/v2/chat").status_code == 404
        assert http.get(CHAT).status_code == 405
        assert http.get("/v2/chat").json()["error"]["message"] == "Not Found."


def test_too_long_a_prompt_is_refused_with_the_numbers(server: Any) -> None:
    response = post(server, {"messages": [{"role": "user", "content": "12 " * 6000}]})
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")
    assert "4096" in error["message"]


@pytest.mark.parametrize(
    ("body", "depth", "containers"),
    [
        (b"", 0, 0),
        (b"1", 0, 0),
        (b'[{"a": [1, {}]}, []]', 4, 5),
        (rb'{"a[\"{\\": "]"}', 1, 1),
        (rb'["\\", [], "\\\"["]', 2, 2),
        (b"]]][", 0, 1),
    ],
)
def test_brackets_count_outside_of_strings(body: bytes, depth: int, containers: int) -> None:
    assert shape_of(body) == (depth, containers)


def test_many_empty_messages_are_refused_before_they_are_rendered(server: Any) -> None:
    response = post(server, {"messages": [{"role": "system", "content": ""}] * 10_000})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_other_content_types_are_refused(server: Any) -> None:
    body = json.dumps({"messages": QUESTION}).encode()
    assert post(server, body, headers={"content-type": "text/plain"}).status_code == 415


def test_a_key_is_asked_for(server_with: Callable[..., Any]) -> None:
    server = server_with(api_key="señor key")
    body = {"messages": QUESTION, "max_tokens": 1}
    key = "señor key".encode()
    assert post(server, body).status_code == 401
    for wrong in (b"", b"Bearer", b"Bearer wrong", b"Basic " + key, b"Bearer " + key + b"x", b"Bearer \xff"):
        refused = post(server, body, headers={b"authorization": wrong})
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "invalid_api_key"
    assert post(server, body, headers={b"authorization": b"Bearer " + key}).status_code == 200
    assert post(server, body, headers={b"x-api-key": key}).status_code == 200
    with server.http() as http:
        assert http.get("/health").status_code == 200
        assert http.get("/metrics").status_code == 401
        assert http.get("/v1/models").status_code == 401


def test_a_large_body_is_refused(server_with: Callable[..., Any]) -> None:
    server = server_with(body_limit=2000)
    large = json.dumps({"messages": QUESTION, "user": "x" * 3000}).encode()
    assert post(server, large).status_code == 413

    def in_chunks() -> Any:
        for start in range(0, len(large), 500):
            yield large[start : start + 500]

    with server.http() as http:  # no Content-Length
        response = http.post(CHAT, content=in_chunks(), headers={"content-type": "application/json"})
        assert response.status_code == 413
    assert post(server, {"messages": QUESTION, "max_tokens": 1}).status_code == 200


def test_a_full_queue_says_when_to_come_again(server_with: Callable[..., Any]) -> None:
    server = server_with(ctx=4096, slots=1, queue=0)
    with server.http() as http, http.stream("POST", CHAT, json={**long(server), "stream": True}) as stream:
        lines = stream.iter_lines()  # kept: httpx closes a stream whose iterator is gone
        next(lines)
        refused = post(server, {"messages": QUESTION})
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert 1 <= int(refused.headers["retry-after"]) <= 60
    wait_until(lambda: is_free(server))
    assert post(server, {"messages": QUESTION}).status_code == 200


def test_who_waits_in_the_queue_is_answered(server_with: Callable[..., Any]) -> None:
    server = server_with(ctx=4096, slots=1, queue=1)
    with (
        server.http() as http,
        http.stream("POST", CHAT, json={**long(server, max_tokens=100), "stream": True}) as stream,
    ):
        lines = stream.iter_lines()  # kept: httpx closes a stream whose iterator is gone
        next(lines)
        assert post(server, {"messages": QUESTION, "temperature": 0}).status_code == 200


def test_a_client_that_leaves_a_stream_frees_its_place(server: Any) -> None:
    with server.http() as http, http.stream("POST", CHAT, json={**long(server), "stream": True}) as stream:
        lines = stream.iter_lines()
        for _ in range(6):
            next(lines)
        assert server.service.engine.live == 1
    wait_until(lambda: is_free(server), 3)


def test_a_client_that_leaves_while_it_waits_frees_its_place(server: Any) -> None:
    body = json.dumps(long(server)).encode()
    host, port = server.url.removeprefix("http://").split(":")
    headers = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head = f"POST {CHAT} HTTP/1.1\r\n{headers}\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body)
        wait_until(lambda: server.service.engine.stats["running"] == 1)
    wait_until(lambda: is_free(server), 3)


def test_pages_of_other_origins_are_let_in_only_if_told(server: Any, server_with: Callable[..., Any]) -> None:
    page = {"origin": "https://page.example", "access-control-request-method": "POST"}
    with server.http() as http:
        response = http.options(CHAT, headers=page)
        assert "access-control-allow-origin" not in response.headers
    open_server = server_with(cors=("https://page.example",), api_key="k")
    with open_server.http() as http:
        assert http.options(CHAT, headers=page).headers["access-control-allow-origin"] == page["origin"]
        # A page must be able to read why it was refused.
        refused = http.post(CHAT, json={}, headers={"origin": page["origin"]})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == page["origin"]
        other = http.options(CHAT, headers={**page, "origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers


def test_a_failed_step_fails_what_runs_and_nothing_else(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = server.service.engine._scheduler
    step, calls = scheduler.step, []

    def failing() -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("the disk is on fire")
        return step()

    monkeypatch.setattr(server.service.engine, "_scheduler", Wrapped(scheduler, failing))
    with server.http() as http:
        response = http.post(CHAT, json=long(server))
        assert response.status_code == 500
        assert response.json()["error"]["type"] == "server_error"
        assert "the disk is on fire" in response.json()["error"]["message"]
        calls.clear()
        with http.stream("POST", CHAT, json={**long(server), "stream": True}) as stream:
            lines = [line for line in stream.iter_lines() if line]
        assert "the disk is on fire" in json.loads(lines[-1].removeprefix("data: "))["error"]["message"]
    wait_until(lambda: is_free(server))


class Wrapped:
    """A scheduler with another step."""

    def __init__(self, scheduler: Any, step: Callable[[], Any]) -> None:
        self._scheduler, self.step = scheduler, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)
