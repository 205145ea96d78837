"""`tools`: whether the right functions are called with the right arguments, and none where none is needed.

An expected call has `arguments`, where a list of values means any of them, and `optional` ones that may be
missing: any value (None), one, or any of a list.
"""

import json
import re
from itertools import permutations
from typing import Any

from hy3.evals.client import Answer, Call, Request
from hy3.evals.files import find, records, tools
from hy3.evals.suite import Grade, Settings, Task


class Tools:
    name = "tools"

    def __init__(self) -> None:
        self._definitions = tools(find("tools.json"))

    def tasks(self) -> list[Task]:
        return [Task(r["id"], r["category"], r) for r in records(find("tools.jsonl"))]

    def request(self, task: Task, seed: int, settings: Settings) -> Request:
        return Request(
            task.record["messages"],
            [self._definitions[name] for name in task.record["tools"]],
            effort=settings.effort,
            max_tokens=settings.max_tokens or 1024,
            temperature=settings.temperature,
            seed=seed,
        )

    def grade(self, task: Task, answer: Answer) -> Grade:
        return grade(task.record, answer.text, answer.calls)


def grade(record: dict[str, Any], text: str, calls: list[Call]) -> Grade:
    expected = record["calls"]
    shown = json.dumps(
        [{"name": call.name, "arguments": call.arguments} for call in calls], ensure_ascii=False
    )
    if len(calls) != len(expected):
        return Grade(False, f"{len(calls)} calls, {len(expected)} were expected: {shown}")
    if not any(
        all(fits(call, want) for call, want in zip(order, expected, strict=True))
        for order in permutations(calls)
    ):
        return Grade(False, f"called {shown}, expected {json.dumps(expected, ensure_ascii=False)}")
    for pattern in record["says"]:
        if not any(part.lower() in text.lower() for part in pattern.split("|")):
            return Grade(False, f"the answer does not say {pattern!r}: {text!r}")
    return Grade(True)


def fits(call: Call, want: dict[str, Any]) -> bool:
    needed, optional = want["arguments"], want.get("optional", {})
    given = call.arguments
    return (
        call.name == want["name"]
        and all(key in given and same(given[key], value) for key, value in needed.items())
        and all(
            key in needed or (key in optional and (optional[key] is None or same(value, optional[key])))
            for key, value in given.items()
        )
    )


def same(given: Any, wanted: Any) -> bool:
    if isinstance(wanted, list) and not isinstance(given, list):
        return any(same(given, each) for each in wanted)
    if isinstance(given, str) and isinstance(wanted, str):
        return words(given) == words(wanted)
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    return bool(given == wanted)


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().lower()
