"""What a suite is: tasks, what to ask for each, and whether an answer is right."""

import re
from dataclasses import dataclass
from typing import Any, Protocol

from hy3.evals.client import Answer, Request


@dataclass(frozen=True)
class Grade:
    right: bool
    why: str = ""  # what was wrong, for the transcript


@dataclass(frozen=True)
class Settings:
    """How to ask, for all tasks of a run."""

    effort: str = "no_think"
    max_tokens: int | None = None  # None: the suite's own
    temperature: float = 0.0


@dataclass(frozen=True)
class Task:
    id: str
    row: str  # of the summary
    record: dict[str, Any]


class Suite(Protocol):
    name: str

    def tasks(self) -> list[Task]: ...

    def request(self, task: Task, seed: int, settings: Settings) -> Request: ...

    def grade(self, task: Task, answer: Answer) -> Grade: ...


def code_block(text: str) -> str:
    """The last fenced block of a Markdown text; the whole text if there is none."""
    blocks = re.findall(r"```[^\n`]*\n(.*?)(?:```|\Z)", text, re.DOTALL)
    return str(blocks[-1]) if blocks else text
