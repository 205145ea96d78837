"""POST /v1/responses, by the official client."""

import json
from typing import Any

import pytest

TIMER = {
    "type": "function",
    "name": "set_timer",
    "description": "Start a timer",
    "parameters": {
        "type": "object",
        "properties": {"minutes": {"type": "integer"}},
        "required": ["minutes"],
    },
}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather for a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
SUM = "31+75+49 = ?"
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [5, 7]}},
    "required": ["n"],
    "additionalProperties": False,
}
CASES: dict[str, dict[str, Any]] = {
    "text": {"input": "good morning"},
    "reasoning": {"input": SUM, "reasoning": {"effort": "low"}},
    "a call": {"input": "Please start a timer of 981 minutes.", "tools": [TIMER, WEATHER]},
    "cut off": {"input": "good morning", "max_output_tokens": 2},
    "cut off in reasoning": {"input": SUM, "reasoning": {"effort": "low"}, "max_output_tokens": 3},
    "cut off in a call": {
        "input": "Please start a timer of 981 minutes.",
        "tools": [TIMER, WEATHER],
        "max_output_tokens": 12,
    },
    "a schema": {
        "input": "good morning",
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}},
    },
    "a call that was asked for": {
        "input": "good morning",
        "tools": [TIMER, WEATHER],
        "tool_choice": {"type": "function", "name": "get_weather"},
    },
    "scores": {"input": "good morning", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
}
# What differs from one answer to the same question to the next.
OWN = ("id", "call_id", "created_at", "completed_at", "cached_tokens")


def ask(server: Any, **fields: Any) -> Any:
    return server.openai().responses.create(**{"model": "hy3-tiny", "temperature": 0, **fields})


def events_of(server: Any, **fields: Any) -> list[dict[str, Any]]:
    return [event.to_dict() for event in ask(server, stream=True, **fields)]


def anonymous(value: Any) -> Any:
    """Without what no two answers share."""
    if isinstance(value, list):
        return [anonymous(each) for each in value]
    if isinstance(value, dict):
        return {key: anonymous(each) for key, each in value.items() if key not in OWN}
    return value


def put_together(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output as a client makes it up that looks at the small events alone."""
    output: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(output)
            output.append(json.loads(json.dumps(event["item"])))
        elif kind == "content_part.added":
            assert event["item_id"] == output[-1]["id"] and event["content_index"] == 0
            output[-1]["content"] = [dict(event["part"])]
        elif kind in ("output_text.delta", "reasoning_text.delta"):
            content = output[event["output_index"]]["content"][0]
            content["text"] += event["delta"]
            if "logprobs" in event:
                content["logprobs"] = content["logprobs"] + event["logprobs"]
        elif kind == "function_call_arguments.delta":
            output[event["output_index"]]["arguments"] += event["delta"]
        elif kind == "output_item.done":
            output[event["output_index"]]["status"] = event["item"]["status"]
    return output


@pytest.mark.parametrize("case", CASES)
def test_the_stream_adds_up_to_the_answer(server: Any, case: str) -> None:
    whole = ask(server, **CASES[case]).to_dict()
    events = events_of(server, **CASES[case])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0]["response"]["output"] == [] and events[0]["response"]["usage"] is None
    last = events[-1]
    assert last["type"] == ("response.incomplete" if "cut off" in case else "response.completed")
    assert put_together(events) == last["response"]["output"]
    assert anonymous(last["response"]) == anonymous(whole)


@pytest.mark.parametrize("case", CASES)
def test_what_began_ends(server: Any, case: str) -> None:
    open_items: list[str] = []
    for event in events_of(server, **CASES[case]):
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert not open_items  # one at a time
            open_items.append(event["item"]["id"])
        elif kind == "output_item.done":
            open_items.remove(event["item"]["id"])
        elif "item_id" in event:
            assert open_items == [event["item_id"]]
    assert not open_items


def test_text(server: Any) -> None:
    response = ask(server, input="good morning", instructions="Be kind.", metadata={"a": "b"})
    assert response.output_text == "Hello! How can I help you?"
    assert response.status == "completed" and response.error is None and response.incomplete_details is None
    assert response.temperature == 0 and response.top_p == 1
    assert response.metadata == {"a": "b"} and response.instructions == "Be kind."
    usage = response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens and usage.output_tokens > 3
    assert usage.output_tokens_details.reasoning_tokens == 0


def test_what_was_read_before_is_counted_as_cached(server: Any) -> None:
    question = {"input": "good morning", "instructions": "Be kind, and answer as if it were the first time."}
    first, second = (ask(server, **question).usage for _ in range(2))
    assert second.input_tokens == first.input_tokens
    assert second.input_tokens_details.cached_tokens > first.input_tokens // 2


def test_reasoning_is_an_item_of_its_own(server: Any) -> None:
    response = ask(server, **CASES["reasoning"])
    reasoning, message = response.output
    assert reasoning.type == "reasoning" and reasoning.content[0].text == "31+75=106, 106+49=155"
    assert response.output_text == "155" and message.status == "completed"
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens


def test_a_call(server: Any) -> None:
    (call,) = ask(server, **CASES["a call"]).output
    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call",
        "set_timer",
        {"minutes": 981},
    )


def test_a_schema_and_a_choice_of_tool_are_kept_to(server: Any) -> None:
    assert json.loads(ask(server, **CASES["a schema"]).output_text)["n"] in (5, 7)
    response = ask(server, **CASES["a call that was asked for"])
    (call,) = response.output
    assert call.name == "get_weather" and list(json.loads(call.arguments)) == ["city"]
    assert response.tool_choice.to_dict() == {"type": "function", "name": "get_weather"}


def test_a_call_cut_off_is_whole_json(server: Any) -> None:
    response = ask(server, **CASES["cut off in a call"])
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    (call,) = response.output
    assert call.status == "incomplete" and isinstance(json.loads(call.arguments), dict)


def test_items_are_the_conversation_of_chat_completions(server: Any) -> None:
    """The same prompt, by the length of it, and the same answer."""
    items = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Please start a timer of 981 minutes."}]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes."}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "set_timer", "arguments": '{"minutes": 981}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "started"},
    ]
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Please start a timer of 981 minutes."},
        {
            "role": "assistant",
            "content": "Yes.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "set_timer", "arguments": '{"minutes": 981}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "started"},
    ]
    tool = {
        "type": "function",
        "function": {key: TIMER[key] for key in ("name", "description", "parameters")},
    }
    response = ask(server, input=items, tools=[TIMER])
    completion = server.openai().chat.completions.create(
        model="hy3-tiny", temperature=0, messages=messages, tools=[tool]
    )
    assert response.usage.input_tokens == completion.usage.prompt_tokens
    assert response.output_text == completion.choices[0].message.content


def test_namespaces_and_custom_tools_are_functions_to_the_model(server: Any) -> None:
    """The same prompt, by the length of it, as with functions."""
    result = {"type": "function_call_output", "call_id": "a", "output": "started"}
    patched = {"type": "custom_tool_call_output", "call_id": "b", "output": "done"}
    told = [
        {"type": "namespace", "name": "mcp__clock__", "description": "", "tools": [TIMER]},
        {"type": "custom", "name": "patch", "description": "Patch"},
    ]
    calls = [
        {
            "type": "function_call",
            "call_id": "a",
            "namespace": "mcp__clock__",
            "name": "set_timer",
            "arguments": "{}",
        },
        {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "x"},
    ]
    parameters = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    flat = [
        {**TIMER, "name": "mcp__clock__set_timer"},
        {"type": "function", "name": "patch", "description": "Patch", "parameters": parameters},
    ]
    flat_calls = [
        {"type": "function_call", "call_id": "a", "name": "mcp__clock__set_timer", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "patch", "arguments": '{"input": "x"}'},
    ]
    question = {"role": "user", "content": "Please start a timer of 981 minutes."}
    asked = ask(server, tools=told, input=[question, *calls, result, patched])
    flatly = ask(
        server, tools=flat, input=[question, *flat_calls, result, {**patched, "type": result["type"]}]
    )
    assert asked.usage.input_tokens == flatly.usage.input_tokens
    assert anonymous(asked.to_dict()["output"]) == anonymous(flatly.to_dict()["output"])
    assert [tool.type for tool in asked.tools] == ["namespace", "custom"]


def test_a_response_goes_on_from_another(server: Any) -> None:
    first = ask(server, **CASES["a call"])
    (call,) = first.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "started"}
    by_id = ask(server, previous_response_id=first.id, input=[result], tools=[TIMER, WEATHER])
    question = {"role": "user", "content": CASES["a call"]["input"]}
    whole = ask(server, input=[question, call.to_dict(), result], tools=[TIMER, WEATHER])
    assert anonymous(by_id.to_dict()["output"]) == anonymous(whole.to_dict()["output"])
    assert by_id.usage.input_tokens == whole.usage.input_tokens > first.usage.input_tokens
    referred = ask(
        server, input=[question, {"type": "item_reference", "id": call.id}, result], tools=[TIMER, WEATHER]
    )
    assert referred.usage.input_tokens == whole.usage.input_tokens
    third = ask(server, previous_response_id=by_id.id, input="good morning")
    assert third.usage.input_tokens > by_id.usage.input_tokens - first.usage.input_tokens


def test_instructions_are_of_one_response_only(server: Any) -> None:
    first = ask(server, input="good morning", instructions="Be kind.")
    by_id = ask(server, previous_response_id=first.id, input="good day")
    items = [{"role": "user", "content": "good morning"}, *(item.to_dict() for item in first.output)]
    whole = ask(server, input=[*items, {"role": "user", "content": "good day"}])
    assert by_id.usage.input_tokens == whole.usage.input_tokens


def test_responses_are_kept_until_deleted(server: Any) -> None:
    client = server.openai()
    response = ask(server, input="good morning")
    assert client.responses.retrieve(response.id).to_dict() == response.to_dict()
    client.responses.delete(response.id)
    refused(404, lambda: client.responses.retrieve(response.id))
    refused(404, lambda: client.responses.delete(response.id))
    error = refused(400, lambda: ask(server, previous_response_id=response.id, input="good day"))
    assert error["code"] == "previous_response_not_found" and error["param"] == "previous_response_id"


def test_what_is_not_to_be_stored_is_not(server: Any) -> None:
    response = ask(server, input="good morning", store=False)
    assert response.store is False
    refused(404, lambda: server.openai().responses.retrieve(response.id))


def test_reasoning_comes_back_in_the_opaque_field(server: Any) -> None:
    include = ["reasoning.encrypted_content"]
    response = ask(server, **CASES["reasoning"], include=include, store=False)
    reasoning = response.output[0].to_dict()
    assert "encrypted_content" not in ask(server, **CASES["reasoning"]).output[0].to_dict()
    kept = {**reasoning, "content": None}
    lengths = []
    for item in (reasoning, kept, {**kept, "encrypted_content": "from elsewhere"}):
        items = [{"role": "user", "content": SUM}, item, {"role": "user", "content": "good morning"}]
        reasons = {"effort": "none", "context": "all_turns"}
        lengths.append(ask(server, input=items, reasoning=reasons).usage.input_tokens)
    assert lengths[0] == lengths[1] > lengths[2]


@pytest.mark.parametrize("choice", ["none", {"type": "allowed_tools", "mode": "auto", "tools": []}])
def test_calls_can_be_ruled_out(server: Any, choice: Any) -> None:
    response = ask(server, **CASES["a call"], tool_choice=choice)
    assert all(item.type == "message" for item in response.output)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input.0.content.0",
        ),
        ({"input": [{"type": "computer_call_output", "call_id": "x"}]}, "input.0.type"),
        ({"input": [{"type": "message", "content": "x"}]}, "input.0.role"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{"}]}, "input.0.arguments"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "[]"}]}, "input.0.arguments"),
        ({"input": [{"type": "item_reference", "id": "msg_unknown"}]}, "input.0"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools.0.name"),
        (
            {"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "x"}]}]},
            "tools.0.tools.0.type",
        ),
        ({"input": "x", "tool_choice": "required"}, "tool_choice"),
        ({"input": "x", "tools": [TIMER], "tool_choice": {"type": "function", "name": "fly"}}, "tool_choice"),
        ({"input": "x", "tools": [TIMER], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"input": "x", "reasoning": {"effort": "heroic"}}, "reasoning.effort"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"input": "x", "background": True}, "background"),
        ({"input": "x", "conversation": "conv_1"}, "conversation"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
        ({"input": "x" * 9000}, "input"),
    ],
)
def test_what_is_wrong_is_named(server: Any, fields: dict[str, Any], param: str) -> None:
    assert refused(400, lambda: ask(server, **fields))["param"] == param


@pytest.mark.parametrize("value", ["NaN", "1e999"])
@pytest.mark.parametrize(
    "field",
    [
        '"tools": [{"type": "function", "name": "f", "parameters": {"x": %s}}]',
        '"text": {"format": {"type": "json_schema", "schema": {"x": %s}}}',
        '"metadata": {"x": %s}',
    ],
)
def test_what_no_answer_could_repeat_is_refused(server: Any, field: str, value: str) -> None:
    body = '{"input": "x", "max_output_tokens": 1, ' + field % value + "}"
    headers = {"Content-Type": "application/json"}
    assert server.http().post("/v1/responses", content=body, headers=headers).status_code == 400


def test_a_model_that_is_not_here(server: Any) -> None:
    assert refused(404, lambda: ask(server, model="gpt-9", input="x"))["code"] == "model_not_found"


def refused(status: int, call: Any) -> dict[str, Any]:
    import openai

    with pytest.raises(openai.APIStatusError) as caught:
        call()
    assert caught.value.status_code == status
    assert isinstance(caught.value.body, dict)
    return caught.value.body
