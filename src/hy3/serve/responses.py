"""POST /v1/responses; GET and DELETE of the responses that are kept."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from hy3.serve.chat import score_of
from hy3.serve.errors import ApiError, bad_request
from hy3.serve.generate import Generation, Usage, written
from hy3.serve.responses_body import CARRIED_REASONING, Item, ResponsesBody, chat_request
from hy3.serve.responses_store import Store
from hy3.serve.responses_tools import Toolbox
from hy3.serve.responses_writer import Event, ResponseWriter
from hy3.serve.service import Service
from hy3.serve.sse import EventStream, event

DEFAULT_SAMPLING = {"temperature": 0.0, "top_p": 1.0}  # hy3core's, as far as responses name it


def router(service: Service) -> APIRouter:
    routes = APIRouter()
    store = Store()

    @routes.post("/v1/responses")
    async def create_response(body: ResponsesBody, http: Request) -> Response:
        service.check_model(body.model)
        before, new = earlier_items(body, store), new_items(body, store)
        toolbox = Toolbox(body.tools or ())
        request = await asyncio.to_thread(chat_request, body, toolbox, before, new, service)
        asked_for = outline(body, service)
        prepare = lambda: [service.prompter.chat(request)]  # noqa: E731
        generation = await Generation.start(service, 1, prepare, http.receive)
        writer = ResponseWriter(
            asked_for,
            lambda score: score_of(score, service.model.tokenizer),
            toolbox.told,
            body.includes(CARRIED_REASONING),
        )

        def keep(response: dict[str, Any]) -> None:
            if body.store is not False:
                store.put(response, [*before, *new])

        run = Run(generation, writer, keep)
        if body.stream:
            return EventStream(generation, run.stream())
        async with generation:
            return JSONResponse(await run.whole())

    @routes.get("/v1/responses/{name}")
    async def get_response(name: str) -> Response:
        kept = store.get(name)
        if kept is None:
            raise ApiError(404, f"There is no response {name!r}.")
        return JSONResponse(kept.response)

    @routes.delete("/v1/responses/{name}")
    async def delete_response(name: str) -> dict[str, Any]:
        if not store.delete(name):
            raise ApiError(404, f"There is no response {name!r}.")
        return {"id": name, "object": "response", "deleted": True}

    return routes


class Run:
    """A generation in the words of Responses. `keep` takes the response once it is complete."""

    def __init__(
        self, generation: Generation, writer: ResponseWriter, keep: Callable[[dict[str, Any]], None]
    ) -> None:
        self._generation, self._writer, self._keep = generation, writer, keep

    async def whole(self) -> dict[str, Any]:
        async for _ in self._events():
            pass
        return self._writer.response

    async def stream(self) -> AsyncIterator[bytes]:
        try:
            async for each in self._events():
                yield event(each, each["type"])
        except ApiError as error:
            failed = self._writer.fail(error.message)
            yield event(failed, failed["type"])

    async def _events(self) -> AsyncIterator[Event]:
        async for each in written(self._writer, self._generation):
            yield each
        reason = self._generation.answers[0].finish_reason
        last = self._writer.end(reason, usage_of(self._generation.usage))
        self._keep(self._writer.response)
        for each in last:
            yield each


def earlier_items(body: ResponsesBody, store: Store) -> Sequence[Item]:
    name = body.previous_response_id
    if name is None:
        return []
    kept = store.get(name)
    if kept is None:
        raise bad_request(
            f"There is no response {name!r}: the latest are kept, in memory alone. Send the whole "
            "conversation as input.",
            "previous_response_id",
            "previous_response_not_found",
        )
    return kept.items


def new_items(body: ResponsesBody, store: Store) -> Sequence[Item]:
    if not body.input:
        raise bad_request("There is no input.", "input")
    if isinstance(body.input, str):
        return [Item(role="user", content=body.input)]
    return [store.resolve(item, f"input.{number}") for number, item in enumerate(body.input)]


def outline(body: ResponsesBody, service: Service) -> dict[str, Any]:
    """A response before there is anything of its answer: what it was asked for."""
    given = {name: value for name in DEFAULT_SAMPLING if (value := getattr(body, name)) is not None}
    plain = body.model_dump(
        include={"tools", "tool_choice", "reasoning", "text"}, by_alias=True, exclude_none=True
    )
    described = {
        "id": "resp_" + secrets.token_hex(12),
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": service.name,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": None, "summary": None, **plain.get("reasoning", {})},
        "store": body.store is not False,
        **DEFAULT_SAMPLING,
        **{name: value for name, value in service.settings.sampling.items() if name in DEFAULT_SAMPLING},
        **given,
        "text": {"format": {"type": "text"}, **plain.get("text", {})},
        "tool_choice": plain.get("tool_choice", "auto"),
        "tools": plain.get("tools", []),
        "top_logprobs": body.top_logprobs or 0,
        "truncation": "disabled",
        "usage": None,
    }
    try:
        json.dumps(described, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # Python reads more than JSON allows: NaN, 1e999
        raise bad_request(f"The body has what no answer could repeat: {error}.") from None
    return described


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
