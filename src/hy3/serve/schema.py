"""JSON schemas that clients send, as parts of grammars for llguidance.

JSON values are llguidance's own business (`%json`). Here are the limits of a schema, and what llguidance has
no word for: a string that is written bare, as the model writes the arguments of calls.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hy3.chat.arguments import referred
from hy3.errors import Hy3Error

MAX_BYTES = 256 * 1024  # of all schemas of a request
MAX_DEPTH = 64  # objects and lists in one another
MAX_REFERENCES = 16  # that lead from one to the next
MAX_LENGTH = 10_000  # of a bare string with a bound: the automaton has a state for each character
# Without a bound a model that is not sure can go on writing blanks for ever.
WHITESPACE = r" |\r?\n[ \t]{0,64}"

_DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": rf"{_BYTE}(\.{_BYTE}){{3}}",
    "hostname": rf"{_LABEL}(\.{_LABEL}){{0,7}}",
    "email": rf"[A-Za-z0-9._%+-]{{1,64}}@{_LABEL}(\.{_LABEL}){{1,7}}",
}


class SchemaError(Hy3Error):
    """A schema that cannot be enforced: `path` leads to what is wrong in it, `tool` says whose it is."""

    def __init__(self, what: str, hint: str = "", path: str = "", tool: int | None = None) -> None:
        super().__init__(what, hint)
        self.path, self.tool = path, tool


def check_size(value: Any) -> None:
    """So that the rest may recur and copy."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise SchemaError(f"The schema is nested deeper than {MAX_DEPTH} levels", "Flatten it")
        level = [inner for each in level for inner in _inside(each)]
    size = len(json.dumps(value))
    if size > MAX_BYTES:
        raise SchemaError(f"The schema takes {size} bytes and may take {MAX_BYTES}", "Make it smaller")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def json_of(schema: Any, strict: bool) -> str:
    """The schema for llguidance. Unless `strict`, keywords that it cannot enforce count for nothing, and a
    oneOf may fit several times."""
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    if not isinstance(schema, Mapping):
        raise SchemaError(f"{schema!r:.40} is no schema", "Give an object")
    options = {"lenient": not strict, "whitespace_pattern": WHITESPACE}
    return json.dumps({**schema, "x-guidance": options}, ensure_ascii=False)


def literal(text: str) -> str:
    """A string in a Lark grammar, which wants DEL escaped, other than JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def regex(pattern: str) -> str:
    """A whole string that matches, in a Lark grammar."""
    from llguidance import regex_to_lark

    return f"/{regex_to_lark(pattern, 'dw')}/"  # \d and \w are ASCII in JSON schemas


class BareString:
    """The strings that a schema allows, as an expression of a Lark grammar's terminals.

    `free` is the terminal of a string without constraints; `usable` says which of the strings that a schema
    lists can be written.
    """

    def __init__(self, root: Mapping[str, Any], free: str, usable: Callable[[str], bool]) -> None:
        self._root, self._free, self._usable = root, free, usable

    def expression(self, schema: Any, references: int = MAX_REFERENCES) -> str | None:
        """None: no string."""
        if isinstance(schema, bool):
            return self._free if schema else None
        if not isinstance(schema, Mapping) or references == 0 or not _allows_strings(schema):
            return None
        terms: list[str | None] = [*_bounds(schema)]
        if "const" in schema or "enum" in schema:
            terms.append(self._listed([schema["const"]] if "const" in schema else schema["enum"]))
        else:
            terms.append(self._free)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                terms.append(_any_of([self.expression(each, references) for each in schema[word]]))
        terms += [self.expression(each, references) for each in schema.get("allOf", ())]
        if "$ref" in schema:
            terms.append(self.expression(referred(self._root, schema["$ref"]), references - 1))
        known = [term for term in terms if term is not None]
        return " & ".join(f"({term})" for term in known) if len(known) == len(terms) else None

    def _listed(self, values: Sequence[Any]) -> str | None:
        return _any_of([literal(each) for each in values if isinstance(each, str) and self._usable(each)])


def _allows_strings(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", "string")
    return "string" in ([kinds] if isinstance(kinds, str) else kinds)


def _any_of(terms: Sequence[str | None]) -> str | None:
    return " | ".join(f"({term})" for term in terms if term is not None) or None


def _bounds(schema: Mapping[str, Any]) -> list[str]:
    terms = []
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if least or most is not None:
        if max(least, most or 0) > MAX_LENGTH:
            raise SchemaError(
                f"Strings of up to {MAX_LENGTH} characters can be bounded", "Leave the bound out"
            )
        terms.append(f"/(?s:.{{{int(least)},{'' if most is None else int(most)}}})/")
    if "pattern" in schema:
        terms.append(searched(schema["pattern"]))
    if schema.get("format") in FORMATS:
        terms.append(regex(FORMATS[schema["format"]]))
    return terms


def searched(pattern: str) -> str:
    """Strings in which the pattern is found somewhere, unless its ^ and $ say where."""
    found = []
    for branch in _branches(pattern):
        start = "" if branch.startswith("^") else "(?s:.*)"
        ends = branch.endswith("$") and not re.search(r"(?<!\\)(\\\\)*\\\$$", branch)
        body = branch.removeprefix("^")
        found.append(f"{start}(?:{body[:-1] if ends else body}){'' if ends else '(?s:.*)'}")
    return " | ".join(regex(each) for each in found)


def _branches(pattern: str) -> list[str]:
    """What stands between the | outside of all brackets."""
    cuts, depth, in_class = [-1], 0, False
    for token in re.finditer(r"\\.|[\[\]()|]", pattern, re.DOTALL):
        sign = token.group()
        if in_class:
            in_class = sign != "]"
        elif sign == "[":
            in_class = True
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        elif sign == "|" and depth == 0:
            cuts.append(token.start())
    return [pattern[a + 1 : b] for a, b in zip(cuts, [*cuts[1:], len(pattern)], strict=True)]
