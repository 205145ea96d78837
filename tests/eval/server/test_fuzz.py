"""eval/server/fuzz.py notices what it is there for."""

import asyncio
import collections
import json

import httpx

from eval.server.bodies import CHANGES, RAW, SOUND, make_case
from eval.server.fuzz import judge


def test_a_case_follows_from_its_number() -> None:
    assert make_case(0, 7) == make_case(0, 7) != make_case(0, 8)
    seen = collections.Counter(name for n in range(400) for name in make_case(3, n).label.split(" + "))
    assert set(seen) == {change.__name__ for change in [*CHANGES, *RAW]}
    assert len({make_case(3, n).path for n in range(400)}) == len({path for path, _ in SOUND})


def verdict(status: int, text: str, kind: str = "application/json") -> str | None:
    async def run() -> str | None:
        reply = httpx.MockTransport(
            lambda _: httpx.Response(status, text=text, headers={"Content-Type": kind})
        )
        async with httpx.AsyncClient(transport=reply, base_url="http://x") as client:
            return (await judge(client, make_case(0, 0)))[1]

    return asyncio.run(run())


def test_what_is_wrong() -> None:
    stream = "text/event-stream; charset=utf-8"
    assert verdict(200, "{}") is None
    assert verdict(400, '{"error": {"message": "no"}}') is None
    assert verdict(500, '{"error": {"message": "no"}}') is not None
    assert verdict(400, '{"detail": "no"}') is not None
    assert verdict(302, "") is not None
    assert verdict(200, "data: {}\n\ndata: [DONE]\n\n", stream) is None
    bad = json.dumps({"error": {"type": "server_error", "message": "it broke"}})
    assert verdict(200, f"data: {{}}\n\ndata: {bad}\n\n", stream) == f"data: {bad}"


def test_a_server_that_breaks_off_is_noticed() -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("peer closed")

    async def run() -> tuple[str, str | None]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(fail), base_url="http://x") as client:
            return await judge(client, make_case(0, 0))

    assert asyncio.run(run()) == ("broken", "RemoteProtocolError: peer closed")
