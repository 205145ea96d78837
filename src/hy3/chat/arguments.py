"""Arguments of tool calls: from the text a model wrote to JSON, by the schema of the function's parameters.

The format (hy3.chat.tool_calls) writes a string as it is and every other value as JSON, so that `5` may be a
number or a string; the schema decides. A model also quotes a number now and then, or writes Python's `True`.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

DEPTH = 8  # of references and alternatives that are followed
WORDS = {"boolean": {"true": "true", "false": "false"}, "null": {"null": "null", "none": "null"}}


def is_string(parameters: Mapping[str, Any], key: str) -> bool:
    """Whether an argument can be nothing but a string, so that its text can be passed on as it comes."""
    return types_of(parameters, key) == {"string"}


def value_of(parameters: Mapping[str, Any], key: str, text: str) -> str:
    """The argument as JSON. What fits no type that the schema allows stays what it looks like: JSON if it is
    that, else a string."""
    types = types_of(parameters, key)
    if types == {"string"}:
        return quoted(text)
    fitting = _fitting(text.strip(), types)
    if fitting is not None:
        return fitting
    if "string" in types:
        return quoted(text)
    parsed, value = _parse(text.strip())
    # A string is written bare, so that quotes around it are part of it.
    return text.strip() if parsed and not isinstance(value, str) else quoted(text)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _fitting(text: str, types: set[str]) -> str | None:
    """`text` as JSON of one of the types other than string; None if it is none of them."""
    parsed, value = _parse(text)
    if not parsed and "string" not in types:
        parsed, value = _parse(text, _clamped)
        text = json.dumps(value, ensure_ascii=False) if parsed else text
    if isinstance(value, str):
        return _fitting(value.strip(), types) if value != text else None
    if parsed:
        kind = _type(value)
        if kind in types or (kind == "integer" and "number" in types):
            return text
        return str(int(value)) if kind == "number" and "integer" in types and value.is_integer() else None
    for name in types:
        if (word := WORDS.get(name, {}).get(text.lower())) is not None:
            return word
    return None


def _type(value: Any) -> str:
    for kinds, name in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    ):
        if isinstance(value, kinds):
            return name
    return "null"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number} is out of range")
    return value


def _clamped(number: str) -> float:
    """What a schema wants as a number, or with one inside, stays that, if far out."""
    return max(-sys.float_info.max, min(sys.float_info.max, float(number)))


def _parse(text: str, number: Callable[[str], float] = _finite) -> tuple[bool, Any]:
    """Whether it is JSON that every parser reads, and its value."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=number)
    except (ValueError, RecursionError):
        return False, None
    return True, value


def types_of(parameters: Mapping[str, Any], key: str) -> set[str]:
    """Names of the types an argument may have; empty: any, or nothing is known."""
    properties = parameters.get("properties")
    schema = properties.get(key) if isinstance(properties, Mapping) else None
    return _types_in(schema, parameters, DEPTH)


def _types_in(schema: Any, root: Mapping[str, Any], depth: int) -> set[str]:
    if not isinstance(schema, Mapping) or depth == 0:
        return set()
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {name for name in kind if isinstance(name, str)}
    if "const" in schema:
        return {_type(schema["const"])}
    if isinstance(schema.get("enum"), list):
        return {_type(value) for value in schema["enum"]}
    if isinstance(schema.get("$ref"), str):
        return _types_in(referred(root, schema["$ref"]), root, depth - 1)
    for word in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(word), list):
            found = [_types_in(each, root, depth - 1) for each in schema[word]]
            known = [types for types in found if types]
            if word == "allOf":
                return set.intersection(*known) if known else set()
            return set.union(*known) if known and len(known) == len(found) else set()
    return set()


def referred(root: Mapping[str, Any], reference: str) -> Any:
    """What `#/$defs/NAME` points at; None if it leads nowhere."""
    if not reference.startswith("#/"):
        return None
    at: Any = root
    for part in reference[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        at = at.get(part) if isinstance(at, Mapping) else None
    return at
