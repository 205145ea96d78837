"""Fields that the bodies of several of OpenAI's endpoints share. What is not listed is ignored, as clients
send much that only their own service knows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hy3.chat.tool_calls import FUNCTION
from hy3.serve.errors import ApiError, bad_request
from hy3.serve.prompt import EFFORTS, Decoding, ToolChoice, name_of
from hy3.serve.service import Service

MOST_STOPS = 16
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
LARGE = (1 << 31) - 1
FUNCTION_NAME = f"^(?:{FUNCTION.pattern})$"  # as it can be called


class Body(BaseModel):
    """Numbers are numbers, not strings, and finite."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class ContentPart(Body):
    type: str
    text: str | None = None
    refusal: str | None = None


class StreamOptions(Body):
    include_usage: bool = False


class SamplingBody(Body):
    model: str | None = None
    stream: bool | None = False
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 64)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=LARGE, description="0 and -1: all tokens")
    min_p: float | None = Field(None, ge=0, le=1)
    repeat_penalty: float | None = Field(None, ge=0.01, le=100)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, float] | None = None

    def decoding(
        self,
        service: Service,
        max_tokens: int | None,
        top_logprobs: int | None,
        stop: Sequence[str] = (),
        n: int = 1,
    ) -> Decoding:
        return Decoding(
            max_tokens=max_tokens,
            n=n,
            stop=stop,
            sampling=self._sampling(),
            seed=None if self.seed is None else self.seed % (1 << 64),
            top_logprobs=top_logprobs,
            logit_bias=self._biases(service.model.config.vocab_size),
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
        )

    def _sampling(self) -> dict[str, Any]:
        names = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if given.get("top_k") == -1:
            given["top_k"] = 0
        return given

    def _biases(self, vocab_size: int) -> dict[int, float]:
        biases = {}
        for text, bias in (self.logit_bias or {}).items():
            token = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
            if not 0 <= token < vocab_size:
                raise bad_request(f"{text!r} is no token id from 0 to {vocab_size - 1}.", "logit_bias")
            if not -100 <= bias <= 100:
                raise bad_request(
                    f"The bias of token {token} is {bias:g}, not from -100 to 100.", "logit_bias"
                )
            biases[token] = bias
        return biases


class ChoicesBody(SamplingBody):
    """Of the endpoints that give several answers."""

    stream_options: StreamOptions | None = None
    n: int | None = Field(1, ge=1)
    stop: str | list[str] | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def decoding_of_choices(
        self, service: Service, max_tokens: int | None, top_logprobs: int | None
    ) -> Decoding:
        n = 1 if self.n is None else self.n
        if n > service.most_choices:
            raise bad_request(f"n is {n}, and this server gives at most {service.most_choices} answers.", "n")
        return self.decoding(service, max_tokens, top_logprobs, stops_of(self.stop, "stop"), n)


def stops_of(stop: str | Sequence[str] | None, param: str) -> Sequence[str]:
    stops = [stop] if isinstance(stop, str) else stop or []
    if len(stops) > MOST_STOPS:
        raise bad_request(f"There are {len(stops)} stop strings; at most {MOST_STOPS} are allowed.", param)
    if "" in stops:
        raise bad_request("An empty stop string would stop everything. Leave it out.", param)
    return stops


def text_of(content: str | Sequence[ContentPart], param: str) -> str:
    """Chat/completions and Responses have different names for a part that is text."""
    if isinstance(content, str):
        return content
    texts = []
    for number, part in enumerate(content):
        text = part.refusal if part.type == "refusal" else part.text
        if part.type not in TEXT_PARTS or text is None:
            raise unreadable("part", part.type, text, f"{param}.{number}")
        texts.append(text)
    return "".join(texts)


def unreadable(what: str, kind: str, text: str | None, param: str) -> ApiError:
    without = " without text" if text is None else ""
    return bad_request(f"A {what} of type {kind!r}{without}: this model reads text only.", param)


def effort_of(effort: str | None, param: str) -> str | None:
    """One of EFFORTS, or None for the server's default."""
    if effort is not None and effort not in EFFORTS:
        raise bad_request(f"It is not one of {', '.join(EFFORTS)}.", param)
    return effort


def arguments_of(arguments: str | Mapping[str, Any] | None, param: str) -> Mapping[str, Any]:
    """Of a call, as the object that templates want."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "null")
        except (ValueError, RecursionError) as error:
            raise bad_request(f"It is not JSON: {error}.", param) from None
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise bad_request("It is not a JSON object.", param)
    return arguments


def choose(
    tools: Sequence[Mapping[str, Any]],
    mode: Literal["auto", "none", "required", "named"],
    name: str = "",
    several: bool = True,
) -> ToolChoice:
    if mode in ("auto", "none"):
        return ToolChoice(mode, several=several)
    if not tools:
        raise bad_request("There are no tools to choose from.", "tool_choice")
    if mode == "required":
        return ToolChoice(mode, several=several)
    if name not in map(name_of, tools):
        raise bad_request(f"There is no tool {name!r}.", "tool_choice")
    return ToolChoice(mode, name, several=False)
