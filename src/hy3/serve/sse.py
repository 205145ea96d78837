"""Server-sent events: an answer as it comes."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hy3.serve.engine import ClientGone
from hy3.serve.errors import ApiError, shape_for
from hy3.serve.generate import Generation


def event(data: Any, name: str | None = None) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


PING = b": ping\n\n"  # a comment, which clients skip
PING_SECONDS = 10.0
# A client that takes nothing for so long, while megabytes wait for it in the buffers on the way, is gone.
STALLED_SECONDS = 120.0


class EventStream(Response):
    """Sends what `events` yields, and closes the generation behind it whatever happens. An error on the way
    is the last event: the status has been sent by then."""

    def __init__(self, generation: Generation, events: AsyncIterator[bytes], ping: bytes = PING) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"})
        self._generation, self._events = generation, with_pings(events, ping)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                async for data in self._events:
                    await put(send, data)
            except ApiError as error:
                shape = shape_for(scope["path"], error)
                await put(send, event(shape, "error" if shape.get("type") == "error" else None))
            await put(send, b"", more=False)
        except ClientGone:
            return
        finally:
            await self._generation.close()


async def put(send: Send, data: bytes, more: bool = True) -> None:
    """Sends, as soon as there is room for it; ClientGone if there is none for long."""
    sending = send({"type": "http.response.body", "body": data, "more_body": more})
    try:
        await asyncio.wait_for(sending, STALLED_SECONDS)
    except asyncio.TimeoutError:
        raise ClientGone from None


async def with_pings(events: AsyncIterator[bytes], ping: bytes) -> AsyncIterator[bytes]:
    """A ping wherever nothing comes for a while, as when a long prompt is read: clients, and proxies on the
    way, give silent connections up."""
    while True:
        following = asyncio.ensure_future(anext(events))
        try:
            while not (await asyncio.wait([following], timeout=PING_SECONDS))[0]:
                yield ping
            yield following.result()
        except StopAsyncIteration:
            return
        finally:
            following.cancel()
