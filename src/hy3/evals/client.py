"""Whom the questions go to: a model in this process, or a server that speaks OpenAI's protocol."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hy3.chat.generate import Generator
from hy3.chat.reply import opens_thinking
from hy3.chat.tool_calls import Arguments, CallStart, Event, Text, ToolCallParser
from hy3.errors import Hy3Error
from hy3.template import for_model

if TYPE_CHECKING:
    from hy3core import Model, Session

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    text: str
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    finish: str = ""  # "stop", "length", ...
    tokens: int = 0


@dataclass(frozen=True)
class Request:
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    effort: str = "no_think"  # the chat template's reasoning_effort
    max_tokens: int = 1024
    temperature: float = 0.0
    seed: int = 0


class Client(Protocol):
    name: str  # of the model, for the results

    def ask(self, request: Request) -> Answer: ...

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...


def collect(events: Iterable[Event]) -> tuple[str, list[Call]]:
    """The text and the calls in a parsed answer."""
    text, names, arguments = "", [], []
    for event in events:
        if isinstance(event, Text):
            text += event.text
        elif isinstance(event, CallStart):
            names.append(event.name)
            arguments.append("")
        elif isinstance(event, Arguments):
            arguments[event.index] += event.fragment
    return text, [Call(name, json.loads(given)) for name, given in zip(names, arguments, strict=True)]


def schemas(tools: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The parameters' schema of each tool."""
    return {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools}


class LocalClient:
    def __init__(self, model: "Model", session: "Session", ctx: int) -> None:
        import hy3core

        self.name = str(model.metadata.get("general.name") or model.path)
        self._sampling = hy3core.Sampling
        self._model, self._session, self._ctx = model, session, ctx
        self._template = for_model(model)

    def count(self, text: str) -> int:
        return len(self._model.tokenizer.encode(text, special=False))

    def ask(self, request: Request) -> Answer:
        tokenizer = self._model.tokenizer
        prompt = self._template.render(
            list(request.messages),
            tools=list(request.tools) or None,
            add_generation_prompt=True,
            reasoning_effort=request.effort,
        )
        generator = Generator(
            session=self._session,
            tokenizer=tokenizer,
            sampling=self._sampling(temperature=request.temperature, seed=request.seed),
            ctx=self._ctx,
            model_ctx=self._model.config.ctx,
            max_tokens=request.max_tokens,
        )
        reply = generator.new_reply(opens_thinking(prompt, tokenizer))
        for _ in generator.stream(tokenizer.encode(prompt), reply):
            pass
        text = reply.content
        calls: list[Call] = []
        if request.tools:
            parser = ToolCallParser(schemas(request.tools))
            text, calls = collect(parser.push(reply.content) + parser.finish())
        finish = "stop" if reply.end in ("token", "stop") else reply.end
        return Answer(text, reply.reasoning, calls, finish, len(reply.ids))


class RemoteClient:
    """`url`: up to and including `/v1`."""

    def __init__(self, url: str, key: str | None = None, timeout: float = 600.0) -> None:
        self._url, self._key, self._timeout = url.rstrip("/"), key, timeout
        models = self._get("/models")
        try:
            self.name = str(models["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise Hy3Error(
                f"{url}/models lists no model", "Give the address of an OpenAI-compatible server"
            ) from None

    def count(self, text: str) -> int:
        base = self._url.removesuffix("/v1")
        return len(self._send(base + "/tokenize", {"content": text, "prompt": text})["tokens"])

    def ask(self, request: Request) -> Answer:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": list(request.messages),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "reasoning_effort": {"no_think": "none"}.get(request.effort, request.effort),
        }
        if request.tools:
            body["tools"] = list(request.tools)
        reply = self._send(self._url + "/chat/completions", body)
        choice = reply["choices"][0]
        message = choice["message"]
        calls = []
        for call in message.get("tool_calls") or []:
            try:
                arguments = json.loads(call["function"]["arguments"] or "{}")
            except ValueError:
                arguments = None
            if isinstance(arguments, dict):
                calls.append(Call(call["function"]["name"], arguments))
        return Answer(
            message.get("content") or "",
            message.get("reasoning_content") or "",
            calls,
            choice.get("finish_reason") or "",
            (reply.get("usage") or {}).get("completion_tokens", 0),
        )

    def _get(self, path: str) -> Any:
        return self._open(urllib.request.Request(self._url + path))

    def _send(self, url: str, body: Mapping[str, Any]) -> Any:
        data = json.dumps(body).encode()
        return self._open(urllib.request.Request(url, data, {"Content-Type": "application/json"}))

    def _open(self, request: urllib.request.Request) -> Any:
        if self._key:
            request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            said = error.read(2000).decode("utf-8", "replace")
            raise Hy3Error(f"{request.full_url} answered {error.code}: {said}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Hy3Error(f"{request.full_url}: {reason}", "Is the server running? Check --url") from None
