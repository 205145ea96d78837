"""POST /tokenize and /detokenize. The fields are those of llama.cpp and of vLLM, which have two names for the
text: `content` and `prompt`."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter
from pydantic import AliasChoices, Field

from hy3.serve.bodies import LARGE, Body
from hy3.serve.chat_body import ChatBody, Message, Tool, chat_request
from hy3.serve.errors import bad_request
from hy3.serve.service import Service
from hy3.template import for_model, token_names

if TYPE_CHECKING:
    from hy3core import Tokenizer

OF_A_CHAT = ("messages", "tools", "reasoning_effort", "chat_template_kwargs")


class TokenizeBody(Body):
    """A text, or messages as in chat completions."""

    model: str | None = None
    content: str | None = None
    prompt: str | None = None
    add_special: bool | None = Field(
        True,
        validation_alias=AliasChoices("add_special", "add_special_tokens"),
        description="Begin with what the model's texts begin with",
    )
    with_pieces: bool | None = False
    messages: list[Message] | None = Field(None, min_length=1)
    tools: list[Tool] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = True


class DetokenizeBody(Body):
    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0, le=LARGE)]]


def router(service: Service) -> APIRouter:
    routes = APIRouter()
    tokenizer = service.model.tokenizer

    @routes.post("/tokenize")
    async def tokenize(body: TokenizeBody) -> dict[str, Any]:
        service.check_model(body.model)
        ids = await asyncio.to_thread(ids_of, body, service)
        tokens = [piece_of(token, tokenizer) for token in ids] if body.with_pieces else ids
        return {"tokens": tokens, "count": len(ids), "max_model_len": service.settings.ctx}

    @routes.post("/detokenize")
    async def detokenize(body: DetokenizeBody) -> dict[str, Any]:
        service.check_model(body.model)
        if max(body.tokens, default=0) >= tokenizer.vocab_size:
            raise bad_request(
                f"{max(body.tokens)} is no token id from 0 to {tokenizer.vocab_size - 1}.", "tokens"
            )
        text = tokenizer.decode(body.tokens, special=True)
        return {"content": text, "prompt": text}

    @routes.get("/tokenizer_info")
    async def tokenizer_info() -> dict[str, Any]:
        """As vLLM has it; lm-evaluation-harness asks for it."""
        template = for_model(service.model).source
        return {**token_names(service.model.metadata), "chat_template": template}

    return routes


def ids_of(body: TokenizeBody, service: Service) -> list[int]:
    text = body.prompt if body.content is None else body.content
    if (text is None) == (body.messages is None):
        raise bad_request("Give either a text or messages.", "content" if text is None else "messages")
    if text is not None:
        return service.prompter.tokenize(text, special=body.add_special is not False)
    request = ChatBody.model_validate({name: getattr(body, name) for name in OF_A_CHAT})
    asked = replace(chat_request(request, service), prefill=body.add_generation_prompt is False)
    return service.prompter.prompt(asked)


def piece_of(token: int, tokenizer: "Tokenizer") -> dict[str, Any]:
    """Its text, or its bytes where they are none by themselves."""
    piece = tokenizer.piece(token)
    try:
        return {"id": token, "piece": piece.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(piece)}
