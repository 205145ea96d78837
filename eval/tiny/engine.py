"""Runs hy3-tiny through hy3core: what ships is what is scored."""

import itertools
from pathlib import Path

import hy3core
from eval.tiny.grade import Question
from eval.tiny.score import MAX_TOKENS, Verdict
from hy3 import template

DEPTH = 2  # drafts for each step, made whether they pay or not

Counts = list[tuple[int, int]]  # by depth: drafts that came to the test, and those that were right


def verdict(before: Counts, now: Counts) -> Verdict | None:
    """What became of the draft of the token between two countings."""
    for depth, ((judged, right), (judged_now, right_now)) in enumerate(zip(before, now, strict=True), 1):
        if judged_now > judged:
            return depth, right_now > right
    return None


class EngineRunner:
    def __init__(self, path: Path, backend: str) -> None:
        self.model = hy3core.Model(str(path), backend=backend)
        self.template = template.for_model(self.model)
        self.mtp = self.model.config.n_mtp_layers > 0
        self.session = self.model.session(ctx=2048, mtp=self.mtp)
        self.end_ids = frozenset(self.model.tokenizer.eos_ids)
        types = self.model.metadata["tokenizer.ggml.token_type"]
        # Control tokens (3) and the visible tags (4).
        self.tag_ids = frozenset(i for i, kind in enumerate(types) if kind in (3, 4))

    def prompt(self, question: Question) -> list[int]:
        text = self.template.render(
            question.messages,
            tools=question.tools,
            add_generation_prompt=True,
            reasoning_effort=question.reasoning_effort,
        )
        return self.model.tokenizer.encode(text)

    def answer(self, prompt: list[int]) -> tuple[list[int], list[Verdict | None]]:
        self.session.reset()
        depth = DEPTH if self.mtp else 0
        ids: list[int] = []
        verdicts: list[Verdict | None] = []
        before = [(0, 0)] * depth
        generation = self.session.generate(prompt, MAX_TOKENS, mtp=depth, mtp_always=True)
        while self.session.stats["finish_reason"] is None:
            ids += itertools.islice(generation, 1)
            now = self.session.stats["drafts"]
            verdicts.append(verdict(before, now))
            before = now
        if self.session.stats["stop_id"] is not None:
            ids.append(self.session.stats["stop_id"])
        return ids, verdicts[: len(ids)]

    def text(self, ids: list[int]) -> str:
        return self.model.tokenizer.decode(ids, special=True)
