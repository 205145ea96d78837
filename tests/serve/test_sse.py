"""Streams of events to clients that do not read them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hy3.serve import sse
from hy3.serve.errors import ApiError


class Generation:
    closed = False

    async def close(self) -> None:
        self.closed = True


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"data: x\n\n"


async def broken() -> AsyncIterator[bytes]:
    yield b"data: x\n\n"
    raise ApiError(500, "It broke.")


def send_to_client_that_takes(n: int, events: AsyncIterator[bytes]) -> bool:
    """Whether the generation was closed, once the stream has ended."""
    generation: Any = Generation()
    taken: list[Any] = []

    async def send(message: Any) -> None:
        if len(taken) == n:
            await asyncio.Event().wait()
        taken.append(message)

    async def run() -> None:
        stream = sse.EventStream(generation, events)
        await asyncio.wait_for(stream({"type": "http", "path": "/v1/messages"}, send, send), 10)

    asyncio.run(run())
    return bool(generation.closed)


@pytest.mark.parametrize("taken", [1, 2, 50])
def test_a_client_that_takes_nothing_is_given_up(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "STALLED_SECONDS", 0.05)
    assert send_to_client_that_takes(taken, endless())


@pytest.mark.parametrize("taken", [2, 3])
def test_not_even_the_error_or_the_end(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "STALLED_SECONDS", 0.05)
    assert send_to_client_that_takes(taken, broken())
