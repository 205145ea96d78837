"""A server of the bundled model, in this process, on a free port; the official client for it."""

import asyncio
import importlib.util
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import hy3core

MISSING = [
    name
    for name in ("fastapi", "uvicorn", "httpx", "openai", "anthropic")
    if importlib.util.find_spec(name) is None
]
if MISSING:
    collect_ignore_glob = ["test_*.py"]

MODEL = Path(str(resources.files("hy3"))) / "models/hy3-tiny.gguf"


@dataclass
class Server:
    url: str
    service: Any  # hy3.serve.service.Service
    loop: asyncio.AbstractEventLoop

    def openai(self, **options: Any) -> Any:
        import openai

        return openai.OpenAI(base_url=self.url + "/v1", **{"api_key": "none", "max_retries": 0, **options})

    def anthropic(self, **options: Any) -> Any:
        import anthropic

        return anthropic.Anthropic(base_url=self.url, **{"api_key": "none", "max_retries": 0, **options})

    def http(self, **options: Any) -> Any:
        import httpx

        return httpx.Client(base_url=self.url, **{"timeout": 60, **options})


def serve(**changes: Any) -> Iterator[Server]:
    """Runs a server with these fields of Settings and arguments of hy3core.Scheduler (as `scheduler`)."""
    import uvicorn

    from hy3.serve.app import create_app
    from hy3.serve.engine import Engine
    from hy3.serve.service import Service, Settings

    model = hy3core.Model(str(MODEL), threads=1)
    scheduling = changes.pop("scheduler", {})
    settings = Settings(**{"names": ("hy3-tiny",), "ctx": 1024, **changes})
    scheduler = hy3core.Scheduler(model, ctx=settings.ctx, max_running=settings.slots, **scheduling)
    service = Service(model, Engine(scheduler, settings.slots, settings.queue), settings)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="warning", lifespan="on"))
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve(sockets=[listening])

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the server did not start")
        thread.join(0.01)
    try:
        yield Server(f"http://127.0.0.1:{listening.getsockname()[1]}", service, loops[0])
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    yield from serve()


@pytest.fixture
def server_with() -> Iterator[Callable[..., Server]]:
    """server_with(queue=0, ...): a server with other settings, for one test."""
    running: list[Iterator[Server]] = []

    def start(**changes: Any) -> Server:
        running.append(serve(**changes))
        return next(running[-1])

    yield start
    for each in running:
        next(each, None)
