"""One request at work: its generations in the engine, and their answers as they come."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from starlette.types import Receive

from hy3.serve.answer import Answer, Part
from hy3.serve.engine import Event, Inbox
from hy3.serve.errors import ApiError, bad_request
from hy3.serve.metrics import Clock
from hy3.serve.prompt import Job
from hy3.serve.service import Service


@dataclass
class Usage:
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0


class Generation:
    """`start` it, iterate over it, `close` it. Choice i of n is drawn with Sampling.choice = i."""

    def __init__(
        self, service: Service, inbox: Inbox, job: Job, begun: float, watch: "asyncio.Task[None]"
    ) -> None:
        self.job = job
        self.usage = Usage(prompt_tokens=len(job.ids))
        self.answers = [Answer(service.model.tokenizer, job.style) for _ in range(job.decoding.n)]
        self._clocks = [Clock(begun) for _ in self.answers]
        self._service = service
        self._inbox = inbox
        self._watch = watch

    @classmethod
    async def start(
        cls, service: Service, n: int, prepare: Callable[[], Job], receive: Receive
    ) -> "Generation":
        """`prepare` runs in a thread. What is wrong with the request is raised here, before any answer."""
        begun = time.monotonic()
        inbox = service.engine.open(n)
        watch = asyncio.create_task(hang_up(receive, inbox))
        try:
            job = await asyncio.to_thread(prepare)
            generation = cls(service, inbox, job, begun, watch)
            generation._submit()
        except BaseException:
            watch.cancel()
            inbox.close()
            raise
        return generation

    def _submit(self) -> None:
        import hy3core

        decoding, settings = self.job.decoding, self._service.settings
        seed = settings.seed if decoding.seed is None else decoding.seed
        if seed is None:
            seed = secrets.randbits(64)
        for choice in range(decoding.n):
            sampling = {**settings.sampling, **decoding.sampling}
            try:
                self._inbox.submit(
                    choice,
                    self.job.ids,
                    max_tokens=self.job.max_tokens,
                    sampling=hy3core.Sampling(**sampling, seed=seed, choice=choice),  # type: ignore[arg-type]
                    logit_bias=dict(decoding.logit_bias) or None,
                    presence_penalty=decoding.presence_penalty,
                    frequency_penalty=decoding.frequency_penalty,
                    top_logprobs=decoding.top_logprobs,
                    mask=self.job.new_mask and self.job.new_mask(),
                    mtp=settings.mtp,
                )
            except (hy3core.InvalidArgumentError, hy3core.ContextFullError) as error:
                raise bad_request(str(error)) from None

    async def __aiter__(self) -> AsyncIterator[tuple[int, list[Part]]]:
        """(choice, parts) as they come; the parts may be empty. ClientGone if nobody waits any more."""
        running = len(self.answers)
        while running:
            batches: dict[int, list[Part]] = {}
            for choice, event in await self._inbox.get():
                batches.setdefault(choice, []).extend(self._read(choice, event))
                running -= event.finish is not None
            for choice, parts in batches.items():
                yield choice, parts

    def _read(self, choice: int, event: Event) -> list[Part]:
        answer = self.answers[choice]
        if event.token is not None:
            self._clocks[choice].token()
        ended = answer.ended
        parts = answer.push(event)
        if answer.ended and not ended and event.finish is None:
            self._inbox.cancel(choice)
        if event.finish is None:
            return parts
        if event.finish == "error":
            raise ApiError(500, event.error or "The engine failed.")
        self._count(choice, event.usage or {})
        return parts + answer.finish(event.finish)

    def _count(self, choice: int, usage: Any) -> None:
        if choice == 0:  # the others share the prompt that it has read
            self.usage.cached_tokens = usage.get("cached_tokens", 0)
        self._service.metrics.generated(self._clocks[choice])
        self.usage.completion_tokens += self.answers[choice].tokens
        self.usage.reasoning_tokens += self.answers[choice].reasoning_tokens

    async def close(self) -> None:
        self._inbox.close()
        self._watch.cancel()
        with suppress(asyncio.CancelledError):
            await self._watch

    async def __aenter__(self) -> "Generation":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def hang_up(receive: Receive, inbox: Inbox) -> None:
    """Waits for the client to go away. The body has been read, so nothing else can come."""
    while (await receive())["type"] != "http.disconnect":
        pass
    inbox.client_gone()
