"""POST /v1/chat/completions."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from hy3.serve.answer import CallArguments, CallStart, Part, ReasoningDelta, TextDelta, TokenScore
from hy3.serve.chat_body import ChatBody, chat_request
from hy3.serve.generate import Generation, Usage
from hy3.serve.service import Service
from hy3.serve.sse import EventStream, event

if TYPE_CHECKING:
    from hy3core import Tokenizer


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/chat/completions")
    async def chat_completions(body: ChatBody, http: Request) -> Response:
        service.check_model(body.model)
        # In a thread: a body may have many thousand messages.
        request = await asyncio.to_thread(chat_request, body, service)
        prepare = lambda: [service.prompter.chat(request)]  # noqa: E731
        generation = await Generation.start(service, request.decoding.n, prepare, http.receive)
        completion = Completion(service, generation, body.wants_usage)
        if body.stream:
            return EventStream(generation, completion.chunks())
        async with generation:
            return JSONResponse(await completion.whole())

    return routes


class Completion:
    """A generation in the words of chat/completions."""

    def __init__(self, service: Service, generation: Generation, wants_usage: bool) -> None:
        self._tokenizer = service.model.tokenizer
        self._generation = generation
        self._wants_usage = wants_usage
        self._scored = generation.jobs[0].decoding.top_logprobs is not None
        self._head = {
            "id": "chatcmpl-" + secrets.token_hex(12),
            "created": int(time.time()),
            "model": service.name,
        }

    async def whole(self) -> dict[str, Any]:
        parts: list[list[Part]] = [[] for _ in self._generation.answers]
        async for choice, more in self._generation:
            parts[choice] += more
        choices = [
            {
                "index": index,
                "message": message_of(collected),
                "logprobs": self._logprobs(collected),
                "finish_reason": answer.finish_reason,
            }
            for index, (answer, collected) in enumerate(zip(self._generation.answers, parts, strict=True))
        ]
        usage = usage_of(self._generation.usage)
        return {"object": "chat.completion", **self._head, "choices": choices, "usage": usage}

    async def chunks(self) -> AsyncIterator[bytes]:
        for index in range(len(self._generation.answers)):
            yield self._chunk(index, {"role": "assistant", "content": ""})
        async for index, parts in self._generation:
            answer = self._generation.answers[index]
            if parts:
                yield self._chunk(index, delta_of(parts), self._logprobs(parts))
            if answer.finish_reason:
                yield self._chunk(index, {}, finish_reason=answer.finish_reason)
        if self._wants_usage:
            yield self._event([], usage_of(self._generation.usage))
        yield event("[DONE]")

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return self._event([choice], None)

    def _event(self, choices: Sequence[dict[str, Any]], usage: dict[str, Any] | None) -> bytes:
        chunk = {"object": "chat.completion.chunk", **self._head, "choices": choices}
        if self._wants_usage:
            chunk["usage"] = usage
        return event(chunk)

    def _logprobs(self, parts: Sequence[Part]) -> dict[str, Any] | None:
        if not self._scored:
            return None
        scores = [part for part in parts if isinstance(part, TokenScore)]
        return {"content": [score_of(score, self._tokenizer) for score in scores], "refusal": None}


def message_of(parts: Sequence[Part]) -> dict[str, Any]:
    message = delta_of(parts)
    for call in message.get("tool_calls", ()):
        del call["index"]  # belongs to deltas only
    return {
        "role": "assistant",
        "content": None if "tool_calls" in message else "",
        "refusal": None,
        **message,
    }


def delta_of(parts: Sequence[Part]) -> dict[str, Any]:
    """The parts put together, as few fields as they take."""
    delta: dict[str, Any] = {}
    calls: dict[int, dict[str, Any]] = {}
    for part in parts:
        if isinstance(part, ReasoningDelta):
            delta["reasoning_content"] = delta.get("reasoning_content", "") + part.text
        elif isinstance(part, TextDelta):
            delta["content"] = delta.get("content", "") + part.text
        elif isinstance(part, CallStart):
            function = {"name": part.name, "arguments": ""}
            calls[part.index] = {"index": part.index, "id": part.id, "type": "function", "function": function}
        elif isinstance(part, CallArguments):
            call = calls.setdefault(part.index, {"index": part.index, "function": {"arguments": ""}})
            call["function"]["arguments"] += part.fragment
    if calls:
        delta["tool_calls"] = list(calls.values())
    return delta


def score_of(score: TokenScore, tokenizer: "Tokenizer") -> dict[str, Any]:
    top = [token_of(token, logprob, tokenizer) for token, logprob in score.top]
    return {**token_of(score.token, score.logprob, tokenizer), "top_logprobs": top}


def token_of(token: int, logprob: float, tokenizer: "Tokenizer") -> dict[str, Any]:
    piece = tokenizer.piece(token)
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece)}


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
