"""Grades answers to the held-out questions: exact text, with a Wilson interval for each share."""

from dataclasses import dataclass, field
from typing import Any

from hy3.evals.interval import wilson
from hy3.evals.tiny import KINDS, Tiny

SUITES = KINDS


@dataclass(frozen=True)
class Question:
    row: str  # of the table
    messages: list[dict[str, Any]]
    reasoning_effort: str
    tools: list[dict[str, Any]] | None
    expected: str
    tokens: int | None  # of filler, for recall


def questions(suite: str) -> list[Question]:
    tiny = Tiny()
    return [
        Question(
            task.row,
            task.record["messages"],
            task.record["reasoning_effort"],
            tiny.tools_of(task) or None,
            task.record["expected"],
            task.record.get("tokens"),
        )
        for task in tiny.tasks_of(suite)
    ]


@dataclass
class Tally:
    """One row of the table."""

    asked: int = 0
    exact: int = 0
    drafts: list[int] = field(default_factory=lambda: [0, 0])  # by depth, those that came to the test
    accepted: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, other: "Tally") -> None:
        self.asked += other.asked
        self.exact += other.exact
        self.drafts = [a + b for a, b in zip(self.drafts, other.drafts, strict=True)]
        self.accepted = [a + b for a, b in zip(self.accepted, other.accepted, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        low, high = wilson(self.exact, self.asked)
        out: dict[str, Any] = {
            "asked": self.asked,
            "exact": self.exact,
            "share": round(self.exact / max(self.asked, 1), 4),
            "interval": [round(low, 4), round(high, 4)],
        }
        for name, drafts, accepted in zip(("mtp", "mtp2"), self.drafts, self.accepted, strict=True):
            if drafts:
                low, high = wilson(accepted, drafts)
                out[name] = {
                    "drafts": drafts,
                    "accepted": accepted,
                    "share": round(accepted / drafts, 4),
                    "interval": [round(low, 4), round(high, 4)],
                }
        return out


def table(tallies: dict[str, Tally]) -> str:
    def interval(right: int, count: int) -> str:
        low, high = wilson(right, count)
        return f"{right / count:7.1%}  [{low:.1%}, {high:.1%}]"

    def drafts(tally: Tally, depth: int) -> str:
        count = tally.drafts[depth]
        return f"{interval(tally.accepted[depth], count)} of {count}" if count else "-"

    titles = ("exact (95% interval)", "first drafts accepted", "second drafts")
    lines = ["{:<12} {:>5}   {:<26} {:<34} {}".format("suite", "asked", *titles)]
    for name, tally in tallies.items():
        exact = interval(tally.exact, tally.asked)
        lines.append(f"{name:<12} {tally.asked:>5}   {exact:<26} {drafts(tally, 0):<34} {drafts(tally, 1)}")
    return "\n".join(lines)
