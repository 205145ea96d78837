"""Parts of answers as the events of Responses and of Messages: what the bundled model does not show."""

import json
from typing import Any

import pytest

from hy3.serve import carrier
from hy3.serve.answer import CallArguments, CallStart, Part, ReasoningDelta, TextDelta, TokenScore
from hy3.serve.messages_writer import MessageWriter, usage
from hy3.serve.responses_tools import Tool, Toolbox
from hy3.serve.responses_writer import ResponseWriter

PARTS: list[Part] = [
    ReasoningDelta("One, "),
    ReasoningDelta("two."),
    TextDelta("I call."),
    CallStart(0, "call_a", "f"),
    CallArguments(0, '{"x": '),
    CallArguments(0, "1}"),
    CallStart(1, "call_b", "g"),
    CallArguments(1, "{}"),
    TextDelta("Done"),
    TextDelta("."),
]


def test_messages() -> None:
    writer = MessageWriter("m", 5)
    events = [event for part in PARTS for event in writer.write(part)]
    events += writer.end("tool_use", None, usage(5, 2, 9, 3))
    thinking, *rest = writer.message["content"]
    assert thinking["thinking"] == "One, two." and thinking["signature"]
    assert rest == [
        {"type": "text", "text": "I call."},
        {"type": "tool_use", "id": "call_a", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "call_b", "name": "g", "input": {}},
        {"type": "text", "text": "Done."},
    ]
    assert (
        writer.message["usage"]["input_tokens"] == 3
        and writer.message["usage"]["cache_read_input_tokens"] == 2
    )
    kinds = [event["type"].removeprefix("content_block_") for event in events]
    block = ["start", "delta", "stop"]
    signed = ["start", "delta", "delta", "delta", "stop"]  # the last delta is the signature
    assert kinds == [
        *signed, *block, "start", "delta", "delta", "stop", *block, "start", "delta", "delta", "stop",
        "message_delta", "message_stop",
    ]  # fmt: skip


def test_responses() -> None:
    writer = ResponseWriter({"id": "r"}, lambda score: {"token": score.token})
    events = [event for part in PARTS for event in writer.write(part)]
    events += writer.end("tool_calls", {})
    output = writer.response["output"]
    assert [item["type"] for item in output] == [
        "reasoning", "message", "function_call", "function_call", "message"
    ]  # fmt: skip
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "One, two."}]
    assert [json.loads(item["arguments"]) for item in output[2:4]] == [{"x": 1}, {}]
    assert [item["call_id"] for item in output[2:4]] == ["call_a", "call_b"]
    assert output[4]["content"][0]["text"] == "Done."
    assert {item["status"] for item in output} == {"completed"}
    kinds = [event["type"].removeprefix("response.") for event in events]
    call = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert kinds[-12:-8] == call
    assert kinds[-8:] == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_calls_are_told_in_the_words_of_the_request() -> None:
    tools = [
        {"type": "function", "name": "f"},
        {
            "type": "custom",
            "name": "patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"},
        },
        {
            "type": "namespace",
            "name": "mcp__a",
            "tools": [{"type": "function", "name": name} for name in "gh"],
        },
        {"type": "namespace", "name": "mcp__b__", "tools": [{"type": "function", "name": "h"}]},
    ]
    toolbox = Toolbox([Tool.model_validate(tool) for tool in tools])
    functions = [function["function"] for function in toolbox.functions]
    assert [function["name"] for function in functions] == [
        "f",
        "patch",
        "mcp__a__g",
        "mcp__a__h",
        "mcp__b__h",
    ]
    assert "start: X" in functions[1]["description"]
    writer = ResponseWriter({"id": "r"}, lambda score: {}, toolbox.told)
    arguments = '{"input": "*** Begin\\n\\u65e5"}'
    called = {"f": "{}", "patch": arguments, "mcp__a__g": "{}", "mcp__b__h": "{}", "g": "{}", "h": "{}"}
    parts: list[Part] = []
    for index, (name, text) in enumerate(called.items()):
        parts += [
            CallStart(index, f"call_{index}", name),
            CallArguments(index, text[:5]),
            CallArguments(index, text[5:]),
        ]
    events = [event for part in parts for event in writer.write(part)] + writer.end("tool_calls", {})
    calls = [(item["type"], item.get("namespace"), item["name"]) for item in writer.response["output"]]
    assert calls == [
        ("function_call", None, "f"),
        ("custom_tool_call", None, "patch"),
        ("function_call", "mcp__a", "g"),
        ("function_call", "mcp__b__", "h"),
        ("function_call", "mcp__a", "g"),  # the one there is
        ("function_call", None, "h"),  # which of the two is not known
    ]
    text = "*** Begin\n日"
    assert writer.response["output"][1]["input"] == text
    of_input = [event for event in events if "custom_tool_call_input" in event["type"]]
    assert [event.get("delta") or event.get("input") for event in of_input] == [text, text]


def test_an_answer_of_nothing() -> None:
    message = MessageWriter("m", 5)
    assert [event["type"] for event in message.end("end_turn", None, usage(5))] == [
        "message_delta",
        "message_stop",
    ]
    response = ResponseWriter({"id": "r"}, lambda score: {})
    assert [event["type"] for event in response.end("stop", {})] == ["response.completed"]
    assert response.response["output"] == []


def test_scores_are_in_the_delta_of_their_text() -> None:
    writer = ResponseWriter({"id": "r"}, lambda score: {"token": score.token})
    parts: list[Part] = [TokenScore(7, -1.0, ()), TokenScore(8, -2.0, ()), TextDelta("ab"), TextDelta("c")]
    events = [event for part in parts for event in writer.write(part)]
    deltas = [event["logprobs"] for event in events if event["type"] == "response.output_text.delta"]
    assert deltas == [[{"token": 7}, {"token": 8}], []]


@pytest.mark.parametrize("text", ["", "Hm.\n日本"])
def test_the_carrier_gives_back_what_it_took(text: str) -> None:
    assert carrier.unpack(carrier.pack(text)) == text


@pytest.mark.parametrize("field", ["", "gAAAA", "hy3:", "hy3:!", "hy3:/w==", "hy3:日本"])
def test_what_the_carrier_did_not_pack(field: str) -> None:
    assert carrier.unpack(field) == ""


def failing(answers: int) -> Any:
    """In place of Generation._read: fails after so many events."""
    from hy3.serve.errors import ApiError
    from hy3.serve.generate import Generation

    read, seen = Generation._read, [0]

    def fail(self: Generation, *args: Any) -> list[Part]:
        seen[0] += 1
        if seen[0] > answers:
            raise ApiError(500, "The engine failed: it did.")
        return read(self, *args)

    return fail


def test_a_failure_ends_the_stream_of_responses(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hy3.serve.generate.Generation._read", failing(2))
    stream = server.openai().responses.create(
        model="hy3-tiny", input="good morning", temperature=0, stream=True
    )
    last = list(stream)[-1]
    assert last.type == "response.failed" and last.response.status == "failed"
    assert last.response.error.message == "The engine failed: it did."


def test_a_failure_ends_the_stream_of_messages(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import anthropic

    monkeypatch.setattr("hy3.serve.generate.Generation._read", failing(2))
    with pytest.raises(anthropic.APIStatusError, match="The engine failed: it did"):
        list(
            server.anthropic().messages.create(
                model="hy3-tiny",
                max_tokens=9,
                messages=[{"role": "user", "content": "good morning"}],
                stream=True,
            )
        )
