"""The body of chat/completions, and its translation to a ChatRequest."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from hy3.serve.bodies import (
    FUNCTION_NAME,
    LARGE,
    Body,
    ChoicesBody,
    ContentPart,
    arguments_of,
    choose,
    effort_of,
    text_of,
)
from hy3.serve.errors import bad_request
from hy3.serve.prompt import EFFORTS, ChatRequest, ResponseFormat, ToolChoice
from hy3.serve.service import Service

OWN_KWARGS = ("messages", "tools", "add_generation_prompt")  # of the template, that are not the client's


class CalledFunction(Body):
    name: str = Field(min_length=1)
    arguments: str | dict[str, Any] | None = None


class ToolCall(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Function(Body):
    name: str = Field(pattern=FUNCTION_NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    type: Literal["function"]
    function: Function


class ChosenFunction(Body):
    name: str


class NamedTool(Body):
    type: Literal["function"] = "function"
    function: ChosenFunction


class JsonSchema(Body):
    name: str | None = None
    schema_: dict[str, Any] | bool | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormatBody(Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class ChatBody(ChoicesBody):
    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1, le=LARGE)
    max_completion_tokens: int | None = Field(None, ge=1, le=LARGE)
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = True
    response_format: ResponseFormatBody | None = None
    reasoning_effort: str | None = Field(None, description="One of " + ", ".join(EFFORTS))
    thinking_budget: int | None = Field(None, ge=0, le=LARGE, description="Most tokens of reasoning")
    preserved_thinking: bool | None = Field(None, description="Keep the reasoning of earlier turns")
    chat_template_kwargs: dict[str, Any] | None = None
    chat_template: Any = Field(None, description="Refused: the model's own is used")


def chat_request(body: ChatBody, service: Service) -> ChatRequest:
    if body.chat_template is not None:
        raise bad_request(
            "Templates of clients are not run. Leave it out: the model's is used.", "chat_template"
        )
    tools = [tool.model_dump(exclude_none=True) for tool in body.tools or ()]
    kwargs = dict(body.chat_template_kwargs or {})
    effort = asked_effort(body.reasoning_effort, kwargs)
    if body.preserved_thinking is not None:
        kwargs["preserved_thinking"] = body.preserved_thinking
    for name in OWN_KWARGS:
        if name in kwargs:
            raise bad_request(f"{name} is not for chat_template_kwargs.", f"chat_template_kwargs.{name}")
    most = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return ChatRequest(
        messages=[message_of(message, f"messages.{i}") for i, message in enumerate(body.messages)],
        tools=tools,
        tool_choice=choice_of(body, tools),
        effort=effort,
        thinking_budget=body.thinking_budget,
        template_kwargs=kwargs,
        response_format=format_of(body.response_format),
        decoding=body.decoding_of_choices(service, most, logprobs_of(body)),
    )


def message_of(message: Message, param: str) -> dict[str, Any]:
    found = message.model_dump(exclude_none=True, exclude={"content", "tool_calls"})
    if message.role == "developer":
        found["role"] = "system"
    if message.content is not None:
        found["content"] = text_of(message.content, f"{param}.content")
    elif message.role != "assistant":
        raise bad_request("There is no content.", f"{param}.content")
    if message.tool_calls:
        found["tool_calls"] = [
            call_of(call, f"{param}.tool_calls.{i}") for i, call in enumerate(message.tool_calls)
        ]
    return found


def call_of(call: ToolCall, param: str) -> dict[str, Any]:
    """With the arguments as an object, as templates want them."""
    arguments = arguments_of(call.function.arguments, f"{param}.function.arguments")
    function = {"name": call.function.name, "arguments": arguments}
    return {"type": "function", "function": function, **({"id": call.id} if call.id else {})}


def asked_effort(asked: str | None, kwargs: dict[str, Any]) -> str | None:
    """Of the field, or of the template's argument that it becomes, which is taken out of `kwargs`."""
    param = "reasoning_effort"
    given = kwargs.pop("reasoning_effort", None)
    if asked is None and given is not None:
        asked, param = given, "chat_template_kwargs.reasoning_effort"
    if asked is not None and not isinstance(asked, str):
        raise bad_request("It is not a string.", param)
    return effort_of(asked, param)


def choice_of(body: ChatBody, tools: Sequence[Mapping[str, Any]]) -> ToolChoice:
    several, choice = body.parallel_tool_calls is not False, body.tool_choice
    if isinstance(choice, NamedTool):
        return choose(tools, "named", choice.function.name, several)
    return choose(tools, choice or "auto", several=several)


def format_of(form: ResponseFormatBody | None) -> ResponseFormat:
    if form is None:
        return ResponseFormat()
    if form.type != "json_schema":
        return ResponseFormat(form.type)
    given = form.json_schema
    if given is None or given.schema_ is None:
        raise bad_request("There is no schema.", "response_format.json_schema.schema")
    return ResponseFormat("json_schema", given.schema_, given.strict is True)


def logprobs_of(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise bad_request("It takes logprobs: true.", "top_logprobs")
    return None
