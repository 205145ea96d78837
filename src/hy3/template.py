"""Chat messages to prompt text: by the model file's template, or by the product's own, `templates/hy3.jinja`.

`render` is the product's own; `for_model(m).render` takes the file's where there is one. A file's template is
foreign code and runs in a separate, limited process (`hy3.sandbox`); the own one runs here.
"""

import atexit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Protocol

from hy3 import sandbox
from hy3.errors import Hy3Error
from hy3.worker import Worker, WorkerError

Message = Mapping[str, Any]

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
            return _render_apart(self.source, args)
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


def _render_apart(source: str, args: Mapping[str, Any]) -> str:
    try:
        reply = _worker().ask({"source": source, "args": args})
    except WorkerError as error:
        raise sandbox.RenderError(error.reason) from None
    if "error" in reply:
        raise sandbox.RenderError(reply["error"], reply["line"])
    text = reply["text"]
    assert isinstance(text, str)
    return text


@cache
def _worker() -> Worker:
    worker = Worker(sandbox.__file__, sandbox.SECONDS + GRACE_SECONDS, MAX_REPLY, "it needs too much memory")
    atexit.register(worker.close)
    return worker
