"""`tiny`: the bundled model's own held-out tasks, where an answer must be the expected text to the byte."""

from typing import Any

from hy3.chat.reply import THINK_TAGS
from hy3.chat.tool_calls import ToolCallParser
from hy3.evals.client import Answer, Request, collect, schemas
from hy3.evals.files import TINY, find, records, tools
from hy3.evals.suite import Grade, Settings, Task

KINDS = ("sum2", "sum3", "worked", "recall", "tools", "greeting", "talk")


class Tiny:
    name = "tiny"

    def __init__(self) -> None:
        self._definitions = tools(find("tools.json", TINY))

    def tasks(self) -> list[Task]:
        return [task for kind in KINDS for task in self.tasks_of(kind)]

    def tasks_of(self, kind: str) -> list[Task]:
        """Those of `recall` are told apart by the length of their filler."""
        return [
            Task(f"{kind}-{i}", kind if "tokens" not in record else f"{kind} {record['tokens']}", record)
            for i, record in enumerate(records(find(f"{kind}.jsonl", TINY)))
        ]

    def tools_of(self, task: Task) -> list[dict[str, Any]]:
        return [self._definitions[name] for name in task.record.get("tools", ())]

    def request(self, task: Task, seed: int, settings: Settings) -> Request:
        record = task.record
        return Request(
            record["messages"],
            self.tools_of(task),
            effort=record["reasoning_effort"],
            max_tokens=settings.max_tokens or 96,
            temperature=settings.temperature,
            seed=seed,
        )

    def grade(self, task: Task, answer: Answer) -> Grade:
        """The expected text is the raw answer: reasoning and closing tag first where there is thinking."""
        expected, reasoning = task.record["expected"], ""
        for _, closing in THINK_TAGS:
            if closing in expected:
                reasoning, _, expected = expected.partition(closing)
        parser = ToolCallParser(schemas(self._definitions.values()))
        text, calls = collect(parser.push(expected) + parser.finish())
        if (answer.text, answer.calls) != (text, calls):
            return Grade(False, f"expected {expected!r}")
        if answer.reasoning != reasoning:
            return Grade(False, f"expected the reasoning {reasoning!r}")
        return Grade(True)
