"""The normal form of a chat request, to which every API translates, and what it asks of the engine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from hy3.chat.conversation import with_bos
from hy3.chat.reply import opens_thinking, think_tags
from hy3.errors import Hy3Error
from hy3.serve.answer import Style
from hy3.serve.errors import PromptTooLong, bad_request
from hy3.serve.schema import SchemaError
from hy3.serve.steer import Mask, ThinkingMask
from hy3.serve.structured import Constraint, grammars_of
from hy3.template import TemplateError, for_model

if TYPE_CHECKING:
    from hy3core import Model

EFFORTS = {
    "none": "no_think",
    "no_think": "no_think",
    "minimal": "no_think",
    "low": "low",
    "medium": "high",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}


@dataclass(frozen=True)
class Decoding:
    """How tokens are drawn from a prompt; None: the server's default."""

    max_tokens: int | None = None  # None: what the context has room for
    n: int = 1
    stop: Sequence[str] = ()
    sampling: Mapping[str, float] = field(default_factory=dict)  # arguments of hy3core.Sampling
    seed: int | None = None
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


@dataclass(frozen=True)
class ResponseFormat:
    kind: Literal["text", "json_object", "json_schema"] = "text"
    schema: Mapping[str, Any] | bool = True
    strict: bool = False  # an error for what cannot be enforced
    param: str = "response_format.json_schema.schema"  # where the body has the schema, for errors


@dataclass(frozen=True)
class ToolChoice:
    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""  # of a named one
    several: bool = True  # calls in one answer


@dataclass(frozen=True)
class ChatRequest:
    """Messages as the template takes them: content is a string, arguments of calls are objects. Tools in the
    form of chat/completions."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = ToolChoice()
    effort: str | None = None  # one of EFFORTS; None: the server's default
    thinking_budget: int | None = None  # tokens; None: the server's default
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    response_format: ResponseFormat = ResponseFormat()
    decoding: Decoding = Decoding()
    prefill: bool = False  # the answer goes on with the last message, which is the assistant's
    param: str = "messages"  # the field of the body that the messages are from, for errors
    parameters_param: str = "function.parameters"  # likewise of a tool, that has its parameters


@dataclass(frozen=True)
class Job:
    """What the engine is to do."""

    ids: Sequence[int]
    max_tokens: int
    decoding: Decoding
    style: Style
    new_mask: Callable[[], Mask] | None = None  # one for each answer


class Prompter:
    """Turns requests into jobs. The other settings are for requests that say nothing of
    them.

    Rendering and tokenizing take their time: call `chat` in a thread that may wait.
    """

    def __init__(
        self,
        model: "Model",
        ctx: int,
        max_tokens: int | None,
        effort: str,
        thinking_budget: int | None,
    ) -> None:
        self.ctx = ctx
        self._max_tokens = max_tokens
        self._model = model
        self._effort = effort
        self._budget = thinking_budget
        # In the limited process whatever the template is: a client chooses what it loops over.
        self._template = replace(for_model(model), from_file=True)
        self._add_bos = bool(model.metadata.get("tokenizer.ggml.add_bos_token", False))

    def chat(self, request: ChatRequest) -> Job:
        text = self._render(request)
        thinking = opens_thinking(text, self._model.tokenizer)
        ids = self.tokenize(text)
        return Job(
            ids,
            self.room(ids, request.decoding.max_tokens, request.param),
            request.decoding,
            Style(
                thinking=thinking,
                stops=request.decoding.stop,
                tools=parameters_of(request.tools) if request.tool_choice.mode != "none" else None,
                one_call=not request.tool_choice.several,
            ),
            self._new_mask(request, thinking),
        )

    def prompt(self, request: ChatRequest) -> list[int]:
        """Tokens of the prompt, which may be more than there is room for."""
        return self.tokenize(self._render(request))

    def tokenize(self, text: str, special: bool = True) -> list[int]:
        """special: with what the model's texts begin with, if the file wants it added."""
        tokenizer = self._model.tokenizer
        return with_bos(tokenizer.encode(text, special=True), tokenizer, special and self._add_bos)

    def room(self, ids: Sequence[int], max_tokens: int | None, param: str) -> int:
        """Tokens that the answer may have."""
        room = self.ctx - len(ids)
        if room < (0 if max_tokens == 0 else 1):
            raise PromptTooLong(len(ids), self.ctx, param)
        most = self._max_tokens if max_tokens is None else max_tokens
        return room if most is None else min(room, most)

    def _render(self, request: ChatRequest) -> str:
        if len(request.messages) > self.ctx:
            raise bad_request(
                f"There are {len(request.messages)} messages; a context of {self.ctx} tokens holds fewer.",
                request.param,
                "context_length_exceeded",
            )
        effort = self._effort if request.effort is None else EFFORTS[request.effort]
        try:
            return self._template.render(
                in_order_of_calls(request.messages),
                list(request.tools) if request.tools and request.tool_choice.mode != "none" else None,
                add_generation_prompt=not request.prefill,
                **{"reasoning_effort": effort, **request.template_kwargs},
            )
        except TemplateError as error:
            raise bad_request(f"The chat template refuses this: {error.reason}.", request.param) from None

    def _new_mask(self, request: ChatRequest, thinking: bool) -> Callable[[], Mask] | None:
        form = self._form(request)
        budget = self._budget if request.thinking_budget is None else request.thinking_budget
        new_answer = None if form is None else lambda: form.copy().mask
        if not thinking or (form is None and budget is None):
            return new_answer
        tokenizer = self._model.tokenizer
        closing = tokenizer.token_id(think_tags(tokenizer)[0][1])
        if closing is None:
            raise bad_request(
                "The end of thinking is no token of this model: it cannot be forced.", "reasoning_effort"
            )
        return lambda: ThinkingMask(
            closing, tokenizer.eos_ids, self._model.config.vocab_size, budget, new_answer and new_answer()
        )

    def _form(self, request: ChatRequest) -> Constraint | None:
        """Of the answer, reasoning apart."""
        choice, form = request.tool_choice, request.response_format
        must_call = choice.mode in ("required", "named")
        if not must_call and form.kind == "text":
            return None
        tools = {
            i: tool
            for i, tool in enumerate(request.tools)
            if choice.mode in ("auto", "required") or name_of(tool) == choice.name
        }
        try:
            grammars = grammars_of(self._model)
            if must_call:
                return grammars.for_tools(tools, choice.several)
            if form.kind == "json_object":
                return grammars.for_json_object(tools, choice.several)
            return grammars.for_schema(form.schema, form.strict, tools, choice.several)
        except SchemaError as error:
            place = form.param if error.tool is None else f"tools.{error.tool}.{request.parameters_param}"
            raise bad_request(str(error), f"{place}.{error.path}".rstrip(".")) from None
        except Hy3Error as error:
            raise bad_request(str(error), "tool_choice" if must_call else "response_format") from None


def in_order_of_calls(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Templates write results without the ids of their calls, so they follow the order of the calls."""
    ordered: list[Mapping[str, Any]] = []
    for results, run in groupby(messages, lambda message: message["role"] == "tool"):
        group = list(run)
        if results and ordered:
            places = {call.get("id"): i for i, call in enumerate(ordered[-1].get("tool_calls", ()))}
            group.sort(key=lambda result: places.get(result.get("tool_call_id"), len(places)))
        ordered += group
    return ordered


def name_of(tool: Mapping[str, Any]) -> str:
    return str(tool["function"]["name"])


def parameters_of(tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]] | None:
    """The schema of each function's parameters; None where there are no tools."""
    return {name_of(tool): tool["function"].get("parameters") or {} for tool in tools} or None
