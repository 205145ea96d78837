"""The application while its model is being loaded: it says so, and then hands all requests over."""

import asyncio
from collections.abc import Callable

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hy3.serve.errors import ApiError, shape_for

RETRY_SECONDS = 5


class Loading:
    """ASGI application. `load` runs in a thread, then `ready` is called; or `stop`, and `failure` is why."""

    def __init__(
        self, load: Callable[[], FastAPI], ready: Callable[[], None], stop: Callable[[], None]
    ) -> None:
        self.failure: BaseException | None = None
        self._load, self._ready, self._stop = load, ready, stop
        self._app: ASGIApp | None = None
        self._closing = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await unready(scope["path"])(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        running = asyncio.create_task(self._run())
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
        self._closing.set()
        await running
        await send({"type": "lifespan.shutdown.complete"})

    async def _run(self) -> None:
        try:
            app = await asyncio.to_thread(self._load)
        except Exception as error:
            self.failure = error
            self._stop()
            return
        async with app.router.lifespan_context(app):
            self._app = app
            self._ready()
            await self._closing.wait()


def unready(path: str) -> JSONResponse:
    if path == "/health":
        return JSONResponse({"status": "loading"}, 503)
    error = ApiError(
        503, "The model is being loaded.", code="loading", headers={"Retry-After": str(RETRY_SECONDS)}
    )
    return JSONResponse(shape_for(path, error), 503, error.headers)
