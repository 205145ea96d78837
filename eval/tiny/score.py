"""Scores hy3-tiny on its held-out questions, and the MTP layer's drafts on the way.

    python -m eval.tiny.score --model hy3-tiny.gguf [--json OUT] [--backend auto|reference|cpu]
    python -m eval.tiny.score --checkpoint DIR           # the same through torch and transformers

Answers are greedy. A question is right when the text equals the expected one to the byte (for `worked` that
includes the work shown, for `tools` the call in Hy3's format). A GGUF is run with two drafts of the MTP layer
before every step: the first comes to the test always, the second when the first was right; a draft is
accepted when greedy decoding writes that token. Through torch, a first draft is made for every token. Only
content counts: no end tokens, no tags of the tool-call format and none of the line ends between them.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from eval.tiny.grade import SUITES, Question, Tally, questions, table

MAX_TOKENS = 96  # the longest expected answer has about 60


Verdict = tuple[int, bool]  # of a token's draft: its depth, from 1, and whether it was right


class Runner(Protocol):
    """One way of running the model."""

    end_ids: frozenset[int]
    tag_ids: frozenset[int]

    def prompt(self, question: Question) -> list[int]: ...
    def answer(self, prompt: list[int]) -> tuple[list[int], list[Verdict | None]]:
        """Greedy ids, end token included, and what became of the draft of each (None: there was none)."""
        ...

    def text(self, ids: list[int]) -> str: ...


def tally(runner: Runner, question: Question) -> Tally:
    ids, verdicts = runner.answer(runner.prompt(question))
    written = ids[:-1] if ids and ids[-1] in runner.end_ids else ids
    out = Tally(asked=1, exact=int(runner.text(written) == question.expected))
    for i, (token, verdict) in enumerate(zip(ids, verdicts, strict=True)):
        after_tag = i > 0 and ids[i - 1] in runner.tag_ids and runner.text([token]) == "\n"
        if verdict is None or token in runner.end_ids or token in runner.tag_ids or after_tag:
            continue
        depth, right = verdict
        out.drafts[depth - 1] += 1
        out.accepted[depth - 1] += right
    return out


def score(runner: Runner, suites: Iterable[str], limit: int | None) -> dict[str, Tally]:
    rows: dict[str, Tally] = {}
    for suite in suites:
        for question in questions(suite)[:limit]:
            rows.setdefault(question.row, Tally()).add(tally(runner, question))
        print(f"{suite} done", file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=Path, help="a GGUF, run by hy3core")
    source.add_argument("--checkpoint", type=Path, help="a checkpoint directory, run by torch")
    parser.add_argument("--backend", default="cpu", help="hy3core's backend for --model")
    parser.add_argument("--suite", action="append", choices=SUITES, help="only this one (may be repeated)")
    parser.add_argument("--limit", type=int, help="only the first questions of each suite")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    runner: Runner
    if args.model:
        from eval.tiny.engine import EngineRunner

        runner = EngineRunner(args.model, args.backend)
    else:
        from eval.tiny.torch_runner import TorchRunner

        runner = TorchRunner(args.checkpoint)
    rows = score(runner, args.suite or SUITES, args.limit)
    print(table(rows))
    if args.json:
        result = {name: row.as_dict() for name, row in rows.items()}
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
