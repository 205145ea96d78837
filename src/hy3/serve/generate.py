"""One request at work: its generations in the engine, and their answers as they come."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from starlette.types import Receive

from hy3.serve.answer import Answer, Part
from hy3.serve.engine import Inbox
from hy3.serve.errors import ApiError, bad_request
from hy3.serve.metrics import Clock
from hy3.serve.prompt import Job
from hy3.serve.service import Service
from hy3core import Event

Scores = tuple[float, Sequence[tuple[int, float]]]  # of a token, and of the likeliest in its place


@dataclass
class Usage:
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0


class Generation:
    """`start` it, iterate over it, `close` it. Choice i of n is drawn with Sampling.choice = i; those of
    several jobs are counted on."""

    def __init__(
        self, service: Service, inbox: Inbox, jobs: Sequence[Job], begun: float, watch: "asyncio.Task[None]"
    ) -> None:
        self.jobs = jobs
        self.usage = Usage(prompt_tokens=sum(len(job.ids) for job in jobs))
        self.answers = [
            Answer(service.model.tokenizer, job.style) for job in jobs for _ in range(job.decoding.n)
        ]
        self.prompt_scores: dict[int, Sequence[Scores | None]] = {}  # by choice, if asked for, in the end
        self._clocks = [Clock(begun) for _ in self.answers]
        self._service = service
        self._inbox = inbox
        self._watch = watch

    @classmethod
    async def start(
        cls, service: Service, answers: int, prepare: Callable[[], Sequence[Job]], receive: Receive
    ) -> "Generation":
        """`prepare` runs in a thread. What is wrong with the request is raised here, before any answer."""
        begun = time.monotonic()
        inbox = service.engine.open(answers)
        watch = asyncio.create_task(hang_up(receive, inbox))
        try:
            jobs = await asyncio.to_thread(prepare)
            generation = cls(service, inbox, jobs, begun, watch)
            generation._submit()
        except BaseException:
            watch.cancel()
            inbox.close()
            raise
        return generation

    def _submit(self) -> None:
        for number, job in enumerate(self.jobs):
            seed = self._service.settings.seed if job.decoding.seed is None else job.decoding.seed
            if seed is None:
                seed = secrets.randbits(64)
            for choice in range(job.decoding.n):
                self._submit_one(number * job.decoding.n + choice, job, seed, choice)

    def _submit_one(self, key: int, job: Job, seed: int, choice: int) -> None:
        import hy3core

        decoding, settings = job.decoding, self._service.settings
        sampling = {**settings.sampling, **decoding.sampling}
        try:
            self._inbox.submit(
                key,
                job.ids,
                max_tokens=job.max_tokens,
                sampling=hy3core.Sampling(**sampling, seed=seed, choice=choice),  # type: ignore[arg-type]
                stop_ids=() if job.style.ends else None,
                logit_bias=dict(decoding.logit_bias) or None,
                presence_penalty=decoding.presence_penalty,
                frequency_penalty=decoding.frequency_penalty,
                top_logprobs=decoding.top_logprobs,
                prompt_logprobs=decoding.prompt_logprobs,
                mask=job.new_mask and job.new_mask(),
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
        if choice % self.jobs[0].decoding.n == 0:  # the others share the prompt that it has read
            self.usage.cached_tokens += usage.get("cached_tokens", 0)
        if scores := usage.get("prompt_logprobs"):
            self.prompt_scores[choice] = scores
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


class Writer(Protocol):
    """An answer in the words of an API, as events."""

    def begin(self) -> Iterable[dict[str, Any]]: ...
    def write(self, part: Part) -> Iterable[dict[str, Any]]: ...


async def written(writer: Writer, generation: Generation) -> AsyncIterator[dict[str, Any]]:
    """All events but those of the end; for a generation of one answer."""
    for each in writer.begin():
        yield each
    async for _, parts in generation:
        for part in parts:
            for each in writer.write(part):
                yield each


async def hang_up(receive: Receive, inbox: Inbox) -> None:
    """Waits for the client to go away. The body has been read, so nothing else can come."""
    while (await receive())["type"] != "http.disconnect":
        pass
    inbox.client_gone()
