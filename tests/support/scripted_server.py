"""A server with the chat page whose answers are scripts, for what the bundled model cannot be made to say."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from hy3.serve import page

Delta = dict[str, Any]


def text(content: str, size: int = 12) -> list[Delta]:
    return [{"content": content[at : at + size]} for at in range(0, len(content), size)]


def thinking(content: str) -> list[Delta]:
    return [{"reasoning_content": delta["content"]} for delta in text(content)]


def call(index: int, name: str, *fragments: str) -> list[Delta]:
    start = {
        "index": index,
        "id": f"call_{name}",
        "type": "function",
        "function": {"name": name, "arguments": ""},
    }
    more = [{"index": index, "function": {"arguments": fragment}} for fragment in fragments]
    return [{"tool_calls": [part]} for part in (start, *more)]


class ScriptedServer:
    """`scripts`: what is answered to a last message that begins with the key; anything else is echoed."""

    def __init__(self, scripts: dict[str, list[Delta]]) -> None:
        self.scripts = scripts
        self.pause = 0.0  # seconds before each delta
        self.break_after: int | None = None  # deltas, then the connection ends,
        self.last_words = ""  # after this
        self.refuse: tuple[int, str] | None = None  # status and message of every request
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.left = threading.Event()  # a client went away
        self.url = ""
        self.app = FastAPI()
        self.app.include_router(page.router())
        self.app.get("/v1/models")(self.models)
        self.app.post("/v1/chat/completions")(self.completions)

    def models(self) -> Response:
        if self.refuse:
            return self._refusal()
        return JSONResponse({"data": [{"id": "hy3-scripted", "max_model_len": 4096}]})

    async def completions(self, request: Request) -> Response:
        self.requests.append(await request.json())
        self.keys.append(request.headers.get("authorization"))
        if self.refuse:
            return self._refusal()
        return StreamingResponse(
            self._stream(self.requests[-1]["messages"][-1]), media_type="text/event-stream"
        )

    def _refusal(self) -> Response:
        status, message = self.refuse or (500, "")
        return JSONResponse({"error": {"message": message}}, status)

    async def _stream(self, message: dict[str, Any]) -> AsyncIterator[str]:
        said = message["content"]
        script = next(
            (deltas for key, deltas in self.scripts.items() if said.startswith(key)),
            text(f"You said: {said}"),
        )
        try:
            for at, delta in enumerate(script):
                if at == self.break_after:
                    yield self.last_words
                    return
                await asyncio.sleep(self.pause)
                yield event([{"index": 0, "delta": delta, "finish_reason": None}])
        except asyncio.CancelledError:
            self.left.set()
            raise
        finish = "tool_calls" if "tool_calls" in script[-1] else "stop"
        yield event([{"index": 0, "delta": {}, "finish_reason": finish}])
        tokens = {
            "prompt_tokens": 30,
            "completion_tokens": len(script),
            "prompt_tokens_details": {"cached_tokens": 20},
        }
        yield event([], tokens)
        yield "data: [DONE]\n\n"


def event(choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> str:
    return f"data: {json.dumps({'model': 'hy3-scripted', 'choices': choices, 'usage': usage})}\n\n"


@contextmanager
def running(server: ScriptedServer, port: int = 0) -> Iterator[ScriptedServer]:
    config = uvicorn.Config(server.app, port=port, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn_server = uvicorn.Server(config)
    thread = threading.Thread(target=uvicorn_server.run, daemon=True)
    thread.start()
    while not uvicorn_server.started:
        assert thread.is_alive(), "the server did not start"
        threading.Event().wait(0.01)
    server.url = f"http://127.0.0.1:{uvicorn_server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        uvicorn_server.should_exit = True
        thread.join()
