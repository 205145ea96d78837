"""The process: a socket, the event loop, and a way out that lets running requests finish."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from hy3.errors import Hy3Error
from hy3.serve.engine import Engine
from hy3.serve.loading import Loading

CLOSING_SECONDS = 5  # for connections to end once no request runs


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = (
            "the name is not known" if error.errno is None or error.errno < 0 else os.strerror(error.errno)
        )
        raise Hy3Error(
            f"Cannot listen at {host} port {port}: {reason}", "Give another --host or --port"
        ) from None


class Server(uvicorn.Server):
    """The first signal lets what runs finish, for `grace` seconds; the second ends the process."""

    def __init__(self, config: uvicorn.Config, grace: float) -> None:
        super().__init__(config)
        self.engine: Engine | None = None  # once the model is loaded
        self.signal: int | None = None
        self._grace = grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + sig)  # even from within a long step
        self.signal = sig
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._drain)

    def stop(self) -> None:
        self.should_exit = True

    def _drain(self) -> None:
        self._draining = asyncio.ensure_future(self._drained())

    async def _drained(self) -> None:
        if self.engine is not None:
            await self.engine.drain(self._grace)
        self.stop()


async def serve(
    listening: socket.socket,
    load: Callable[[], tuple[Engine, FastAPI]],
    ready: Callable[[], None],
    grace: float,
) -> None:
    """Serves until a signal; KeyboardInterrupt if that was Ctrl-C. `load` makes the application in a thread,
    while others are told to wait; then `ready` is called."""

    def loaded() -> FastAPI:
        server.engine, app = load()
        return app

    def stop() -> None:
        server.stop()

    loading = Loading(loaded, ready, stop)
    server = Server(
        uvicorn.Config(loading, log_level="warning", timeout_graceful_shutdown=CLOSING_SECONDS), grace
    )
    await server.serve([listening])
    if loading.failure is not None:
        raise loading.failure
    if server.signal == signal.SIGINT:
        raise KeyboardInterrupt
