"""The parser of tool calls: right ones, the broken ones seen in the wild, and every way of cutting them."""

import json
import random
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hy3.chat.arguments import value_of
from hy3.chat.tool_calls import TAGS, Arguments, CallStart, Event, Text, ToolCallParser

TOOLS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "units": {"type": "string", "enum": ["C", "F"]},
            "detail": {"type": "boolean"},
        },
    },
    "calculate": {
        "type": "object",
        "properties": {
            "expr": {"type": "string"},
            "opts": {"type": "object"},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "ratio": {"$ref": "#/$defs/number"},
        },
        "$defs": {"number": {"type": "number"}},
    },
    "now": {"type": "object", "properties": {}},
}

Result = tuple[str, list[tuple[str, Any]]]

# text with tags of the short spelling; what is text; what is called.
CASES: dict[str, tuple[str, str, list[tuple[str, Any]]]] = {
    "no call": ("Just 1 < 2 and <b>.", "Just 1 < 2 and <b>.", []),
    "one call": (
        "Let me see.<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n"
        "<arg_value>東京</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n</tool_calls>",
        "Let me see.",
        [("get_weather", {"city": "東京", "days": 3})],
    ),
    "parallel": (
        "<tool_calls>\n<tool_call>now<tool_sep>\n</tool_call>\n<tool_call>calculate<tool_sep>\n<arg_key>expr"
        "</arg_key>\n<arg_value>1<2</arg_value>\n<arg_key>opts</arg_key>\n"
        '<arg_value>{"deep": [1, true, null]}'
        "</arg_value>\n</tool_call>\n</tool_calls>",
        "",
        [("now", {}), ("calculate", {"expr": "1<2", "opts": {"deep": [1, True, None]}})],
    ),
    "name closed by arg_value": (
        "<tool_calls><tool_call>get_weather</arg_value>\n<arg_key>city</arg_key><arg_value>X</arg_value></tool_call></tool_calls>",
        "",
        [("get_weather", {"city": "X"})],
    ),
    "name closed by tool_call, arguments follow": (
        "<tool_calls><tool_call>get_weather</tool_call>\n<arg_key>city</arg_key><arg_value>X</arg_value></tool_call></tool_calls>",
        "",
        [("get_weather", {"city": "X"})],
    ),
    "name closed by tool_call, no arguments": (
        "<tool_calls>\n<tool_call>now</tool_call>\n<tool_call>get_weather<tool_sep><arg_key>city</arg_key>"
        "<arg_value>X</arg_value></tool_call></tool_calls>done",
        "done",
        [("now", {}), ("get_weather", {"city": "X"})],
    ),
    "name closed by nothing": (
        "<tool_calls><tool_call>now\n<tool_call>get_weather\n<arg_key>city</arg_key><arg_value>X</arg_value>"
        "</tool_call></tool_calls>",
        "",
        [("now", {}), ("get_weather", {"city": "X"})],
    ),
    "think tag in a value": (
        "<tool_call>calculate<tool_sep><arg_key>expr</arg_key><arg_value>a</think>b</arg_value></tool_call>",
        "",
        [("calculate", {"expr": "a</think>b"})],
    ),
    "other tags in a value": (
        "<tool_call>calculate<tool_sep><arg_key>expr</arg_key><arg_value><tool_call>x</tool_call> y <arg_key>"
        "</arg_value></tool_call>",
        "",
        [("calculate", {"expr": "<tool_call>x</tool_call> y <arg_key>"})],
    ),
    "quoted numbers and Python's words": (
        '<tool_call>get_weather<tool_sep><arg_key>days</arg_key><arg_value>"3"</arg_value><arg_key>detail</arg_key>'
        "<arg_value>True</arg_value></tool_call><tool_call>calculate<tool_sep><arg_key>limit</arg_key>"
        "<arg_value>None</arg_value><arg_key>ratio</arg_key><arg_value>2</arg_value></tool_call>",
        "",
        [("get_weather", {"days": 3, "detail": True}), ("calculate", {"limit": None, "ratio": 2})],
    ),
    "a string that looks like a number": (
        "<tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>42</arg_value></tool_call>",
        "",
        [("get_weather", {"city": "42"})],
    ),
    "no closing tag of a key": (
        "<tool_call>get_weather<tool_sep><arg_key>city<arg_value>X</arg_value></tool_call>",
        "",
        [("get_weather", {"city": "X"})],
    ),
    "no opening tag of a value": (
        "<tool_call>get_weather<tool_sep><arg_key>city</arg_key>X</arg_value></tool_call>",
        "",
        [("get_weather", {"city": "X"})],
    ),
    "no closing tag of a value": (
        "<tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>X</tool_call>\n</tool_calls>",
        "",
        [("get_weather", {"city": "X"})],
    ),
    "no tool_call end": (
        "<tool_calls><tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>X</arg_value></tool_calls>",
        "",
        [("get_weather", {"city": "X"})],
    ),
    "cut off in a string": (
        '<tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>New "Yo',
        "",
        [("get_weather", {"city": 'New "Yo'})],
    ),
    "cut off in a key": (
        "<tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>X</arg_value><arg_key>da",
        "<arg_key>da",
        [("get_weather", {"city": "X"})],
    ),
    "cut off in a name": ("<tool_calls>\n<tool_call>get_w", "<tool_calls>\n<tool_call>get_w", []),
    "cut off after a name": ("<tool_calls>\n<tool_call>now", "", [("now", {})]),
    "cut off in a tag": ("<tool_call>now<tool_sep></tool_c", "</tool_c", [("now", {})]),
    "the tag as a word": ("Write <tool_calls> first.", "Write <tool_calls> first.", []),
    "an empty block": ("<tool_calls>\n</tool_calls>", "<tool_calls>\n</tool_calls>", []),
    "no name": (
        "<tool_call><tool_sep><arg_key>a</arg_key>",
        "<tool_call><tool_sep><arg_key>a</arg_key>",
        [],
    ),
    "words in place of a name": (
        "<tool_call>to be or not</tool_call>",
        "<tool_call>to be or not</tool_call>",
        [],
    ),
    "words between": (
        "<tool_calls><tool_call>now<tool_sep> hm \n</tool_call> and\n<tool_call>now<tool_sep></tool_call>\n"
        "</tool_calls>.",
        " hm and\n.",
        [("now", {}), ("now", {})],
    ),
    "an unknown function": (
        "<tool_call>fly<tool_sep><arg_key>n</arg_key><arg_value>[1]</arg_value><arg_key>s</arg_key><arg_value>up"
        "</arg_value></tool_call>",
        "",
        [("fly", {"n": [1], "s": "up"})],
    ),
}


def run(chunks: list[str]) -> Result:
    parser = ToolCallParser(TOOLS)
    events: list[Event] = [event for chunk in chunks for event in parser.push(chunk)]
    return merged(events + parser.finish())


def merged(events: list[Event]) -> Result:
    text, names, arguments = "", [], []
    for event in events:
        if not isinstance(event, Arguments) and arguments:
            json.loads(arguments[-1])  # the call before is complete
        if isinstance(event, Text):
            text += event.text
        elif isinstance(event, CallStart):
            assert event.index == len(names)
            names.append(event.name)
            arguments.append("")
        elif isinstance(event, Arguments):
            assert event.index == len(names) - 1  # of the latest call
            arguments[event.index] += event.fragment
    return text, list(zip(names, [json.loads(text) for text in arguments], strict=True))


def spelled(text: str) -> str:
    """With the tags of the other spelling."""
    for tag in TAGS:
        if not tag.endswith(":opensource>"):
            text = text.replace(tag, tag[:-1] + ":opensource>")
    return text


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    given_text, text, calls = CASES[name]
    assert run([given_text]) == (text, calls)
    spelled_calls = [
        (called, {key: spelled(value) if isinstance(value, str) else value for key, value in named.items()})
        for called, named in calls
    ]
    assert run([spelled(given_text)]) == (spelled(text), spelled_calls)


@pytest.mark.parametrize("name", CASES)
def test_every_split(name: str) -> None:
    for whole in (CASES[name][0], spelled(CASES[name][0])):
        expected = run([whole])
        assert run(list(whole)) == expected
        for at in range(len(whole)):
            assert run([whole[:at], whole[at:]]) == expected
        if len(whole) < 80:
            for a, b in combinations(range(len(whole)), 2):
                assert run([whole[:a], whole[a:b], whole[b:]]) == expected


def test_a_string_streams_and_other_values_do_not() -> None:
    parser = ToolCallParser(TOOLS)
    parser.push("<tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>")
    assert parser.push("New ") == [Arguments(0, "New ")]
    parser.push("</arg_value><arg_key>days</arg_key><arg_value>")
    assert parser.push('"1') == []
    assert parser.push('2"</arg_value>') == [Arguments(0, ', "days": 12')]


@settings(deadline=None, max_examples=400)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(TAGS),
            st.sampled_from(
                ["now", "get_weather", "city", "days", "\n", " ", "<", "</", '"', "\\", "{", "9"]
            ),
            st.text(max_size=5),
        ),
        max_size=25,
    ),
    st.integers(0, 1 << 30),
)
def test_any_soup_of_tags(parts: list[str], seed: int) -> None:
    """JSON in every call (merged() reads it), and the same however it is cut."""
    whole = "".join(parts)
    expected = run([whole])
    source = random.Random(seed)
    cuts = sorted(source.randrange(len(whole) + 1) for _ in range(6))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert run(pieces) == expected


@pytest.mark.parametrize(
    ("schema", "text", "wanted"),
    [
        ({"type": "integer"}, "5.0", 5),
        ({"type": "integer"}, " 7\n", 7),
        ({"type": "integer"}, "many", "many"),
        ({"type": "integer"}, "5.5", 5.5),
        ({"type": "number"}, "1e999", 1.7976931348623157e308),
        ({"type": "array"}, '["é", -1e999]', ["é", -1.7976931348623157e308]),
        ({"type": ["number", "string"]}, "1e999", "1e999"),
        ({}, "1e999", "1e999"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "boolean"}, "FALSE", False),
        ({"type": "array"}, '"[1, 2]"', [1, 2]),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "no", "no"),
        ({"type": ["string", "integer"]}, "12", 12),
        ({"enum": ["a", "b"]}, "a", "a"),
        ({"enum": [1, 2]}, "2", 2),
        ({"const": True}, "true", True),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "1", "1"),
        ({}, '"quoted"', '"quoted"'),
        ({}, "[" * 100_000, "[" * 100_000),
        ({"$ref": "#/nowhere/~1"}, "[]", []),
        ({"$ref": 7}, "[]", []),
    ],
)
def test_types_by_schema(schema: dict[str, Any], text: str, wanted: Any) -> None:
    found = json.loads(value_of({"properties": {"x": schema}}, "x", text))
    assert found == wanted and type(found) is type(wanted)
