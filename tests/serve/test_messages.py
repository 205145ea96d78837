"""Anthropic's POST /v1/messages and /v1/messages/count_tokens, by the official client."""

import json
import re
from typing import Any

import pytest

TIMER = {
    "name": "set_timer",
    "description": "Start a timer",
    "input_schema": {
        "type": "object",
        "properties": {"minutes": {"type": "integer"}},
        "required": ["minutes"],
    },
}
WEATHER = {
    "name": "get_weather",
    "description": "Current weather for a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
SUM = "31+75+49 = ?"
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [5, 7]}},
    "required": ["n"],
    "additionalProperties": False,
}
THINKING = {"type": "enabled", "budget_tokens": 64}
CALL: dict[str, Any] = {"messages": "Please start a timer of 981 minutes.", "tools": [TIMER, WEATHER]}
CASES: dict[str, dict[str, Any]] = {
    "text": {"messages": "good morning"},
    "thinking": {"messages": SUM, "thinking": THINKING, "output_config": {"effort": "low"}},
    "a call": CALL,
    "cut off": {"messages": "good morning", "max_tokens": 2},
    "cut off in thinking": {"messages": SUM, "thinking": THINKING, "max_tokens": 3},
    "cut off in a call": {**CALL, "max_tokens": 12},
    "a schema": {
        "messages": "good morning",
        "max_tokens": 400,
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "any call": {"messages": "good morning", "tools": [TIMER, WEATHER], "tool_choice": {"type": "any"}},
    "a call that was asked for": {
        "messages": "good morning",
        "tools": [TIMER, WEATHER],
        "tool_choice": {"type": "tool", "name": "get_weather"},
    },
    "stopped": {"messages": "good morning", "stop_sequences": ["never", " How can"]},
}


def fields_of(fields: dict[str, Any]) -> dict[str, Any]:
    messages = fields["messages"]
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    body = {"temperature": 0, **fields.get("extra_body", {})}
    return {"model": "hy3-tiny", "max_tokens": 64, **fields, "messages": messages, "extra_body": body}


def ask(server: Any, **fields: Any) -> Any:
    return server.anthropic().messages.create(**fields_of(fields))


def said(message: Any) -> dict[str, Any]:
    """All of a message but what no two answers share; both kinds of input tokens in one."""
    used = message.usage.to_dict()
    used["input_tokens"] += used.pop("cache_read_input_tokens")
    return {
        **message.to_dict(),
        "id": "",
        "usage": used,
        "content": [
            {**block.to_dict(), **({"id": ""} if block.type == "tool_use" else {})}
            for block in message.content
        ],
    }


@pytest.mark.parametrize("case", CASES)
def test_the_stream_adds_up_to_the_answer(server: Any, case: str) -> None:
    """As the client adds it up, which looks at every event."""
    whole = ask(server, **CASES[case])
    with server.anthropic().messages.stream(**fields_of(CASES[case])) as stream:
        assert said(stream.get_final_message()) == said(whole)


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_events(server: Any, case: str) -> None:
    events = [event.to_dict() for event in ask(server, stream=True, **CASES[case])]
    assert events[0]["type"] == "message_start"
    assert events[0]["message"]["content"] == [] and events[0]["message"]["stop_reason"] is None
    assert events[0]["message"]["usage"]["input_tokens"] > 0
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    assert events[-2]["delta"]["stop_reason"] is not None
    started, running = 0, False
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert not running and event["index"] == started
            started, running = started + 1, True
        elif event["type"] == "content_block_stop":
            assert running and event["index"] == started - 1
            running = False
        elif event["type"] == "content_block_delta":
            assert running and event["index"] == started - 1
        else:
            assert event["type"] == "ping"
    assert started and not running


def test_text(server: Any) -> None:
    message = ask(server, messages="good morning", system="Be kind.")
    (block,) = message.content
    assert block.text == "Hello! How can I help you?"
    assert (message.role, message.stop_reason, message.stop_sequence) == ("assistant", "end_turn", None)
    assert message.usage.input_tokens > 5 and message.usage.output_tokens > 3


def test_a_schema_and_a_choice_of_tool_are_kept_to(server: Any) -> None:
    assert json.loads(ask(server, **CASES["a schema"]).content[0].text)["n"] in (5, 7)
    message = ask(server, **CASES["a call that was asked for"])
    (call,) = message.content
    assert call.name == "get_weather" and list(call.input) == ["city"]
    assert message.stop_reason == "tool_use"
    assert all(block.type == "tool_use" for block in ask(server, **CASES["any call"]).content)


def test_what_was_read_before_is_counted_as_cached(server: Any) -> None:
    question = {"messages": "good morning", "system": "Be kind, and answer as if you had never met."}
    first, second = (ask(server, **question).usage for _ in range(2))
    tokens = first.input_tokens + first.cache_read_input_tokens
    assert second.input_tokens + second.cache_read_input_tokens == tokens
    assert second.cache_read_input_tokens > tokens // 2


def test_thinking(server: Any) -> None:
    message = ask(server, **CASES["thinking"])
    thinking, text = message.content
    assert thinking.type == "thinking" and thinking.thinking == "31+75=106, 106+49=155"
    assert thinking.signature and text.text == "155"
    used = message.usage
    assert 0 < used.output_tokens_details.thinking_tokens < used.output_tokens


def test_thinking_ends_when_its_budget_does(server: Any) -> None:
    budget = {"type": "enabled", "budget_tokens": 4}
    message = ask(server, messages=SUM, thinking=budget, output_config={"effort": "low"})
    assert message.usage.output_tokens_details.thinking_tokens <= 5  # with the closing tag
    assert message.content[-1].type == "text"


def test_a_call_and_its_result(server: Any) -> None:
    message = ask(server, **CALL)
    (call,) = message.content
    assert (call.type, call.name, call.input) == ("tool_use", "set_timer", {"minutes": 981})
    assert message.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "started"}]}
    question = {"role": "user", "content": CALL["messages"]}
    answered = ask(
        server,
        messages=[question, message.to_param(), {"role": "user", "content": [result]}],
        tools=CALL["tools"],
    )
    assert answered.usage.input_tokens + answered.usage.cache_read_input_tokens > message.usage.input_tokens


def test_blocks_are_the_conversation_of_chat_completions(server: Any) -> None:
    """The same prompt, by the length of it, and the same answer."""
    blocks = [
        {"role": "user", "content": [{"type": "text", "text": "Please start a timer."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Yes."},
                {"type": "tool_use", "id": "a", "name": "set_timer", "input": {"minutes": 981}},
                {"type": "tool_use", "id": "b", "name": "set_timer", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "started"},
                {"type": "tool_result", "tool_use_id": "b", "content": "no minutes", "is_error": True},
                {"type": "text", "text": "good"},
                {"type": "text", "text": "morning"},
            ],
        },
    ]
    arguments = ('{"minutes": 981}', "{}")
    calls = [
        {"id": name, "type": "function", "function": {"name": "set_timer", "arguments": text}}
        for name, text in zip("ab", arguments, strict=True)
    ]
    messages = [
        {"role": "system", "content": "Be kind.\n\nBe brief."},
        {"role": "user", "content": "Please start a timer."},
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "started"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: no minutes"},
        {"role": "user", "content": "good\n\nmorning"},
    ]
    function = {
        "name": TIMER["name"],
        "description": TIMER["description"],
        "parameters": TIMER["input_schema"],
    }
    system = [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}]
    message = ask(server, messages=blocks, system=system, tools=[TIMER])
    completion = server.openai().chat.completions.create(
        model="hy3-tiny",
        temperature=0,
        max_tokens=64,
        messages=messages,
        tools=[{"type": "function", "function": function}],
    )
    used = message.usage
    assert used.input_tokens + used.cache_read_input_tokens == completion.usage.prompt_tokens
    assert message.content[0].text == completion.choices[0].message.content


def test_an_answer_begun_is_gone_on_with(server: Any) -> None:
    question = {"role": "user", "content": "good morning"}
    begun = {"role": "assistant", "content": "Hello! How"}
    assert ask(server, messages=[question, begun]).content[0].text == " can I help you?"


def test_a_turn_of_nothing_is_no_turn(server: Any) -> None:
    question = {"role": "user", "content": "good morning"}
    hidden = {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}
    assert count(server, messages=[question, hidden]) == count(server, messages=[question])
    assert count(server, messages=[hidden]) < count(server, messages=[question])


def test_a_stop_sequence_is_named(server: Any) -> None:
    message = ask(server, **CASES["stopped"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " How can")
    assert message.content[0].text == "Hello!"


def test_the_accounting_block_of_claude_code_is_no_part_of_the_prompt(server: Any) -> None:
    system = [{"type": "text", "text": "Be kind."}]
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1f3a;"}
    lengths = [count(server, messages="good morning", system=each) for each in ([billing, *system], system)]
    assert lengths[0] == lengths[1]


def count(server: Any, **fields: Any) -> int:
    allowed = {
        key: value for key, value in fields_of(fields).items() if key not in ("max_tokens", "extra_body")
    }
    tokens: int = server.anthropic().messages.count_tokens(**allowed).input_tokens
    return tokens


@pytest.mark.parametrize("case", ["text", "thinking", "a call"])
def test_tokens_are_counted_as_they_are_used(server: Any, case: str) -> None:
    used = ask(server, **CASES[case]).usage
    assert count(server, **CASES[case]) == used.input_tokens + used.cache_read_input_tokens


def test_what_coding_agents_send_besides_is_no_error(server: Any) -> None:
    cached = {"type": "ephemeral"}
    message = server.anthropic().beta.messages.create(
        model="hy3-tiny",
        max_tokens=64,
        betas=["context-management-2025-06-27", "interleaved-thinking-2025-05-14"],
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        metadata={"user_id": "someone"},
        system=[{"type": "text", "text": "Be kind.", "cache_control": cached}],
        tools=[{**TIMER, "cache_control": cached}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "good morning", "cache_control": cached}]}
        ],
        extra_headers={"anthropic-version": "2099-01-01"},
        extra_body={"temperature": 0},
    )
    assert message.type == "message" and message.content


def test_pings_fill_the_silence(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hy3.serve.sse.PING_SECONDS", 0)

    def ask(path: str, beginning: str) -> str:
        """Of a prompt that nobody has asked yet, and that takes its time to be read."""
        body = {"max_tokens": 4, "stream": True, "messages": [{"role": "user", "content": beginning * 200}]}
        return str(server.http().post(path, json=body).text)

    assert (
        ask("/v1/messages", "silence ").count('event: ping\ndata: {"type":"ping"}\n\n') > 1
    )  # one in any case
    lines = ask("/v1/chat/completions", "patience ").splitlines()
    assert ": ping" in lines and lines[-2] == "data: [DONE]"


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
def test_the_key_may_come_in_either_header(server_with: Any, header: str) -> None:
    client = server_with(api_key="secret").http()
    body = {"model": "hy3-tiny", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]}
    prefix = "Bearer " if header == "authorization" else ""
    assert client.post("/v1/messages", json=body, headers={header: prefix + "secret"}).status_code == 200
    answer = client.post("/v1/messages", json=body, headers={header: prefix + "wrong"})
    assert answer.status_code == 401
    assert answer.json()["type"] == "error" and answer.json()["error"]["type"] == "authentication_error"


IMAGE = {"type": "image", "source": {"type": "url", "url": "http://x"}}


def user(*blocks: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(blocks)}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": user(IMAGE)}, "messages.0.content.0"),
        (
            {"messages": user({"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]})},
            "messages.0.content.0.content.0",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]}]},
            "messages.0.content.0.name",
        ),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": "x", "max_tokens": 0}, "max_tokens"),
        ({"messages": "x", "tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
        ({"messages": "x", "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"messages": "x", "tools": [TIMER], "tool_choice": {"type": "tool", "name": "fly"}}, "tool_choice"),
        ({"messages": "x", "thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"messages": "x", "stop_sequences": [""]}, "stop_sequences"),
        ({"messages": "x", "system": [IMAGE]}, "system.0"),
        ({"messages": "x", "extra_body": {"mcp_servers": [{"type": "url"}]}}, "mcp_servers"),
        ({"messages": "x", "extra_body": {"temperature": "hot"}}, "temperature"),
    ],
)
def test_what_is_wrong_is_named(server: Any, fields: dict[str, Any], param: str) -> None:
    error = refused(400, lambda: ask(server, **fields))
    assert error["type"] == "invalid_request_error" and error["message"].startswith(param + ": ")


def test_max_tokens_is_required(server: Any) -> None:
    answer = server.http().post("/v1/messages", json={"messages": user({"type": "text", "text": "x"})})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("max_tokens: ")


def test_a_prompt_that_is_too_long(server: Any) -> None:
    """In the words by which coding agents know that it is time to summarize."""
    error = refused(400, lambda: ask(server, messages="12345 " * 5000))
    assert re.match(r"prompt is too long: \d{4,} tokens > 1024 maximum\. ", error["message"])


def test_a_model_that_is_not_here(server: Any) -> None:
    assert refused(404, lambda: ask(server, model="claude", messages="x"))["type"] == "not_found_error"


def test_an_answer_that_fills_the_context(server: Any, server_with: Any) -> None:
    small = server_with(ctx=count(server, messages="good morning") + 3)
    assert ask(small, messages="good morning").stop_reason == "model_context_window_exceeded"
    assert ask(small, messages="good morning", max_tokens=3).stop_reason == "max_tokens"


def refused(status: int, call: Any) -> dict[str, Any]:
    import anthropic

    with pytest.raises(anthropic.APIStatusError) as caught:
        call()
    assert caught.value.status_code == status
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["type"] == "error"
    error: dict[str, Any] = caught.value.body["error"]
    return error
