"""A request to the server and what came of it, streamed or not: the text, why it ended, when it came."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

PATIENCE_S = 300.0


@dataclass(frozen=True)
class Request:
    path: str  # "/v1/chat/completions" or "/v1/completions"
    body: dict[str, Any]

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))


@dataclass(frozen=True)
class Said:
    """What must not depend on company, chunks or the way it was sent."""

    texts: tuple[str, ...]  # by choice: thinking, then answer, then calls
    finishes: tuple[str | None, ...]
    prompt_tokens: int
    tokens: int


@dataclass(frozen=True)
class Answer:
    said: Said
    seconds: float
    chunk_s: tuple[float, ...] = ()  # of each piece of a stream with text in it, since the request was sent


@dataclass
class Choice:
    """Of an answer that may still be growing."""

    thinking: str = ""
    text: str = ""
    calls: dict[int, str] = field(default_factory=dict)
    finish: str | None = None

    def add(self, piece: dict[str, Any]) -> bool:
        """True when there was something to read in it."""
        before = len(self.whole)
        message = piece.get("delta") or piece.get("message") or {"content": piece.get("text")}
        self.thinking += message.get("reasoning_content") or ""
        self.text += message.get("content") or ""
        for number, call in enumerate(message.get("tool_calls") or []):
            function = call["function"]
            at = call.get("index", number)
            self.calls[at] = (
                self.calls.get(at, "") + (function.get("name") or "") + (function.get("arguments") or "")
            )
        self.finish = piece.get("finish_reason") or self.finish
        return len(self.whole) > before

    @property
    def whole(self) -> str:
        return "\0".join([self.thinking, self.text, *(self.calls[at] for at in sorted(self.calls))])


class Gathered:
    """The choices and the usage of an answer, from all its pieces."""

    def __init__(self) -> None:
        self.choices: dict[int, Choice] = {}
        self.usage: dict[str, Any] = {}

    def add(self, piece: dict[str, Any]) -> bool:
        if "error" in piece:
            raise RuntimeError(f"the server said: {piece['error']}")
        self.usage = piece.get("usage") or self.usage
        said_something = False
        for one in piece.get("choices", []):
            said_something |= self.choices.setdefault(one["index"], Choice()).add(one)
        return said_something

    def said(self) -> Said:
        ordered = [self.choices[at] for at in sorted(self.choices)]
        return Said(
            tuple(choice.whole for choice in ordered),
            tuple(choice.finish for choice in ordered),
            self.usage["prompt_tokens"],
            self.usage["completion_tokens"],
        )


async def events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The JSON of a stream's events. RuntimeError when it ends without [DONE]."""
    async for line in response.aiter_lines():
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            yield json.loads(line[len("data: ") :])
    raise RuntimeError("the stream ended without [DONE]")


async def ask(client: httpx.AsyncClient, request: Request) -> Answer:
    """RuntimeError for anything but a complete answer."""
    gathered, chunk_s = Gathered(), []
    began = time.perf_counter()
    async with client.stream("POST", request.path, json=request.body) as response:
        if response.status_code != 200:
            text = (await response.aread()).decode(errors="replace")
            raise RuntimeError(f"{request.path} answered {response.status_code}: {text[:500]}")
        if request.streamed:
            async for piece in events(response):
                if gathered.add(piece):
                    chunk_s.append(time.perf_counter() - began)
        else:
            gathered.add(json.loads(await response.aread()))
    return Answer(gathered.said(), time.perf_counter() - began, tuple(chunk_s))


def new_client(url: str, connections: int, key: str | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=url,
        timeout=PATIENCE_S,
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        headers={"Authorization": f"Bearer {key}"} if key else {},
        trust_env=False,  # a proxy from the environment would stand between
    )
