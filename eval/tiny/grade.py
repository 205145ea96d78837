"""Grades answers to the held-out questions: exact text, with a Wilson interval for each share."""

import json
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SUITES = ("sum2", "sum3", "worked", "recall", "tools", "greeting", "talk")


@dataclass(frozen=True)
class Question:
    suite: str
    messages: list[dict[str, Any]]
    reasoning_effort: str
    tools: list[dict[str, Any]] | None
    expected: str
    tokens: int | None  # of filler, for recall

    @property
    def row(self) -> str:
        """The table's row: recall is told apart by length."""
        return self.suite if self.tokens is None else f"{self.suite} {self.tokens}"


def questions(suite: str) -> list[Question]:
    definitions = {
        t["function"]["name"]: t for t in json.loads((HERE / "tools.json").read_text(encoding="utf-8"))
    }
    out = []
    for line in (HERE / f"{suite}.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        tools = [definitions[name] for name in record.get("tools", [])] or None
        out.append(
            Question(
                suite,
                record["messages"],
                record["reasoning_effort"],
                tools,
                record["expected"],
                record.get("tokens"),
            )
        )
    return out


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95% interval of a share (Wilson 1927), which stays inside [0, 1] at the ends."""
    if count == 0:
        return 0.0, 1.0
    share = right / count
    centre = share + z * z / (2 * count)
    spread = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


@dataclass
class Tally:
    """One row of the table."""

    asked: int = 0
    exact: int = 0
    drafts: int = 0
    accepted: int = 0

    def add(self, other: "Tally") -> None:
        self.asked += other.asked
        self.exact += other.exact
        self.drafts += other.drafts
        self.accepted += other.accepted

    def as_dict(self) -> dict[str, Any]:
        low, high = wilson(self.exact, self.asked)
        out: dict[str, Any] = {
            "asked": self.asked,
            "exact": self.exact,
            "share": round(self.exact / max(self.asked, 1), 4),
            "interval": [round(low, 4), round(high, 4)],
        }
        if self.drafts:
            low, high = wilson(self.accepted, self.drafts)
            out["mtp"] = {
                "drafts": self.drafts,
                "accepted": self.accepted,
                "share": round(self.accepted / self.drafts, 4),
                "interval": [round(low, 4), round(high, 4)],
            }
        return out


def table(tallies: dict[str, Tally]) -> str:
    def interval(right: int, count: int) -> str:
        low, high = wilson(right, count)
        return f"{right / count:7.1%}  [{low:.1%}, {high:.1%}]"

    lines = [f"{'suite':<12} {'asked':>5}   {'exact (95% interval)':<26} {'first drafts accepted':<32}"]
    for name, tally in tallies.items():
        drafts = f"{interval(tally.accepted, tally.drafts)} of {tally.drafts}" if tally.drafts else "-"
        lines.append(f"{name:<12} {tally.asked:>5}   {interval(tally.exact, tally.asked):<26} {drafts}")
    return "\n".join(lines)
