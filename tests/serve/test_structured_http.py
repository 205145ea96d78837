"""Structured output over HTTP, by the official client: streamed and not, with and without thinking."""

import json
from typing import Any

import pytest

jsonschema = pytest.importorskip("jsonschema")

ASK = [{"role": "user", "content": "Hello!"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 3, "maximum": 400},
        "kind": {"enum": ["sum", "code"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["n", "kind", "tags"],
    "additionalProperties": False,
}
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "maximum": 99, "minimum": 0},
        "unit": {"type": ["string", "null"], "enum": ["C", "F", None]},
    },
    "required": ["city", "days", "unit"],
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]
FORMAT = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA, "strict": True}}


def ask(server: Any, **fields: Any) -> Any:
    return server.openai().chat.completions.create(
        **{"model": "hy3-tiny", "messages": ASK, "temperature": 1.5, "max_tokens": 400, **fields}
    )


def streamed(server: Any, **fields: Any) -> tuple[str, list[tuple[str, str]], str]:
    """Content, calls, finish reason."""
    content, calls, reason = "", [], ""
    for chunk in ask(server, stream=True, **fields):
        for choice in chunk.choices:
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                if call.function.name:
                    calls.append((call.function.name, ""))
                calls[-1] = (calls[-1][0], calls[-1][1] + (call.function.arguments or ""))
            reason = choice.finish_reason or reason
    return content, calls, reason


@pytest.mark.parametrize("effort", ["none", "high"])
@pytest.mark.parametrize("seed", range(3))
def test_json_by_a_schema(server: Any, seed: int, effort: str) -> None:
    fields = {"response_format": FORMAT, "seed": seed, "reasoning_effort": effort, "thinking_budget": 50}
    choice = whole(server, **fields)
    assert choice.finish_reason == "stop"
    jsonschema.validate(json.loads(choice.message.content), SCHEMA)
    assert streamed(server, **extra(fields)) == (choice.message.content, [], "stop")


def extra(fields: dict[str, Any]) -> dict[str, Any]:
    """The client knows no thinking_budget."""
    own = {name: fields[name] for name in ("thinking_budget",) if name in fields}
    return {name: value for name, value in fields.items() if name not in own} | {"extra_body": own}


def whole(server: Any, **fields: Any) -> Any:
    return ask(server, **extra(fields)).choices[0]


def test_any_json_object(server: Any) -> None:
    fields = {"response_format": {"type": "json_object"}, "max_tokens": 60}
    for seed in range(4):
        choice = whole(server, seed=seed, **fields)
        assert choice.message.content.startswith("{")
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)


@pytest.mark.parametrize("effort", ["none", "high"])
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}], ids=str
)
def test_a_call_is_enforced(server: Any, choice: Any, effort: str) -> None:
    for seed in range(3):
        fields = {"tools": TOOLS, "tool_choice": choice, "seed": seed, "parallel_tool_calls": False}
        fields |= {"reasoning_effort": effort, "thinking_budget": 50}
        answer = whole(server, **fields)
        assert answer.finish_reason == "tool_calls"
        assert not answer.message.content
        [call] = answer.message.tool_calls
        arguments = json.loads(call.function.arguments)
        if call.function.name == "get_weather":
            jsonschema.validate(arguments, PARAMETERS)
        else:
            assert choice == "required" and (call.function.name, arguments) == ("now", {})
        _, calls, reason = streamed(server, **extra(fields))
        assert (calls, reason) == ([(call.function.name, call.function.arguments)], "tool_calls")


def test_a_form_or_calls(server: Any) -> None:
    """As agents ask: tools at hand, and a schema for the answer in the end."""
    fields = {"tools": TOOLS, "response_format": FORMAT}
    answer = whole(server, **fields)
    for call in answer.message.tool_calls:
        if call.function.name == "get_weather":
            jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
    tag = server.service.model.tokenizer.token_id("<tool_calls:opensource>")
    answer = whole(server, logit_bias={str(tag): -100}, **fields)
    assert answer.message.tool_calls is None
    jsonschema.validate(json.loads(answer.message.content), SCHEMA)


def test_choices_differ_and_fit(server: Any) -> None:
    choices = ask(server, response_format=FORMAT, n=3, seed=7).choices
    assert len({choice.message.content for choice in choices}) > 1
    for choice in choices:
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)


def form(**json_schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": json_schema}}


def required(**function: Any) -> dict[str, Any]:
    return {"tool_choice": "required", "tools": [TOOLS[1], {"type": "function", "function": function}]}


BAD: list[tuple[dict[str, Any], str]] = [
    (form(schema={"type": "x"}), "response_format.json_schema.schema"),
    (form(schema={"not": {}}, strict=True), "response_format.json_schema.schema"),
    (form(name="none"), "response_format.json_schema.schema"),
    (form(schema=False), "response_format.json_schema.schema"),
    (
        required(name="f", parameters={"properties": {"x": {"type": 3}}}),
        "tools.1.function.parameters.properties.x",
    ),
    (required(name="two words"), "tools.1.function.name"),
]


@pytest.mark.parametrize(("fields", "param"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_enforced_is_named(server: Any, fields: dict[str, Any], param: str) -> None:
    import openai

    with pytest.raises(openai.BadRequestError) as caught:
        ask(server, **fields)
    assert caught.value.param == param, caught.value


def test_drafts_change_nothing(server: Any, server_with: Any) -> None:
    """Drafts are masked like any token; those that the grammar forbids are never tried."""
    drafting = server_with(mtp=2, scheduler={"mtp": True})
    calls = {"tools": TOOLS, "tool_choice": "required"}
    # How many drafts a request makes depends on what they cost here: ask until enough were tried.
    for seed in range(20):
        for temperature in (0, 1):
            for form in ({"response_format": FORMAT}, calls):
                fields = {"temperature": temperature, "seed": seed, **form}
                expected, found = (ask(each, **fields).choices[0] for each in (server, drafting))
                assert found.message.content == expected.message.content
                told = [
                    [
                        (call.function.name, call.function.arguments)
                        for call in choice.message.tool_calls or ()
                    ]
                    for choice in (expected, found)
                ]
                assert told[0] == told[1]
                assert found.finish_reason == expected.finish_reason
        stats = drafting.service.engine.stats
        if stats["drafted"] > 10 and stats["accepted"] > 0:
            return
    raise AssertionError(f"in vain: {stats}")
