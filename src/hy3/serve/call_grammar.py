"""The grammar of tool calls as the model writes them (hy3.chat.tool_calls), for llguidance, in its Lark.

Tags are tokens and cannot be part of a text. But a value could spell one letter by letter, and whoever reads
the answer would take it for the tag: so no string may contain one. Arguments come in the order of the schema.
A function has the arguments that its schema names, others only where additionalProperties says so.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hy3.chat.arguments import referred, types_of, value_of
from hy3.chat.tool_calls import NAMES, TAG
from hy3.serve.schema import BareString, SchemaError, json_of, literal

if TYPE_CHECKING:
    from hy3core import Tokenizer

# TEXT: a bare string; BARE: one that is not taken for JSON; KEY: of an argument that no schema names.
TERMINALS = r"""
TEXT: /(?s:.*)/ & ~/(?s:.*)<\/?(TAGS)(:opensource)?>(?s:.*)/
BARE: TEXT & ~/\s*[\[{"](?s:.*)/ & ~/\s*-?[0-9][0-9.eE+-]*\s*/ & ~WORD
WORD: /(?i:\s*(true|false|null|none|nan|-?infinity)\s*)/
KEY: /[A-Za-z_][A-Za-z0-9_.-]{0,63}/
""".replace("TAGS", "|".join(NAMES))
FOLLOWED = {"type", "properties", "required", "additionalProperties", "$ref"}
SILENT = {
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "strict",
}
NEWLINE = '"\\n"'
OTHER_TYPES = ["object", "array", "number", "integer", "boolean", "null"]  # than string

Problem = Callable[[str], str]  # of a Lark grammar: why it cannot be used, or ""


def tag_tokens(tokenizer: "Tokenizer") -> Mapping[str, int] | None:
    """The ids of the tags in this model's spelling, by name (`/tool_call`); None if they are not tokens."""
    names = [slash + name for name in NAMES for slash in ("", "/") if slash + name != "/tool_sep"]
    for suffix in (":opensource", ""):
        ids = {name: tokenizer.token_id(f"<{name}{suffix}>") for name in names}
        known = {name: token for name, token in ids.items() if token is not None}
        if len(known) == len(ids):
            return known
    return None


@dataclass(frozen=True)
class Calls:
    """One call, or more, of any of some tools: the body of a rule, and the rules that it refers to."""

    body: str
    rules: str


def grammar_of_calls(
    tags: Mapping[str, int], tools: Mapping[int, Mapping[str, Any]], several: bool, problem: Problem
) -> Calls:
    """`tools`: in OpenAI's form, by their number in the request."""
    tag = {name: f"<[{token}]>" for name, token in tags.items()}
    rules = [TERMINALS]
    for i, tool in tools.items():
        function = tool["function"]
        schema, strict = function.get("parameters") or {}, function.get("strict") is True
        try:
            parameters = Parameters(tag, str(i), schema, strict, problem)
        except SchemaError as error:
            raise SchemaError(error.what, error.hint, error.path, i) from None
        rules += parameters.rules
        rules.append(
            f"f{i}: {tag['tool_call']} {literal(function['name'])} {tag['tool_sep']} {NEWLINE} "
            f"{parameters.sequence} {tag['/tool_call']} {NEWLINE}"
        )
    rules.append(f"call: {' | '.join(f'f{i}' for i in tools)}")
    body = f"{tag['tool_calls']} {NEWLINE} call{'+' if several else ''} {tag['/tool_calls']}"
    return Calls(body, "\n".join(rules))


class Parameters:
    """Of one function: `sequence` is the body of a rule, `rules` what it refers to."""

    def __init__(
        self, tag: Mapping[str, str], place: str, schema: Mapping[str, Any], strict: bool, problem: Problem
    ) -> None:
        self._tag, self._place, self._strict, self._problem = tag, place, strict, problem
        self._root = schema
        self.rules: list[str] = []
        self.sequence = self._sequence(self._object())

    def _object(self) -> Mapping[str, Any]:
        """The schema of all arguments together, behind its references."""
        schema: Any = self._root
        for _ in range(16):
            if isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
                schema = referred(self._root, schema["$ref"])
        if not isinstance(schema, Mapping) or "object" not in _names(schema.get("type", "object")):
            raise SchemaError("The parameters are not an object", 'Give a schema of "type": "object"')
        unknown = sorted(set(schema) - FOLLOWED - SILENT)
        if unknown and self._strict:
            raise SchemaError("This cannot be enforced", "Leave it or strict out", unknown[0])
        return schema

    def _sequence(self, schema: Mapping[str, Any]) -> str:
        others = schema.get("additionalProperties")
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, Mapping) or not _is_strings(required):
            raise SchemaError("properties is an object and required a list of names")
        undeclared = {key: True if others is None else others for key in required if key not in properties}
        arguments = []
        for i, (key, value) in enumerate({**properties, **undeclared}.items()):
            if not key or key != key.strip() or TAG.search(key):
                raise SchemaError(f"{key!r} cannot be the name of an argument", "Rename it", "properties")
            place = f"{self._place}_{i}"
            self._add_argument(place, literal(key), key, value)
            arguments.append(f"a{place}{'' if key in required else '?'}")
        if others is not None and others is not False:
            place = f"{self._place}_{len(arguments)}"
            known = "".join(f" & ~{literal(key)}" for key in [*properties, *undeclared])
            self.rules.append(f"K{self._place}: KEY{known}")
            self._add_argument(place, f"K{self._place}", "", others)
            arguments.append(f"a{place}*")
        return " ".join(arguments)

    def _add_argument(self, place: str, written: str, key: str, schema: Any) -> None:
        tag = self._tag
        value = self._value(place, key, schema)
        self.rules.append(
            f"a{place}: {tag['arg_key']} {written} {tag['/arg_key']} {NEWLINE} "
            f"{tag['arg_value']} ({value}) {tag['/arg_value']} {NEWLINE}"
        )

    def _value(self, place: str, key: str, schema: Any) -> str:
        """A bare string or JSON, whichever the parser of calls reads as something that the schema allows."""
        path = f"properties.{key}" if key else "additionalProperties"
        self._check(f"start: {self._json(schema)}", path)
        types = types_of(self._root, key)
        only_string = types == {"string"}
        same = {"properties": {key: {"type": sorted(types)} if types else {}}}  # to value_of, but quick

        def usable(text: str) -> bool:
            return not TAG.search(text) and bool(json.loads(value_of(same, key, text)) == text)

        string = BareString(self._root, "TEXT" if only_string else "BARE", usable).expression(schema)
        if string is None:
            return self._json(schema)
        self.rules.append(f"V{place}: {string}")
        other = self._json({"allOf": [schema, {"type": OTHER_TYPES}]})
        if not only_string and not self._problem(f"start: {other}"):
            return f"V{place} | {other}"
        self._check(f"start: V{place}\nV{place}: {string}\n{TERMINALS}", path)
        return f"V{place}"

    def _json(self, schema: Any) -> str:
        """Its references are of the whole schema of the parameters, which goes along if there are any."""
        text = json_of(schema, self._strict)
        if '"$ref"' in text:
            root = {key: value for key, value in self._root.items() if key != "$id"}
            text = json_of({"allOf": [_moved(schema)], "$defs": {"parameters": _moved(root)}}, self._strict)
        return f"%json {text}"

    def _check(self, grammar: str, path: str) -> None:
        if problem := self._problem(grammar):
            raise SchemaError(f"This cannot be enforced: {problem}", "Change the schema", path)


def _moved(schema: Any) -> Any:
    """The references of a schema that has gone to `$defs/parameters`."""
    if isinstance(schema, list):
        return [_moved(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved = {key: _moved(value) for key, value in schema.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = "#/$defs/parameters" + reference[1:]
    return moved


def _names(kinds: Any) -> list[Any]:
    return kinds if isinstance(kinds, list) else [kinds]


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
