"""Results of a run as one JSON file: scores, and every transcript. Replaced as a whole after each task, so
that a run which was stopped can go on."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hy3.errors import Hy3Error
from hy3.evals.client import Answer
from hy3.evals.interval import wilson
from hy3.evals.suite import Grade, Task

FORMAT = "hy3-eval-1"


def score(right: int, asked: int) -> dict[str, Any]:
    low, high = wilson(right, asked)
    return {
        "right": right,
        "asked": asked,
        "share": round(right / asked, 4) if asked else None,
        "interval": [round(low, 4), round(high, 4)],
    }


@dataclass
class Results:
    """`about`: the model and the settings; a run goes on only from results with the same."""

    about: dict[str, Any]
    suites: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @classmethod
    def open(cls, about: dict[str, Any], path: Path | None, resume: bool) -> "Results":
        results = cls(about, path=path)
        if resume and path is not None and path.exists():
            saved = read(path)
            different = [key for key in about if saved["about"].get(key) != about[key]]
            if different:
                was = ", ".join(f"{key} was {saved['about'].get(key)!r}" for key in different)
                raise Hy3Error(
                    f"{path} holds another run: {was}", "Give another --json, or leave out --resume"
                )
            results.suites = saved["suites"]
        return results

    def asked(self, suite: str) -> set[tuple[str, int]]:
        """Tasks and seeds that have an answer."""
        return {(t["id"], t["seed"]) for t in self._transcripts(suite)}

    def add(
        self, suite: str, task: Task, seed: int, request: dict[str, Any], answer: Answer, grade: Grade
    ) -> None:
        self._transcripts(suite).append(
            {
                "id": task.id,
                "seed": seed,
                "row": task.row,
                "right": grade.right,
                "why": grade.why,
                "request": request,
                "answer": asdict(answer),
            }
        )
        self.suites[suite] |= self.summary(suite)
        self.save()

    def put(self, suite: str, values: dict[str, Any]) -> None:
        """The result of a suite that has no questions."""
        self.suites[suite] = values
        self.save()

    def summary(self, suite: str) -> dict[str, Any]:
        transcripts = self._transcripts(suite)
        rows: dict[str, list[bool]] = {}
        for t in transcripts:
            rows.setdefault(t["row"], []).append(t["right"])
        return {
            "score": score(sum(t["right"] for t in transcripts), len(transcripts)),
            "rows": {name: score(sum(right), len(right)) for name, right in rows.items()},
        }

    def save(self) -> None:
        if self.path is None:
            return
        aside = self.path.with_name(self.path.name + ".part")
        content = {"format": FORMAT, "about": self.about, "suites": self.suites}
        aside.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(aside, self.path)

    def _transcripts(self, suite: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.suites.setdefault(suite, {"transcripts": []})["transcripts"]
        return found


def read(path: Path) -> dict[str, Any]:
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Hy3Error(f"{path} is not JSON: {error}", "Give another --json, or leave out --resume") from None
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise Hy3Error(f"{path} holds no results of hy3 eval", "Give another --json, or leave out --resume")
    return saved
