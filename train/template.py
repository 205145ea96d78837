"""The chat template for the training: the product's own file, rendered as `transformers` renders it."""

import json
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

PATH = Path(__file__).parents[1] / "src/hy3/templates/hy3.jinja"

BOS, EOS = "<｜hy_begin_of_sentence:opensource｜>", "<｜hy_eos:opensource｜>"
PAD, END_OF_TURN = "<｜hy_pad:opensource｜>", "<｜hy_end_of_turn:opensource｜>"
END_OF_SENTENCE, END_OF_DOCUMENT = (
    "<｜hy_end_of_sentence:opensource｜>",
    "<｜hy_end_of_document:opensource｜>",
)
USER, ASSISTANT = "<｜hy_User:opensource｜>", "<｜hy_Assistant:opensource｜>"
REASONING_MODE = "<｜reasoning_mode:opensource｜>"
THINK, END_THINK = "<think:opensource>", "</think:opensource>"

CONTROL = [BOS, END_OF_SENTENCE, PAD, USER, ASSISTANT, END_OF_TURN, EOS, END_OF_DOCUMENT, REASONING_MODE]
# Text that a parser has to see stays visible when special tokens are skipped: these are not `special`.
TAGS = [THINK, END_THINK] + [
    f"{bracket}{name}:opensource>"
    for name in (
        "tool_calls",
        "tool_call",
        "tool_sep",
        "arg_key",
        "arg_value",
        "tool_responses",
        "tool_response",
    )
    for bracket in ("<", "</")
    if (bracket, name) != ("</", "tool_sep")
]


def tojson(value: object, ensure_ascii: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii)


def raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def load() -> jinja2.Template:
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env.from_string(PATH.read_text(encoding="utf-8"))


TEMPLATE = load()


def render(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, effort: str, **kwargs: Any
) -> str:
    return TEMPLATE.render(messages=messages, tools=tools, reasoning_effort=effort, **kwargs)
