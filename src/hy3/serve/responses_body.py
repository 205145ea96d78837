"""The body of Responses, and its translation to a ChatRequest."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from hy3.serve import carrier
from hy3.serve.bodies import (
    LARGE,
    Body,
    ContentPart,
    SamplingBody,
    arguments_of,
    choose,
    effort_of,
    text_of,
)
from hy3.serve.errors import bad_request
from hy3.serve.prompt import ChatRequest, ResponseFormat, ToolChoice
from hy3.serve.responses_tools import FREE_TEXT, Tool, Toolbox, function_name
from hy3.serve.service import Service
from hy3.serve.turns import Turns

LOGPROBS = "message.output_text.logprobs"  # in `include`
CARRIED_REASONING = "reasoning.encrypted_content"


class Item(Body):
    """Of a conversation. Which fields there must be depends on the type."""

    type: str | None = None  # None: a message, if there is a role
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[ContentPart] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[ContentPart] | None = None
    encrypted_content: str | None = None


class AllowedTool(Body):
    type: str
    name: str | None = None
    namespace: str | None = None


class Choice(Body):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: Literal["auto", "required"] | None = None  # of allowed_tools
    tools: list[AllowedTool] | None = None


class Reasoning(Body):
    effort: str | None = None
    summary: str | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None


class Format(Body):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextOptions(Body):
    format: Format | None = None


class ResponsesBody(SamplingBody):
    input: str | list[Item] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = True
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | Choice | None = None
    parallel_tool_calls: bool | None = True
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    max_output_tokens: int | None = Field(None, ge=1, le=LARGE)
    top_logprobs: int | None = Field(None, ge=0, le=20)
    include: list[str] | None = None
    metadata: dict[str, str] | None = None
    background: bool | None = False
    conversation: Any = Field(None, description="Refused: previous_response_id or the whole input do it")
    prompt: Any = Field(None, description="Refused: there are no stored prompts")

    def includes(self, name: str) -> bool:
        return name in (self.include or ())


def chat_request(
    body: ResponsesBody, toolbox: Toolbox, before: Sequence[Item], new: Sequence[Item], service: Service
) -> ChatRequest:
    """`before`: the conversation that `new`, the body's input, goes on with."""
    refuse(body)
    turns = Turns()
    if body.instructions:
        turns.say("system", body.instructions)
    for item in before:
        add(turns, item, "previous_response_id")
    for number, item in enumerate(new):
        add(turns, item, f"input.{number}")
    tools, choice = choice_of(body, toolbox.functions)
    reasoning = body.reasoning or Reasoning()
    kwargs = {}
    if reasoning.context in ("current_turn", "all_turns"):
        kwargs["preserved_thinking"] = reasoning.context == "all_turns"
    scored = body.includes(LOGPROBS) or body.top_logprobs
    return ChatRequest(
        messages=turns.messages,
        tools=tools,
        tool_choice=choice,
        effort=effort_of(reasoning.effort, "reasoning.effort"),
        template_kwargs=kwargs,
        response_format=format_of(body),
        decoding=body.decoding(service, body.max_output_tokens, (body.top_logprobs or 0) if scored else None),
        param="input",
        parameters_param="parameters",
    )


def refuse(body: ResponsesBody) -> None:
    """What would be missed if it were ignored."""
    if body.background:
        raise bad_request("Answers are not computed in the background. Leave it out.", "background")
    if body.conversation is not None:
        raise bad_request("No conversations are kept. Use previous_response_id.", "conversation")
    if body.prompt is not None:
        raise bad_request("No prompts are kept. Use instructions and input.", "prompt")


def add(turns: Turns, item: Item, param: str) -> None:
    kind = item.type or ("message" if item.role else "")
    if kind == "message":
        text = content_of(item.content, f"{param}.content")
        if item.role == "assistant":
            turns.answer(text)
        elif item.role is not None:
            turns.say("user" if item.role == "user" else "system", text)
        else:
            raise bad_request("A message has a role.", f"{param}.role")
    elif kind == "reasoning":
        turns.think(reasoning_of(item, param))
    elif kind in ("function_call", "custom_tool_call"):
        if not item.name:
            raise bad_request("A call has a name.", f"{param}.name")
        name, arguments = function_name(item.name, item.namespace), item.arguments
        if kind == "custom_tool_call":
            turns.call(item.call_id or "", name, {FREE_TEXT: item.input or ""})
        else:
            turns.call(item.call_id or "", name, arguments_of(arguments, f"{param}.arguments"))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        turns.result(item.call_id or "", content_of(item.output, f"{param}.output"))
    else:
        raise bad_request(
            f"There are no items of type {kind!r} here. There are message, reasoning, function_call and "
            "custom_tool_call, the outputs of these two, and item_reference.",
            f"{param}.type",
        )


def content_of(content: str | Sequence[ContentPart] | None, param: str) -> str:
    if content is None:
        raise bad_request("It is missing.", param)
    return text_of(content, param)


def reasoning_of(item: Item, param: str) -> str:
    """Summaries are not the reasoning itself, and are left out."""
    if isinstance(item.content, list) and item.content:
        return "".join(part.text or "" for part in item.content if part.type == "reasoning_text")
    return carrier.unpack(item.encrypted_content or "")


def choice_of(
    body: ResponsesBody, tools: Sequence[Mapping[str, Any]]
) -> tuple[Sequence[Mapping[str, Any]], ToolChoice]:
    """The tools that may be called, and how."""
    several, choice = body.parallel_tool_calls is not False, body.tool_choice
    if not isinstance(choice, Choice):
        return tools, choose(tools, choice or "auto", several=several)
    if choice.type in ("function", "custom"):
        return tools, choose(tools, "named", function_name(choice.name or "", choice.namespace), several)
    if choice.type == "allowed_tools":
        names = {function_name(tool.name or "", tool.namespace) for tool in choice.tools or ()}
        allowed = [tool for tool in tools if tool["function"]["name"] in names]
        return allowed, choose(allowed, choice.mode or "auto", several=several)
    raise bad_request(f"There is no choice of type {choice.type!r} here.", "tool_choice.type")


def format_of(body: ResponsesBody) -> ResponseFormat:
    form = body.text.format if body.text else None
    if form is None:
        return ResponseFormat()
    if form.type != "json_schema":
        return ResponseFormat(form.type)
    if form.schema_ is None:
        raise bad_request("There is no schema.", "text.format.schema")
    return ResponseFormat("json_schema", form.schema_, form.strict is True, "text.format.schema")
