"""Request bodies to fuzz with: a sound one for every endpoint and feature, and what is changed about them.

Every case follows from the seed and its number: `python -m eval.server.bodies SEED NUMBER` prints it.
"""

import copy
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent
SOUND: list[tuple[str, dict[str, Any]]] = [
    (line["path"], line["body"])
    for line in map(json.loads, (ROOT / "sound.jsonl").read_text(encoding="utf-8").splitlines())
]

NUMBERS = [
    *(0, -1, 1, 2, 3, 17, 128, 129, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, -(1 << 31) - 1, 1 << 53),
    *((1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 63), 10**30, 10**400),
    *(0.5, -0.5, 1e-320, 1e30, 1e308, -1e308, 2.0, 1.5, float("nan"), float("inf"), float("-inf")),
]
SHORT_TEXTS = [
    *("", " ", "x", "\0", "\n\r\t", "\ufeff", "\u202e", "\ud800", "\udfff\ud800", "e\u0301" * 40, "ﷺ" * 9),
    *(
        "👩‍👩‍👧‍👦",
        "<think:opensource>",
        "</think:opensource>",
        "<tool_calls:opensource>",
        "<｜hy_eos:opensource｜>",
    ),
    *("<tool_call:opensource>add<tool_sep:opensource>", "{{ 7 * 7 }}", "../../etc/passwd", "%s%n", "null"),
    *("{% for i in range(10**9) %}x{% endfor %}", "NaN", "-1", "1e999", "auto", "required", "none", "user"),
    *("system", "developer", "assistant", "tool", "function", "text", "image_url", "hy3-tiny", "json_schema"),
    *("json_object", "minimal", "xhigh"),
]
TEXTS = [*SHORT_TEXTS, "a" * 100_000, "你" * 30_000]
SCHEMAS: list[Any] = [
    *({"$ref": "#"}, {"$ref": "#/nowhere"}, {"$ref": "http://127.0.0.1:9/x"}, {"type": "nothing"}, True),
    *({"type": "string", "pattern": "(a+)+$"}, {"type": "string", "pattern": "(" * 500}, {"enum": []}, False),
    *({"type": "string", "minLength": 10**9}, {"type": "array", "minItems": 10**9, "items": {}}),
    *({"type": "integer", "minimum": 5, "maximum": 1}, {"type": "integer", "multipleOf": 0}, {"not": {}}),
    *({"allOf": [{"type": "string"}, {"type": "integer"}]}, {"type": ["string", "integer", None]}),
    {"type": "object", "patternProperties": {"[": {}}},
    {"type": "object", "properties": {str(i): {"type": "integer"} for i in range(2000)}},
    {"anyOf": [{"const": "x" * i} for i in range(500)]},
]
# Fields that a client may send anywhere, known here or not.
FIELDS = sorted(
    {key for _, body in SOUND for key in body}
    | {"model", "ignore_eos", "min_tokens", "functions", "function_call", "stop_token_ids", "background", ""}
    | {"previous_response_id", "include", "audio", "modalities", "prediction", "service_tier", "truncation"}
    | {"thinking_budget", "cache_prompt", "__proto__"}
)


class Case(NamedTuple):
    label: str  # what was changed
    path: str
    body: bytes


Place = tuple[Any, Any]  # a container in the body and a key or index in it


def places(value: Any) -> list[Place]:
    """Every place below a value."""
    pairs: list[Any] = []
    if isinstance(value, dict):
        pairs = [(value, key) for key in value]
    elif isinstance(value, list):
        pairs = [(value, at) for at in range(len(value))]
    return pairs + [place for container, key in pairs for place in places(container[key])]


def nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


def some_value(rng: random.Random) -> Any:
    choices: list[Callable[[], Any]] = [
        lambda: rng.choice(NUMBERS),
        lambda: rng.choice(TEXTS),
        lambda: "".join(chr(rng.choice([rng.randrange(128), rng.randrange(0x110000)])) for _ in range(9)),
        lambda: rng.choice([None, True, False, [], {}]),
        lambda: nested(rng.choice([1, 5, 50, 90]), rng.choice(["list", "object"])),
        lambda: [rng.choice(NUMBERS)] * rng.choice([1, 2, 5, 3000]),
        lambda: [rng.choice(SHORT_TEXTS)] * rng.choice([1, 2, 5, 1000]),
        lambda: {rng.choice(TEXTS): rng.choice(NUMBERS)},
        lambda: copy.deepcopy(rng.choice(SCHEMAS)),
    ]
    return rng.choice(choices)()


def replace(rng: random.Random, body: dict[str, Any]) -> None:
    container, key = rng.choice(places(body))
    container[key] = some_value(rng)


def replace_likewise(rng: random.Random, body: dict[str, Any]) -> None:
    """By a value of the same kind: past the first check of its type."""
    container, key = rng.choice(places(body))
    old = container[key]
    if isinstance(old, bool):
        container[key] = not old
    elif isinstance(old, int | float):
        container[key] = rng.choice(NUMBERS)
    elif isinstance(old, str):
        container[key] = rng.choice(TEXTS)
    elif isinstance(old, list):
        container[key] = (old * rng.choice([0, 2, 300]))[: rng.choice([1, 600])]
    elif isinstance(old, dict) and ("type" in old or "properties" in old):
        container[key] = copy.deepcopy(rng.choice(SCHEMAS))
    else:
        container[key] = some_value(rng)


def delete(rng: random.Random, body: dict[str, Any]) -> None:
    container, key = rng.choice(places(body))
    del container[key]


def add_field(rng: random.Random, body: dict[str, Any]) -> None:
    objects = [body] + [c[k] for c, k in places(body) if isinstance(c[k], dict)]
    target = rng.choice([body, rng.choice(objects)])
    target[rng.choice(FIELDS)] = some_value(rng)


def take_from_another(rng: random.Random, body: dict[str, Any]) -> None:
    """A field of another endpoint's body, which may fit here or not."""
    _, other = rng.choice(SOUND)
    key = rng.choice(list(other))
    body[key] = copy.deepcopy(other[key])


def swap(rng: random.Random, body: dict[str, Any]) -> None:
    (a, i), (b, j) = rng.choice(places(body)), rng.choice(places(body))
    a[i], b[j] = copy.deepcopy(b[j]), copy.deepcopy(a[i])


CHANGES: list[Callable[[random.Random, dict[str, Any]], None]] = [
    replace,
    replace_likewise,
    replace_likewise,
    delete,
    add_field,
    take_from_another,
    swap,
]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def garble(rng: random.Random, data: bytes) -> bytes:
    """Some bytes replaced: often no UTF-8 any more, or no JSON."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 3, 20])):
        byte = rng.choice([0, 0x22, 0x5C, 0x7B, 0x80, 0xC3, 0xFF, rng.randrange(256)])
        changed[rng.randrange(len(changed))] = byte
    return bytes(changed)


ODD = [
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\0" * 40, b"\\ud800", b"\\u0000", b"//", b"'"),
    *(b"[" * 5000, b'{"a":' * 3000, b"9" * 5000, b"1e" + b"9" * 99),
]
NO_REQUESTS = [
    *(b"", b"null", b"[]", b"{}", b'"text"', b"1", b"NaN", b"[" * 100_000, b'{"a":' * 50_000),
    b"\x1f\x8b\x08\0",
]


def insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.choice(ODD) + data[at:]


def whole(rng: random.Random, data: bytes) -> bytes:
    """No request, or one in a wrong encoding."""
    encoded = [b"\xef\xbb\xbf" + data, data * 2, data.decode().encode("utf-16"), rng.randbytes(300)]
    return rng.choice([*NO_REQUESTS, *encoded])


def repeat_key(rng: random.Random, data: bytes) -> bytes:
    return b'{"max_tokens": 3, "stream": 1, ' + data[1:]


RAW: list[Callable[[random.Random, bytes], bytes]] = [cut, garble, insert, whole, repeat_key]


def encode(body: Any) -> bytes:
    """As clients write it: NaN and lone surrogates included."""
    return json.dumps(body).encode()


def make_case(seed: int, number: int) -> Case:
    rng = random.Random(f"{seed}/{number}")
    path, sound = rng.choice(SOUND)
    if rng.random() < 0.25:
        raw = rng.choice(RAW)
        return Case(raw.__name__, path, raw(rng, encode(sound)))
    body = copy.deepcopy(sound)
    names = []
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not places(body):
            break
        change = rng.choice(CHANGES)
        change(rng, body)
        names.append(change.__name__)
    return Case(" + ".join(sorted(set(names))), path, encode(body))


def main() -> None:
    case = make_case(int(sys.argv[1]), int(sys.argv[2]))
    print(f"{case.path}, {case.label}", file=sys.stderr)
    sys.stdout.buffer.write(case.body)


if __name__ == "__main__":
    main()
