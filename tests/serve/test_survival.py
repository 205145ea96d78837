"""What happens to others must not happen to a stream, and a kill must not happen to the next process."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import hy3core
from eval.server.client import Request, Said, ask, new_client
from eval.server.process import Server

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "1+2=?"}
BOMB = "{% for i in range(10**9) %}{% for j in range(10**9) %}x{% endfor %}{% endfor %}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(None, "--ctx", "4096") as found:
        yield found


@pytest.fixture(scope="module")
def stream(server: Server) -> Request:
    """Drawn at a temperature, so that a wrong bit anywhere before would show; no end token ends it."""
    tokenizer = hy3core.Tokenizer(Path(__file__).parents[2] / "src/hy3/models/hy3-tiny.gguf")
    ends = {str(token): -100 for token in tokenizer.eos_ids}
    body = {"messages": [USER], "max_tokens": 400, "temperature": 1.0, "seed": 3, "logit_bias": ends}
    return Request(CHAT, body | {"stream": True, "stream_options": {"include_usage": True}})


def said(url: str, request: Request) -> Said:
    async def run() -> Said:
        async with new_client(url, 1) as client:
            return (await ask(client, request)).said

    return asyncio.run(run())


def body(**fields: Any) -> bytes:
    return json.dumps({"messages": [USER], "max_tokens": 2} | fields).encode()


POISON: list[tuple[str, bytes]] = [
    (CHAT, b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}'),
    (CHAT, body(n=10**9)),
    (CHAT, body(n=10**400)),
    (CHAT, body(temperature=float("nan"))),
    (CHAT, body(max_tokens=-1)),
    (CHAT, b"[" * 200_000 + b"]" * 200_000),
    (CHAT, b'{"messages": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001),
    (CHAT, body(chat_template=BOMB)),
    (CHAT, body(chat_template_kwargs={"messages": BOMB})),
    (CHAT, body(messages=[{"role": "user", "content": "x " * 100_000}])),
    (CHAT, body(messages=[USER] * 20_000)),
    (CHAT, body(logit_bias={str(i): 1e308 for i in range(9999)})),
    (CHAT, body(response_format={"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}})),
    (CHAT, b"\x00" * 1000),
    ("/v1/completions", json.dumps({"prompt": [-1, 10**9], "max_tokens": 2}).encode()),
    ("/v1/completions", json.dumps({"prompt": [[1]] * 5000, "max_tokens": 2}).encode()),
    ("/detokenize", json.dumps({"tokens": [10**30, "x", None]}).encode()),
    ("/v1/messages", json.dumps({"max_tokens": 2, "messages": [{"role": "user", "content": [{}]}]}).encode()),
]


def test_poison_beside_a_stream_changes_nothing(server: Server, stream: Request) -> None:
    async def both() -> tuple[Said, list[int]]:
        async with new_client(server.url, 4) as client:
            running = asyncio.create_task(ask(client, stream))
            statuses = []
            for path, data in POISON:
                reply = await client.post(path, content=data, headers={"Content-Type": "application/json"})
                statuses.append(reply.status_code)
            return (await running).said, statuses

    alone = said(server.url, stream)
    assert alone.tokens == 400
    beside, statuses = asyncio.run(both())
    assert beside == alone
    assert [status for status in statuses if not 400 <= status < 500] == []


def generated(url: str) -> float:
    page = httpx.get(url + "/metrics").text
    return float(page.split("\nhy3_generated_tokens_total ")[1].split()[0])


def test_nothing_is_computed_for_a_client_that_left(server: Server, stream: Request) -> None:
    endless = stream.body | {"max_tokens": 4000}
    with httpx.stream("POST", server.url + CHAT, json=endless, timeout=60) as response:
        lines = response.iter_lines()  # kept: httpx closes a stream whose iterator is gone
        for _ in range(20):
            next(lines)
    time.sleep(0.5)
    made = generated(server.url)
    time.sleep(0.5)
    assert generated(server.url) == made < 4000


def test_kill_leaves_nothing_behind(stream: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All state is in memory: the next process on the same port answers as the first did."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    question = Request(CHAT, {"messages": [USER], "temperature": 0})
    with Server(None) as first:
        port, before = first.port, said(first.url, question)
        with httpx.stream("POST", first.url + CHAT, json=stream.body, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            first.signal(signal.SIGKILL)
            assert first.wait() == -signal.SIGKILL
            with contextlib.suppress(httpx.HTTPError):
                assert "data: [DONE]" not in list(lines)
    assert list(tmp_path.rglob("*")) == []
    with Server(None, port=port) as second:
        assert said(second.url, question) == before
