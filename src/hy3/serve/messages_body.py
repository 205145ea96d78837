"""The body of Anthropic's Messages, and its translation to a ChatRequest."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from hy3.serve.bodies import FUNCTION_NAME, LARGE, Body, SamplingBody, choose, effort_of, stops_of, unreadable
from hy3.serve.errors import bad_request
from hy3.serve.prompt import ChatRequest, Decoding, ResponseFormat, ToolChoice
from hy3.serve.service import Service
from hy3.serve.turns import Turns

# Claude Code's first block of `system` is for Anthropic's accounting. It differs from request to request, and
# no prefix of the prompt could be reused behind it.
BILLING = "x-anthropic-billing-header:"
MODES: Mapping[str, Literal["auto", "none", "required", "named"]] = {
    "auto": "auto",
    "none": "none",
    "any": "required",
    "tool": "named",
}
PARAGRAPH = "\n\n"  # between blocks of text


class Block(Body):
    """Of a message's content. Which fields there must be depends on the type."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list["Block"] | None = None  # of a tool_result
    is_error: bool | None = None


class Message(Body):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Tool(Body):
    type: str | None = None
    name: str = Field(pattern=FUNCTION_NAME)
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class Choice(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = Field(None, ge=1, le=LARGE)


class Format(Body):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    effort: str | None = None
    format: Format | None = None


class PromptBody(Body):
    """What a prompt is made from; alone it is the body of count_tokens."""

    model: str | None = None
    messages: list[Message] = Field(min_length=1)
    system: str | list[Block] | None = None
    tools: list[Tool] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    mcp_servers: list[Any] | None = Field(None, description="Refused, unless empty")


class MessagesBody(PromptBody, SamplingBody):
    max_tokens: int = Field(ge=1, le=LARGE)
    stop_sequences: list[str] | None = None

    def own_decoding(self, service: Service) -> Decoding:
        return self.decoding(service, self.max_tokens, None, stops_of(self.stop_sequences, "stop_sequences"))


def chat_request(body: PromptBody, decoding: Decoding) -> ChatRequest:
    if body.mcp_servers:
        raise bad_request(
            "No MCP servers are called from here. Describe their tools in tools.", "mcp_servers"
        )
    tools = [tool_of(tool, f"tools.{number}") for number, tool in enumerate(body.tools or ())]
    turns = Turns()
    if system := system_of(body.system):
        turns.say("system", system)
    for number, message in enumerate(body.messages):
        add(turns, message, f"messages.{number}")
    effort, budget = thinking_of(body)
    form = body.output_config.format if body.output_config else None
    return ChatRequest(
        messages=turns.messages,
        tools=tools,
        tool_choice=choice_of(body.tool_choice, tools),
        effort=effort,
        thinking_budget=budget,
        response_format=format_of(form),
        decoding=decoding,
        prefill=turns.answering,
        parameters_param="input_schema",
    )


def format_of(form: Format | None) -> ResponseFormat:
    """Its schemas are binding."""
    if form is None:
        return ResponseFormat()
    return ResponseFormat("json_schema", form.schema_, strict=True, param="output_config.format.schema")


def system_of(system: str | Sequence[Block] | None) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    texts = [text_in(block, f"system.{number}") for number, block in enumerate(system)]
    return PARAGRAPH.join(text for text in texts if not text.startswith(BILLING))


def add(turns: Turns, message: Message, param: str) -> None:
    blocks = message.content
    if isinstance(blocks, str):
        blocks = [Block(type="text", text=blocks)]
    if message.role == "assistant":
        for number, block in enumerate(blocks):
            add_of_assistant(turns, block, f"{param}.content.{number}")
        return
    texts = []
    for number, block in enumerate(blocks):
        if block.type == "tool_result":
            turns.result(block.tool_use_id or "", result_of(block, f"{param}.content.{number}"))
        else:
            texts.append(text_in(block, f"{param}.content.{number}"))
    if texts or not blocks:
        turns.say(message.role, PARAGRAPH.join(texts))


def add_of_assistant(turns: Turns, block: Block, param: str) -> None:
    if block.type == "thinking":
        turns.think(block.thinking or "")
    elif block.type == "tool_use":
        if not block.name:
            raise bad_request("A tool_use has a name.", f"{param}.name")
        turns.call(block.id or "", block.name, block.input or {})
    elif block.type != "redacted_thinking":  # whose text nobody here can read
        turns.answer(text_in(block, param))


def text_in(block: Block, param: str) -> str:
    if block.type != "text" or block.text is None:
        raise unreadable("block", block.type, block.text, param)
    return block.text


def result_of(block: Block, param: str) -> str:
    content = block.content or ""
    if not isinstance(content, str):
        texts = [text_in(part, f"{param}.content.{number}") for number, part in enumerate(content)]
        content = PARAGRAPH.join(texts)
    return f"Error: {content}" if block.is_error else content


def tool_of(tool: Tool, param: str) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise bad_request(
            f"There is no tool of type {tool.type!r} here. Describe it with an input_schema, and run it "
            "where the answer is read.",
            f"{param}.type",
        )
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def choice_of(choice: Choice | None, tools: Sequence[Mapping[str, Any]]) -> ToolChoice:
    if choice is None:
        return ToolChoice()
    return choose(tools, MODES[choice.type], choice.name or "", choice.disable_parallel_tool_use is not True)


def thinking_of(body: PromptBody) -> tuple[str | None, int | None]:
    """Effort and budget. An effort is that of thinking: where there is none, it is ignored."""
    thinking = body.thinking
    if thinking is None:
        return None, None
    if thinking.type == "disabled":
        return "none", None
    effort = body.output_config.effort if body.output_config else None
    return effort_of(effort, "output_config.effort") or "high", thinking.budget_tokens
