"""Chat messages to prompt text: by the model file's template, or by the product's own, `templates/hy3.jinja`.

`render` is the product's own; `for_model(m).render` takes the file's where there is one. A file's template is
foreign code and runs in a separate, limited process (`hy3.sandbox`); the own one runs here.
"""

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Protocol

from hy3 import sandbox
from hy3.errors import Hy3Error

Message = Mapping[str, Any]

START_SECONDS = 30.0  # for the process to come up on a busy machine
GRACE_SECONDS = 0.5  # beyond sandbox.SECONDS, for what the process's own timer cannot interrupt
MAX_REPLY = 6 * sandbox.MAX_OUTPUT + 1024  # bytes: JSON writes a character in up to 6 (\uXXXX)


class TemplateError(Hy3Error):
    """A template that cannot be rendered. `reason` is Jinja2's or its own message, `line` where it arose."""

    def __init__(self, name: str, reason: str, line: int | None, hint: str) -> None:
        self.reason, self.line = reason, line
        where = f" at line {line}" if line is not None else ""
        super().__init__(f"{name} failed{where}: {reason}", hint)


class HasTemplate(Protocol):
    """What `for_model` needs of a `hy3core.Model`."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class ChatTemplate:
    """A template's source, whether a model file brought it, and the names that file defines (`bos_token`)."""

    source: str
    from_file: bool
    names: Mapping[str, Any] = field(default_factory=dict)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **kwargs: Any,
    ) -> str:
        args = {
            **self.names,
            "messages": [without_nones(message) for message in messages],
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
            **kwargs,
        }
        if not self.from_file:
            try:
                return sandbox.render(self.source, args)
            except sandbox.RenderError as error:
                raise TemplateError(
                    "The chat template",
                    error.reason,
                    error.line,
                    "Check the messages and options it was given",
                ) from None
        try:
            return _worker().render(self.source, args)
        except sandbox.RenderError as error:
            raise TemplateError(
                "The model file's chat template", error.reason, error.line,
                "`hy3 run --raw` does without it; or convert the model again, with a template that works",
            ) from None  # fmt: skip


def render(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    **kwargs: Any,
) -> str:
    """Renders with the product's own Hy3 template, whatever the model file says."""
    return own().render(messages, tools, add_generation_prompt, **kwargs)


@cache
def own() -> ChatTemplate:
    source = resources.files("hy3").joinpath("templates/hy3.jinja").read_text(encoding="utf-8")
    return ChatTemplate(source, from_file=False)


def for_model(model: HasTemplate) -> ChatTemplate:
    """The template in the model's file (`tokenizer.chat_template`), or the product's own if it has none."""
    source = model.metadata.get("tokenizer.chat_template")
    if not source or source == own().source:
        return own()
    if not isinstance(source, str):
        raise Hy3Error(
            "The model file's key tokenizer.chat_template is not a string",
            "Convert the model again, or use --raw",
        )
    return ChatTemplate(source, from_file=True, names=token_names(model.metadata))


def token_names(metadata: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and the like, which `transformers` gives a template as text."""
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    names = {}
    for name, key in (
        ("bos_token", "bos"),
        ("eos_token", "eos"),
        ("pad_token", "padding"),
        ("unk_token", "unknown"),
    ):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(index, int) and 0 <= index < len(tokens):
            names[name] = str(tokens[index])
    return names


def without_nones(message: Message) -> dict[str, Any]:
    """As `transformers` does: many templates would print `None`, and all of them handle a missing key."""
    return {key: value for key, value in message.items() if value is not None}


class Worker:
    """The process that renders foreign templates, one at a time; killed when late, started when needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, source: str, args: Mapping[str, Any]) -> str:
        try:
            request = json.dumps({"source": source, "args": args}).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise sandbox.RenderError(f"its arguments are not JSON: {error}") from None
        with self._lock:
            try:
                reply = self._ask(request)
            except BaseException:  # Ctrl-C as well: a half-read reply must not be taken for the next one's
                self.close()
                raise
        if "error" in reply:
            raise sandbox.RenderError(reply["error"], reply["line"])
        text = reply["text"]
        assert isinstance(text, str)
        return text

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, request: bytes) -> dict[str, Any]:
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            # A session of its own, so that Ctrl-C at the terminal does not reach it.
            process = self._process = subprocess.Popen(
                [sys.executable, "-I", sandbox.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                self._read_line(process, START_SECONDS)
            except sandbox.RenderError:
                raise sandbox.RenderError("the process that renders it does not start") from None
        assert process.stdin is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
        except BrokenPipeError:
            raise sandbox.RenderError("its arguments need too much memory") from None
        return self._read_line(process, sandbox.SECONDS + GRACE_SECONDS)

    def _read_line(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        deadline = time.monotonic() + seconds
        data = bytearray()
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise sandbox.RenderError(f"it took longer than {sandbox.SECONDS:g} seconds")
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                raise sandbox.RenderError("it needs too much memory")  # the process died of its limit
            data += chunk
            if len(data) > MAX_REPLY:
                raise sandbox.RenderError(f"its text is longer than {sandbox.MAX_OUTPUT} characters")
        answer = json.loads(data)
        assert isinstance(answer, dict)
        return answer


@cache
def _worker() -> Worker:
    worker = Worker()
    atexit.register(worker.close)
    return worker
