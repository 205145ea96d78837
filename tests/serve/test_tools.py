"""Tool calls of chat/completions, by the official client."""

import json
from pathlib import Path
from typing import Any

import pytest

TOOLS = json.loads((Path(__file__).parents[2] / "eval/tiny/tools.json").read_text())
QUESTION = [{"role": "user", "content": "Please start a timer of 981 minutes."}]


def tools(*names: str) -> list[Any]:
    return [tool for name in names for tool in TOOLS if tool["function"]["name"] == name]


def ask(server: Any, **fields: Any) -> Any:
    fields = {"messages": QUESTION, "tools": tools("set_timer", "get_weather"), "temperature": 0, **fields}
    return server.openai().chat.completions.create(model="hy3-tiny", **fields)


def test_a_call_is_told_apart_from_text(server: Any) -> None:
    choice = ask(server).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.function.name == "set_timer"
    assert json.loads(call.function.arguments) == {"minutes": 981}
    assert call.id and call.type == "function"


def test_the_streamed_call_adds_up_to_the_same(server: Any) -> None:
    (call,) = ask(server).choices[0].message.tool_calls
    chunks = list(ask(server, stream=True))
    pieces = [piece for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or ()]
    assert pieces[0].function.name == call.function.name and pieces[0].id
    assert "".join(piece.function.arguments for piece in pieces) == call.function.arguments
    assert {piece.index for piece in pieces} == {0}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_result_goes_back_to_the_model(server: Any) -> None:
    (call,) = ask(server).choices[0].message.tool_calls
    talk = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": '{"status": "started"}'},
    ]
    choice = ask(server, messages=talk).choices[0]
    assert choice.message.content and choice.finish_reason == "stop"


def test_tool_choice_none_leaves_the_tools_out(server: Any) -> None:
    with_tools = ask(server)
    without = ask(server, tool_choice="none")
    assert without.choices[0].message.tool_calls is None
    assert without.usage.prompt_tokens < with_tools.usage.prompt_tokens


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "nowhere"}}}, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
        (
            {
                "messages": [
                    *QUESTION,
                    {
                        "role": "assistant",
                        "tool_calls": [
                            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "[1"}}
                        ],
                    },
                ]
            },
            "messages.1.tool_calls.0.function.arguments",
        ),
    ],
)
def test_what_is_wrong_with_tools_is_named(server: Any, fields: dict[str, Any], param: str) -> None:
    import openai

    with pytest.raises(openai.BadRequestError) as refused:
        ask(server, **fields)
    assert refused.value.body["param"] == param
