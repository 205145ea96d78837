"""Answers of a given form: what is drawn under the masks is valid, and a mask depends on the ids alone."""

import contextlib
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hy3core

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("llguidance")

from hy3.chat.tool_calls import Arguments, CallStart, Text, ToolCallParser  # noqa: E402
from hy3.serve.schema import MAX_BYTES, MAX_DEPTH, SchemaError  # noqa: E402
from hy3.serve.structured import Constraint, Grammars, grammars_of  # noqa: E402

MODEL = Path(__file__).parents[2] / "src/hy3/models/hy3-tiny.gguf"
LONG = 80  # tokens, from which on a drawn answer is led to its end
LIMIT = 300
SCHEMAS: list[Any] = [
    {"type": "object"},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]},
    {"type": "array", "items": {"type": "number", "minimum": -1, "maximum": 1.5}, "maxItems": 4},
    {"type": "string", "pattern": "^[a-c]{2,5}$"},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"enum": ["red", 7, None, {"x": [True]}]},
    {"anyOf": [{"type": "boolean"}, {"type": "array", "minItems": 1, "items": {"const": "é"}}]},
    {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node",
    },
    {"type": "object", "additionalProperties": {"type": "integer"}, "properties": {"x": {"type": "null"}}},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "minItems": 2, "items": False},
    {"type": "string", "format": "date"},
    {"type": "integer", "exclusiveMinimum": 10, "multipleOf": 7},
]  # fmt: skip


@cache
def bundled() -> hy3core.Model:
    return hy3core.Model(MODEL)


@pytest.fixture
def model() -> hy3core.Model:
    return bundled()


@pytest.fixture
def grammars() -> Grammars:
    return grammars_of(bundled())


def allowed(mask: bytes) -> np.ndarray:
    return np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little"))


Draw = Callable[[np.ndarray, list[int]], int]


def write(model: hy3core.Model, constraint: Constraint, draw: Draw) -> list[int] | None:
    """The ids of an answer, drawn from what is allowed; None if it comes to no end."""
    ids: list[int] = []
    ends = set(model.tokenizer.eos_ids)
    closing = [model.tokenizer.token_id(text) for text in ('"', "}", "]", "</arg_value:opensource>", "0")]
    while len(ids) < LIMIT:
        choices = allowed(constraint.mask(ids))
        assert choices.size, model.tokenizer.decode(ids, special=True)
        token = draw(choices, ids)
        if len(ids) > LONG:
            urgent = [*ends, *closing]
            token = next((each for each in urgent if each in choices), token)
        if token in ends:
            return ids
        ids.append(int(token))
    return None


def randomly(seed: int) -> Draw:
    source = random.Random(seed)
    return lambda choices, ids: int(choices[source.randrange(choices.size)])


def by_model(model: hy3core.Model, seed: int) -> Draw:
    """What hy3-tiny would say at temperature 1.5."""
    session = model.session(ctx=2048)
    sampling = hy3core.Sampling(temperature=1.5, seed=seed)
    prompt = model.tokenizer.encode("Hello!")

    def draw(choices: np.ndarray, ids: list[int]) -> int:
        logits = session.eval(prompt if not ids else ids[-1:])
        masked = np.full_like(logits, -1e30)
        masked[choices] = logits[choices]
        return hy3core.sample(masked, sampling, ids, session.position)

    return draw


def check(model: hy3core.Model, constraint: Constraint, schema: Any, draw: Draw) -> bool:
    ids = write(model, constraint, draw)
    if ids is not None:
        text = b"".join(model.tokenizer.piece(i) for i in ids).decode()
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    return ids is not None


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:60])
def test_what_the_model_says_is_valid(model: hy3core.Model, grammars: Grammars, schema: Any) -> None:
    constraint = grammars.for_schema(schema, strict=True)
    ended = [check(model, constraint, schema, by_model(model, seed)) for seed in range(4)]
    ended += [check(model, constraint, schema, randomly(seed)) for seed in range(8)]
    assert sum(ended) > 6


def schemas() -> st.SearchStrategy[Any]:
    """Schemas that something is valid by."""
    bounds = st.tuples(st.integers(-50, 50), st.integers(0, 50)).map(lambda t: (t[0], t[0] + t[1]))
    lengths = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda t: (t[0], t[0] + t[1]))
    names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
    values = st.one_of(st.none(), st.booleans(), st.integers(-999, 999), names)
    leaves = st.one_of(
        st.sampled_from([{"type": kind} for kind in ("boolean", "null", "integer", "string")]),
        bounds.map(lambda b: {"type": "integer", "minimum": b[0], "maximum": b[1]}),
        bounds.map(lambda b: {"type": "number", "exclusiveMinimum": b[0] - 0.5, "maximum": b[1]}),
        lengths.map(lambda b: {"type": "string", "minLength": b[0], "maxLength": b[1]}),
        st.sampled_from(["^a+b$", "[0-9]", "^x|y$", "(ab|c)d", r"\d\w"]).map(
            lambda p: {"type": "string", "pattern": p}
        ),
        st.lists(values, min_size=1, max_size=4).map(lambda v: {"enum": v}),
        values.map(lambda v: {"const": v}),
        st.lists(st.sampled_from(["string", "integer", "null"]), min_size=1, unique=True).map(
            lambda kinds: {"type": kinds}
        ),
    )

    def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.builds(
                lambda item, b: {"type": "array", "items": item, "minItems": b[0], "maxItems": b[1]},
                inner,
                lengths,
            ),
            st.builds(
                lambda properties, n, more: {
                    "type": "object",
                    "properties": properties,
                    "required": list(properties)[:n],
                    "additionalProperties": more,
                },
                st.dictionaries(names, inner, max_size=4),
                st.integers(0, 4),
                st.one_of(st.booleans(), inner),
            ),
            st.lists(inner, min_size=1, max_size=3).map(lambda each: {"anyOf": each}),
        )

    return st.recursive(leaves, deeper, max_leaves=8)


QUICK = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))


@QUICK
@given(schemas(), st.integers(0, 1 << 30))
def test_what_is_drawn_is_valid(schema: Any, seed: int) -> None:
    model = bundled()
    check(model, grammars_of(model).for_schema(schema, strict=True), schema, randomly(seed))


def tool(name: str, parameters: Mapping[str, Any] | None = None, strict: bool = False) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, "strict": strict}}


def parsed(text: str, tools: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    schemas = {each["function"]["name"]: each["function"]["parameters"] or {} for each in tools}
    parser = ToolCallParser(schemas)
    calls: list[tuple[str, str]] = []
    for event in parser.push(text) + parser.finish():
        assert not isinstance(event, Text), text
        if isinstance(event, CallStart):
            calls.append((event.name, ""))
        elif isinstance(event, Arguments):
            calls[-1] = (calls[-1][0], calls[-1][1] + event.fragment)
    return [(name, json.loads(arguments)) for name, arguments in calls]


@QUICK
@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=5), schemas()),
    st.integers(0, 3),
    st.sampled_from([None, False, True, {"type": "integer"}, {"type": "string"}]),
    st.integers(0, 1 << 30),
)
def test_calls_are_valid_as_the_parser_reads_them(
    properties: dict[str, Any], n: int, others: Any, seed: int
) -> None:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:n]}
    if others is not None:
        parameters["additionalProperties"] = others
    tools = [tool("f", parameters), tool("g.h-1")]
    model = bundled()
    ids = write(model, grammars_of(model).for_tools(dict(enumerate(tools))), randomly(seed))
    if ids is None:
        return
    calls = parsed(model.tokenizer.decode(ids, special=True), tools)
    assert calls
    for name, arguments in calls:
        if name == "f":
            jsonschema.Draft202012Validator(parameters).validate(arguments)
            assert set(arguments) <= set(properties) or others
        else:
            assert (name, arguments) == ("g.h-1", {})


def test_one_call_where_only_one_is_wanted(model: hy3core.Model, grammars: Grammars) -> None:
    tools = [tool("now"), tool("then")]
    for seed in range(8):
        ids = write(model, grammars.for_tools(dict(enumerate(tools)), several=False), randomly(seed))
        assert ids is not None
        assert len(parsed(model.tokenizer.decode(ids, special=True), tools)) == 1


def test_references_between_the_parameters(model: hy3core.Model, grammars: Grammars) -> None:
    parameters = {
        "$id": "https://example.com/p",
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/word"},
            "b": {"type": "array", "items": {"$ref": "#/properties/c"}, "minItems": 1, "maxItems": 2},
            "c": {"anyOf": [{"$ref": "#/$defs/word"}, {"type": "null"}]},
        },
        "required": ["a", "b", "c"],
        "$defs": {"word": {"enum": ["yes", "no"]}},
    }
    tools = [tool("f", parameters, strict=True)]
    for seed in range(8):
        ids = write(model, grammars.for_tools(dict(enumerate(tools)), several=False), randomly(seed))
        assert ids is not None
        [(_, arguments)] = parsed(model.tokenizer.decode(ids, special=True), tools)
        assert arguments["a"] in ("yes", "no") and arguments["c"] in ("yes", "no", None)
        assert set(arguments["b"]) <= {"yes", "no", None}


def accepts(model: hy3core.Model, constraint: Constraint, text: str) -> bool:
    """Whether an answer may be `text` and end there."""
    ids = model.tokenizer.encode(text)
    ends = model.tokenizer.eos_ids
    return bool(constraint.mask(ids)[ends[0] // 8] >> ends[0] % 8 & 1) and (
        not ids or bool(constraint.mask(ids[:-1])[ids[-1] // 8] >> ids[-1] % 8 & 1)
    )


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"type": "string"}, "any thing", True),
        ({"type": "string"}, '{"a": "b"}', True),
        ({"type": "string"}, "5", True),
        ({"type": "string"}, "a</arg_value>", False),
        ({"type": "string"}, "a</think>b", True),
        ({"type": "string", "pattern": "[0-9]"}, "a1b", True),
        ({"type": "string", "pattern": "[0-9]"}, "ab", False),
        ({"type": "string", "pattern": "^a|b$"}, "ax", True),
        ({"type": "string", "pattern": "^a|b$"}, "xa", False),
        ({"type": "string", "pattern": "^[|]$"}, "|", True),
        ({"type": "string", "pattern": r"\$$"}, "a$", True),
        ({"type": "string", "pattern": r"\$"}, "$a", True),
        ({"type": "string", "maxLength": 3}, "東京都", True),
        ({"type": "string", "maxLength": 3}, "東京都庁", False),
        ({"type": "string", "format": "date"}, "2024-02-30", True),
        ({"type": "string", "format": "date"}, "yesterday", False),
        ({"type": ["string", "integer"]}, "12", True),
        ({"type": ["string", "integer"], "minimum": 20}, "12", False),
        ({"type": ["string", "integer"], "minimum": 20}, "12 apples", True),
        ({"type": ["string", "null"]}, "null", True),
        ({"enum": ["1", None]}, "1", True),
        ({"enum": ["1", 2]}, "1", False),
        ({}, '["x"]', True),
        ({}, "words", True),
        ({"type": "integer"}, "words", False),
        ({"enum": ['a\x7f\0"b']}, 'a\x7f\0"b', True),
    ],
)
def test_values_of_arguments(
    model: hy3core.Model, grammars: Grammars, schema: Any, value: str, fits: bool
) -> None:
    text = (
        "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>x</arg_key>\n<arg_value>VALUE</arg_value>\n"
        "</tool_call>\n</tool_calls>"
    ).replace(">", ":opensource>")
    tools = [tool("f", {"type": "object", "properties": {"x": schema}, "required": ["x"]})]
    assert accepts(model, grammars.for_tools(dict(enumerate(tools))), text.replace("VALUE", value)) is fits


def test_an_end_is_allowed_only_where_the_grammar_ends(model: hy3core.Model, grammars: Grammars) -> None:
    constraint = grammars.for_schema({"type": "array", "items": {"type": "integer"}}, strict=True)
    ends = set(model.tokenizer.eos_ids)
    for text, may_end in (("", False), ("[1", False), ("[1, 22]", True)):
        ids = model.tokenizer.encode(text)
        assert ends.isdisjoint(allowed(constraint.mask(ids))) is not may_end
    assert set(allowed(constraint.mask([*ids, 982]))) == ends


def test_no_special_token_in_a_string(model: hy3core.Model, grammars: Grammars) -> None:
    constraint = grammars.for_json_object()
    inside = set(allowed(constraint.mask(model.tokenizer.encode('{"a": "b'))))
    for i in range(model.config.vocab_size):
        assert i not in inside or (not model.tokenizer.is_control(i) and model.tokenizer.piece(i))
    assert model.tokenizer.token_id("</think:opensource>") not in inside


@settings(QUICK, max_examples=40)
@given(st.sampled_from(SCHEMAS), st.integers(0, 1 << 30))
def test_masks_depend_on_the_ids_alone(schema: Any, seed: int) -> None:
    """One by one, all at once, or after drafts that came to nothing, also such that do not fit."""
    model = bundled()
    grammars = grammars_of(model)
    ids = write(model, grammars.for_schema(schema, strict=True), randomly(seed))
    if ids is None:
        return
    stepwise = grammars.for_schema(schema, strict=True)
    expected = [stepwise.mask(ids[:n]) for n in range(len(ids) + 1)]
    wandering, source = stepwise.copy(), random.Random(seed)
    for _ in range(25):
        n = source.randrange(len(ids) + 1)
        drafts = [source.randrange(model.config.vocab_size) for _ in range(source.randrange(3))]
        wandering.mask([*ids[:n], *drafts])
        assert wandering.mask(ids[:n]) == expected[n]
        assert stepwise.copy().mask(ids[:n]) == expected[n]


BAD: list[tuple[Any, str]] = [
    ({"not": {"type": "string"}}, "not"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"$ref": "https://example.com/schema"}, "example.com"),
    ({"$ref": "#/$defs/none"}, "none"),
    ({"type": "text"}, "text"),
    ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum"),
    ({"enum": []}, "Unsatisfiable"),
    ({"$ref": "#"}, "NoExtension"),
    ({"properties": 3}, "properties"),
    ({"type": "string", "pattern": "(?=a)b"}, "regex"),
    ({"type": "string", "pattern": "("}, "regex"),
    ({"description": "x" * MAX_BYTES}, str(MAX_BYTES)),
]


@pytest.mark.parametrize(("schema", "reason"), BAD, ids=range(len(BAD)))
def test_a_schema_that_cannot_be_enforced(grammars: Grammars, schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        grammars.for_schema(schema, strict=True)


def test_what_is_not_strict_ignores_what_cannot_be_enforced(model: hy3core.Model, grammars: Grammars) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    assert accepts(model, grammars.for_schema(schema, strict=False), "[1, 1]")


def test_depth(grammars: Grammars) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(100_000):
        schema = {"items": schema}
    with pytest.raises(SchemaError, match=str(MAX_DEPTH)):
        grammars.for_schema(schema, strict=False)


@pytest.mark.parametrize(
    ("parameters", "strict", "path"),
    [
        ({"type": "array"}, False, ""),
        ({"properties": {" x": {}}}, False, "properties"),
        ({"properties": {"x": {"type": "no"}}}, False, "properties.x"),
        ({"properties": {"x": {"not": {}}}}, True, "properties.x"),
        ({"properties": {"x": {"type": "string", "pattern": "a^"}}}, False, "properties.x"),
        ({"additionalProperties": {"enum": []}}, False, "additionalProperties"),
        ({"minProperties": 1}, True, "minProperties"),
    ],
)
def test_bad_parameters_are_named(grammars: Grammars, parameters: Any, strict: bool, path: str) -> None:
    with pytest.raises(SchemaError) as caught:
        grammars.for_tools({3: tool("f"), 7: tool("g", parameters, strict)})
    assert (caught.value.tool, caught.value.path) == (7, path)


def test_json_or_calls(model: hy3core.Model, grammars: Grammars) -> None:
    """What agents ask for: the tools are there, and the last answer has a form."""
    constraint = grammars.for_schema({"type": "integer"}, tools={0: tool("now")})
    call = "<tool_calls>\n<tool_call>now<tool_sep>\n</tool_call>\n</tool_calls>".replace(">", ":opensource>")
    assert accepts(model, constraint, "12")
    assert accepts(model, constraint, call)
    assert not accepts(model, constraint, "words")


HOSTILE: dict[str, Any] = {
    "patterns together": {"allOf": [{"type": "string", "pattern": f"x{i}"} for i in range(60)]},
    "many properties": {"properties": {f"k{i}": {"type": "integer"} for i in range(3000)}},
    "many patterns": {"patternProperties": {f"^a{i}$": {"type": "integer"} for i in range(900)}},
    "many words or none": {"enum": [None, *(f"word {i}" for i in range(9000))]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_ends_in_time(model: hy3core.Model, grammars: Grammars, name: str) -> None:
    schema = HOSTILE[name]
    begun = time.process_time()
    with contextlib.suppress(SchemaError):
        grammars.for_schema(schema).mask(())
    if "enum" in schema:  # of arguments each word is looked at here
        assert allowed(grammars.for_tools({0: tool("f", {"properties": {"x": schema}})}).mask(())).size
    assert time.process_time() - begun < 10  # of this process
    assert accepts(model, grammars.for_schema({"type": "integer", "minimum": 3}), "4")


KEYWORDS = """type properties items enum const anyOf oneOf allOf $ref pattern minLength maxLength required
minItems format additionalProperties prefixItems x-guidance $defs string integer object array #/$defs/a # ^(
date"""
WORDS = st.sampled_from(KEYWORDS.split())
JUNK = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), WORDS, st.text(max_size=3)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=5)),
    max_leaves=25,
)


@settings(QUICK, max_examples=40)
@given(st.dictionaries(WORDS, JUNK, max_size=5), st.booleans())
def test_junk_is_refused_or_enforced(junk: Any, strict: bool) -> None:
    grammars = grammars_of(bundled())
    for make in (
        lambda: grammars.for_schema(junk, strict),
        lambda: grammars.for_tools({0: tool("f", junk, strict)}, True),
        lambda: grammars.for_tools({0: tool("f", {"properties": {"x": junk}}, strict)}, True),
    ):
        with contextlib.suppress(SchemaError):
            assert allowed(make().mask(())).size
