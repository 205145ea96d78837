"""What stands before the endpoints: the key, the size of a body and how deep it is nested."""

import asyncio
import contextlib
import hmac
from collections import deque
from collections.abc import Iterable

import numpy as np
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hy3.serve import surrogates
from hy3.serve.errors import ApiError, bad_request, shape_for

# Of a JSON body. Code that reads it later recurses, and parsing millions of lists would hold all others up.
MOST_DEPTH = 100
MOST_CONTAINERS = 50_000  # lists and objects
LINGER_SECONDS = 2.0
STEPS = np.zeros(256, dtype=np.int8)  # into a list or object, and out of it
STEPS[list(b"[{")], STEPS[list(b"]}")] = 1, -1


class Guard:
    """ASGI middleware. The body is read here, whole, so that it can be measured before it is parsed. The
    paths that are `public` need no key."""

    def __init__(self, app: ASGIApp, api_key: str | None, public: Iterable[str], body_limit: int) -> None:
        self._app = app
        self._key = None if api_key is None else api_key.encode()
        self._limit = body_limit
        self._public = frozenset(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            if scope["path"] not in self._public:
                self._check_key(headers)
            body = await self._read(headers, receive)
            if body is None:  # the client is gone
                return
            check_content(headers, body)
            if surrogates.suspected(body):
                body = await asyncio.to_thread(surrogates.mended, body)
        except ApiError as error:
            response = JSONResponse(shape_for(scope["path"], error), error.status, error.headers)
            await response(scope, receive, send)
            return
        await self._app(scope, replayed(body, receive), send)

    def _check_key(self, headers: Headers) -> None:
        if self._key is None:
            return
        # Headers are decoded as latin-1, whatever they are.
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not hmac.compare_digest(given.encode("latin-1"), self._key):
            raise ApiError(
                401,
                "The API key is missing or wrong. Send the header Authorization: Bearer KEY.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def _read(self, headers: Headers, receive: Receive) -> bytes | None:
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self._limit:
            if "expect" not in headers:
                await discard(receive)
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self._limit:
                if message.get("more_body", False):
                    await discard(receive)
                raise self._too_large()
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"The body is larger than {self._limit} bytes. Send less, or start the server with a larger "
            "--body-limit.",
            code="body_too_large",
            headers={"Connection": "close"},  # the rest of it may not have been read
        )


def check_content(headers: Headers, body: bytes) -> None:
    if not body:
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        # Browsers send other types to any server without asking it first.
        raise ApiError(415, "The body is not announced as JSON. Send Content-Type: application/json.")
    depth, containers = shape_of(body)
    if depth > MOST_DEPTH:
        raise bad_request(f"The body is nested {depth} levels deep. {MOST_DEPTH} are allowed.")
    if containers > MOST_CONTAINERS:
        raise bad_request(f"The body has {containers} lists and objects. {MOST_CONTAINERS} are allowed.")


async def discard(receive: Receive) -> None:
    """Takes what still comes, for a while: a client that is cut off while it sends does not read why."""

    async def rest() -> None:
        while (await receive()).get("more_body", False):
            pass

    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(rest(), LINGER_SECONDS)


def shape_of(body: bytes) -> tuple[int, int]:
    """How deep JSON is nested, and how many lists and objects it has, without parsing it."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # now each quote begins or ends a string
    letters = np.frombuffer(plain, dtype=np.uint8)
    steps = STEPS[letters]
    steps[np.cumsum(letters == ord('"'), dtype=np.int32) & 1 == 1] = 0
    depths = np.cumsum(steps, dtype=np.int32)
    return int(depths.max(initial=0)), int(np.count_nonzero(steps == 1))


def replayed(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then what `receive` has."""
    kept: deque[Message] = deque([{"type": "http.request", "body": body, "more_body": False}])

    async def next_message() -> Message:
        return kept.popleft() if kept else await receive()

    return next_message
