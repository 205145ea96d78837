"""POST /v1/completions: text that goes on from a prompt, without a chat template."""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from hy3.serve.answer import Part, TextDelta, TokenScore
from hy3.serve.chat import usage_of
from hy3.serve.completions_body import CompletionsBody, decoding_of, jobs_of
from hy3.serve.generate import Generation, Scores
from hy3.serve.service import Service
from hy3.serve.sse import EventStream, event

if TYPE_CHECKING:
    from hy3core import Tokenizer


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/completions")
    async def completions(body: CompletionsBody, http: Request) -> Response:
        service.check_model(body.model)
        decoding = decoding_of(body, service)
        prepare = lambda: jobs_of(body, decoding, service)  # noqa: E731
        answers = decoding.n * len(body.prompts)
        generation = await Generation.start(service, answers, prepare, http.receive)
        completion = TextCompletion(service, generation, body)
        if body.stream:
            return EventStream(generation, completion.chunks())
        async with generation:
            return JSONResponse(await completion.whole())

    return routes


class TextCompletion:
    """A generation in the words of completions."""

    def __init__(self, service: Service, generation: Generation, body: CompletionsBody) -> None:
        self._generation = generation
        self._body = body
        self._writers = [
            ChoiceWriter(service.model.tokenizer, body.logprobs is not None) for _ in generation.answers
        ]
        self._head = {
            "id": "cmpl-" + secrets.token_hex(12),
            "object": "text_completion",
            "created": int(time.time()),
            "model": service.name,
        }

    async def whole(self) -> dict[str, Any]:
        parts: list[list[Part]] = [[] for _ in self._writers]
        async for index, more in self._generation:
            parts[index] += more
        for index, writer in enumerate(self._writers):
            self._echo(index)
            writer.write(parts[index])
        choices = [self._choice(index) for index in range(len(self._writers))]
        return {**self._head, "choices": choices, "usage": usage_of(self._generation.usage)}

    async def chunks(self) -> AsyncIterator[bytes]:
        for index, writer in enumerate(self._writers):
            self._echo(index)
            if writer.text:
                yield self._chunk(self._choice(index))
        async for index, parts in self._generation:
            self._writers[index].write(parts)
            if parts or self._generation.answers[index].finish_reason:
                yield self._chunk(self._choice(index))
        if self._body.wants_usage:
            yield event({**self._head, "choices": [], "usage": usage_of(self._generation.usage)})
        yield event("[DONE]")

    def _echo(self, index: int) -> None:
        if self._body.echo:
            job = self._generation.jobs[index // self._generation.jobs[0].decoding.n]
            self._writers[index].echo(job.ids, self._generation.prompt_scores.get(index, ()))

    def _choice(self, index: int) -> dict[str, Any]:
        """What has come of it since the last time."""
        reason = self._generation.answers[index].finish_reason
        return {"index": index, **self._writers[index].take(), "finish_reason": reason or None}

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        chunk = {**self._head, "choices": [choice]}
        return event({**chunk, "usage": None} if self._body.wants_usage else chunk)


class ChoiceWriter:
    """The text of an answer and its logprobs, taken in pieces or in one. Offsets count all its characters."""

    def __init__(self, tokenizer: "Tokenizer", scored: bool) -> None:
        self.text = ""
        self._tokenizer = tokenizer
        self._decoder = tokenizer.stream_decoder(special=True)
        self._scored = scored
        self._scores: dict[str, list[Any]] = no_scores()
        self._offset = 0

    def echo(self, prompt: Sequence[int], scores: Sequence[Scores | None]) -> None:
        """The prompt; its logprobs too, where there are any. The first token has none."""
        self.text += self._tokenizer.decode(prompt, special=True)
        for token, score in zip(prompt, scores or [None] * len(prompt), strict=True):
            self._add(token, *(score or (None, None)))

    def write(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if isinstance(part, TextDelta):
                self.text += part.text
            elif isinstance(part, TokenScore):
                self._add(part.token, part.logprob, part.top)

    def take(self) -> dict[str, Any]:
        taken = {"text": self.text, "logprobs": self._scores if self._scored else None}
        self.text, self._scores = "", no_scores()
        return taken

    def _add(self, token: int, logprob: float | None, top: Sequence[tuple[int, float]] | None) -> None:
        self._scores["tokens"].append(self._spelled(token))
        self._scores["token_logprobs"].append(logprob)
        self._scores["top_logprobs"].append(
            None if top is None else {self._spelled(each): score for each, score in [*top, (token, logprob)]}
        )
        self._scores["text_offset"].append(self._offset)
        self._offset += len(self._decoder.push(token))

    def _spelled(self, token: int) -> str:
        """As OpenAI writes a token that is no text."""
        piece = self._tokenizer.piece(token)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def no_scores() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
