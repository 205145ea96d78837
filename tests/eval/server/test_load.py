"""eval/server/load.py and client.py notice what they are there for."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from eval.server.client import Answer, Request, Said, ask
from eval.server.load import Outcome, ask_together, make_requests


def reply(request: httpx.Request) -> httpx.Response:
    """Says the prompt's length, and fails at "fail"."""
    body: dict[str, Any] = json.loads(request.content)
    if body["prompt"] == "fail":
        return httpx.Response(503, text="busy")
    said = {
        "choices": [{"index": 0, "text": str(len(body["prompt"])), "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    if not body.get("stream"):
        return httpx.Response(200, json=said)
    data = "".join(f"data: {part}\n\n" for part in (json.dumps(said), body.get("end", "[DONE]")))
    return httpx.Response(200, text=data)


def answer(**body: Any) -> Answer:
    async def run() -> Answer:
        async with httpx.AsyncClient(transport=httpx.MockTransport(reply), base_url="http://x") as client:
            return await ask(client, Request("/v1/completions", body))

    return asyncio.run(run())


def test_an_answer_is_the_same_streamed_or_not() -> None:
    whole, streamed = answer(prompt="abc"), answer(prompt="abc", stream=True)
    assert whole.said == streamed.said == Said(("\x003",), ("stop",), 1, 2)
    assert (len(whole.chunk_s), len(streamed.chunk_s)) == (0, 1)


def test_half_an_answer_is_none() -> None:
    with pytest.raises(RuntimeError, match=r"/v1/completions answered 503: busy"):
        answer(prompt="fail")
    with pytest.raises(RuntimeError, match="without"):
        answer(prompt="abc", stream=True, end="{}")
    with pytest.raises(RuntimeError, match="it broke"):
        answer(prompt="abc", stream=True, end='{"error": "it broke"}')


def test_a_different_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    client = httpx.AsyncClient(transport=httpx.MockTransport(reply), base_url="http://x")
    monkeypatch.setattr("eval.server.load.new_client", lambda *_: client)
    requests = [[Request("/v1/completions", {"prompt": prompt}) for prompt in ("a", "bb", "fail")]]
    expected = [[Said(("\x001",), ("stop",), 1, 2)] * 3]
    outcome = asyncio.run(ask_together("", None, requests, expected, seconds=0))
    assert [failure.split(" (")[0] for failure in outcome.failures] == [
        "client 0, request 1",
        "client 0, request 2",
    ]
    assert not outcome.holds


@pytest.mark.parametrize(("last", "holds"), [(104, True), (106, False)])
def test_growing_memory_is_noticed(last: int, holds: bool) -> None:
    memory = [(0.0, 10), (1.0, 50), (2.0, 100), (3.0, 103), (4.0, last)]  # the first half may grow
    outcome = Outcome(1.0, [answer(prompt="a")], [], memory)
    assert outcome.drift == pytest.approx(last / 100 - 1)
    assert outcome.holds is holds


def test_the_requests_follow_from_the_seed() -> None:
    assert make_requests(2, 3, seed=5) == make_requests(2, 3, seed=5) != make_requests(2, 3, seed=6)
    kinds = {(one.path, one.streamed) for own in make_requests(16, 20, seed=0) for one in own}
    assert len(kinds) == 4
