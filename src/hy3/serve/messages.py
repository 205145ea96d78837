"""Anthropic's POST /v1/messages and POST /v1/messages/count_tokens."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from hy3.serve.generate import Generation, written
from hy3.serve.messages_body import MessagesBody, PromptBody, chat_request
from hy3.serve.messages_writer import PING, Event, MessageWriter, usage
from hy3.serve.prompt import Decoding
from hy3.serve.service import Service
from hy3.serve.sse import EventStream, event


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/messages")
    async def create_message(body: MessagesBody, http: Request) -> Response:
        service.check_model(body.model)
        request = await asyncio.to_thread(chat_request, body, body.own_decoding(service))
        prepare = lambda: [service.prompter.chat(request)]  # noqa: E731
        generation = await Generation.start(service, 1, prepare, http.receive)
        run = Run(generation, service.name, body.max_tokens)
        if body.stream:
            return EventStream(generation, run.stream(), event(PING, PING["type"]))
        async with generation:
            return JSONResponse(await run.whole())

    @routes.post("/v1/messages/count_tokens")
    async def count_tokens(body: PromptBody) -> dict[str, Any]:
        service.check_model(body.model)
        request = await asyncio.to_thread(chat_request, body, Decoding())
        return {"input_tokens": len(await asyncio.to_thread(service.prompter.prompt, request))}

    return routes


class Run:
    """A generation in the words of Messages."""

    def __init__(self, generation: Generation, model: str, max_tokens: int) -> None:
        self._generation = generation
        self._max_tokens = max_tokens
        self._writer = MessageWriter(model, generation.usage.prompt_tokens)

    async def whole(self) -> dict[str, Any]:
        async for _ in self._events():
            pass
        return self._writer.message

    async def stream(self) -> AsyncIterator[bytes]:
        async for each in self._events():
            yield event(each, each["type"])

    async def _events(self) -> AsyncIterator[Event]:
        async for each in written(self._writer, self._generation):
            yield each
        used = self._generation.usage
        total = usage(used.prompt_tokens, used.cached_tokens, used.completion_tokens, used.reasoning_tokens)
        for each in self._writer.end(self._stop_reason(), self._generation.answers[0].stop_string, total):
            yield each

    def _stop_reason(self) -> str:
        answer = self._generation.answers[0]
        if answer.finish_reason == "tool_calls":
            return "tool_use"
        if answer.finish_reason == "length":
            cut = self._generation.jobs[0].max_tokens < self._max_tokens
            return "model_context_window_exceeded" if cut else "max_tokens"
        return "end_turn" if answer.stop_string is None else "stop_sequence"
