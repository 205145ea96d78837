"""Every question of the suites: its reference answer passes the grader, and a wrong one fails."""

from typing import Any

import pytest

from hy3.evals import coding, reasoning, tools
from hy3.evals.client import Answer, Call, Request, collect, schemas
from hy3.evals.files import find, records
from hy3.evals.suite import Settings, code_block
from hy3.evals.tiny import KINDS, Tiny

REASONING = records(find("reasoning.jsonl"))
CODING = records(find("coding.jsonl"))
TOOLS = records(find("tools.jsonl"))


def ids(suite: list[dict[str, Any]]) -> list[str]:
    return [record["id"] for record in suite]


@pytest.mark.parametrize("suite", [REASONING, CODING, TOOLS], ids=["reasoning", "coding", "tools"])
def test_thirty_tasks_of_their_own(suite: list[dict[str, Any]]) -> None:
    assert len(suite) >= 30
    assert len(set(ids(suite))) == len(suite)


@pytest.mark.parametrize("record", REASONING, ids=ids(REASONING))
def test_reasoning(record: dict[str, Any]) -> None:
    assert reasoning.grade(record, record["right"]).right
    wrong = reasoning.grade(record, record["wrong"])
    assert not wrong.right
    assert record["answer"] in wrong.why
    if record["kind"] == "choice":
        assert record["answer"] in record["choices"]


@pytest.mark.parametrize("record", CODING, ids=ids(CODING))
def test_coding(record: dict[str, Any]) -> None:
    assert coding.grade(record, record["right"]).why == ""
    wrong = coding.grade(record, record["wrong"])
    assert not wrong.right and wrong.why


@pytest.mark.parametrize("record", TOOLS, ids=ids(TOOLS))
def test_tools(record: dict[str, Any]) -> None:
    definitions = tools.Tools()._definitions
    offered = schemas(definitions[name] for name in record["tools"])
    for kind in ("right", "wrong"):
        said = record[kind]
        calls = [Call(call["name"], call["arguments"]) for call in said["calls"]]
        grade = tools.grade(record, said["text"], calls)
        assert grade.right == (kind == "right"), grade.why
        for call in calls if kind == "right" else ():
            assert set(call.arguments) <= set(offered[call.name]["properties"])
            assert set(offered[call.name]["required"]) <= set(call.arguments)


def test_tiny() -> None:
    suite = Tiny()
    tasks = suite.tasks()
    assert {task.row.split()[0] for task in tasks} == set(KINDS)
    for task in tasks:
        request = suite.request(task, 0, Settings())
        answer = perfect(task.record["expected"], request)
        assert suite.grade(task, answer).right, task
        assert not suite.grade(task, Answer(answer.text + "!", answer.reasoning, answer.calls)).right


def perfect(expected: str, request: Request) -> Answer:
    """What a client makes of the expected text."""
    before, tag, after = expected.partition("</think:opensource>")
    from hy3.chat.tool_calls import ToolCallParser

    parser = ToolCallParser(schemas(request.tools))
    text, calls = collect(parser.push(after if tag else expected) + parser.finish())
    return Answer(text, before if tag else "", calls)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("So it is 7.\nAnswer: **1,250**", "1250"),
        ("Answer: $\\boxed{0.5}$", "1/2"),
        ("answer: 3/6", "0.5"),
        ("12\nAnswer: 13\nNo!\nANSWER: 14 boxes", "14"),
        ("It is 20", "20"),
    ],
)
def test_numbers(text: str, wanted: str) -> None:
    assert reasoning.grade({"kind": "number", "answer": wanted}, text).right


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The Pear.", "a pear"),
        ("an apple or a pear", None),
        ("spear", None),
        ("neither", None),
    ],
)
def test_choices(text: str, found: str | None) -> None:
    assert reasoning.choice(text, ["an apple", "a pear"]) == found


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import socket\nsocket.socket()", "socket.__new__ is not allowed"),
        ("import subprocess\nsubprocess.run(['true'])", "not allowed"),
        ("import os\nos.system('true')", "not allowed"),
        ("open('/etc/passwd').read()", "lies outside"),
        ("open('/tmp/hy3-escaped', 'w')", "lies outside"),
        ("open('big', 'wb').write(b'x' * (2 << 20))", ""),
        ("x = bytearray(1 << 30)", "MemoryError"),
        ("import ctypes\nctypes.CDLL(None)", "not allowed"),
        ("while True: pass", ""),
        ("import os\nos._exit(0)", "without passing"),
        ("raise SystemExit", ""),
        ("print('0' * 100)", "AssertionError"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_code_that_reaches_out_fails(code: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "SECONDS", 1.0)
    grade = coding.grade({"tests": "assert False"}, code)
    assert not grade.right
    assert why in grade.why


def test_the_last_block_of_code_counts() -> None:
    assert code_block("a\n```python\nx = 1\n```\nbetter:\n```\nx = 2\n```\n") == "x = 2\n"
    assert code_block("```py\nx = 3") == "x = 3"
    assert code_block("x = 4") == "x = 4"
