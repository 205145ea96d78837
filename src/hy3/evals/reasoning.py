"""`reasoning`: short problems with one right answer, a number or one of some choices."""

import re
from fractions import Fraction
from typing import Any

from hy3.evals.client import Answer, Request
from hy3.evals.files import find, records
from hy3.evals.suite import Grade, Settings, Task

ASK = "\n\nThink as long as you need. End with one line: Answer: followed by the answer alone."
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?")


class Reasoning:
    name = "reasoning"

    def tasks(self) -> list[Task]:
        return [Task(r["id"], r["kind"], r) for r in records(find("reasoning.jsonl"))]

    def request(self, task: Task, seed: int, settings: Settings) -> Request:
        return Request(
            [{"role": "user", "content": question(task.record) + ASK}],
            effort=settings.effort,
            max_tokens=settings.max_tokens or 2048,
            temperature=settings.temperature,
            seed=seed,
        )

    def grade(self, task: Task, answer: Answer) -> Grade:
        return grade(task.record, answer.text)


def question(record: dict[str, Any]) -> str:
    text = str(record["prompt"]).strip()
    if record["kind"] == "choice" and "\nA)" not in text:
        text += f" Choose one of: {', '.join(record['choices'])}."
    return text


def grade(record: dict[str, Any], text: str) -> Grade:
    said = final(text)
    if said is None:
        return Grade(False, "there is no answer")
    if record["kind"] == "number":
        right = number(said) == number(record["answer"])
    else:
        right = choice(said, record["choices"]) == record["answer"]
    return Grade(right, "" if right else f"answered {said!r}, right is {record['answer']!r}")


def final(text: str) -> str | None:
    """What follows the last "Answer:"; else the last line that is not empty."""
    marked = re.findall(r"answer\s*:\s*(.+)", plain(text), re.IGNORECASE)
    lines = [line for line in plain(text).splitlines() if line.strip()]
    return (marked or lines or [None])[-1]


def plain(text: str) -> str:
    """Without Markdown's emphasis and TeX's box."""
    return re.sub(r"\\boxed\{([^{}]*)\}", r"\1", re.sub(r"[*_`$]", "", text))


def number(text: str) -> Fraction | None:
    """The last number in a text, exactly: "1,250", "2/6" and "0.50" are numbers."""
    found = NUMBER.findall(text)
    if not found:
        return None
    try:
        return Fraction(re.sub(r"[,\s]", "", found[-1]))
    except (ValueError, ZeroDivisionError):
        return None


def choice(text: str, choices: list[str]) -> str | None:
    """The one choice that a text names, whatever the case, articles and punctuation; None if none or
    several."""
    words = normal(text)
    named = [c for c in choices if re.search(rf"(?<!\w){re.escape(normal(c))}(?!\w)", words)]
    # "his mother" is named by "his grandmother" only as a part of a word; a longer choice covers a shorter.
    longest = [c for c in named if not any(c != d and normal(c) in normal(d) for d in named)]
    return longest[0] if len(longest) == 1 else None


def normal(text: str) -> str:
    return " ".join(re.sub(r"\b(the|a|an)\b(?=\s+\w)|[.,;:!?()\"']", " ", text.lower()).split())
