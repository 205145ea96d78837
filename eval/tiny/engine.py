"""Runs hy3-tiny through hy3core: what ships is what is scored."""

from pathlib import Path

import numpy as np

import hy3core
from eval.tiny.grade import Question
from eval.tiny.score import MAX_TOKENS
from hy3 import template


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

    def answer(self, prompt: list[int]) -> tuple[list[int], list[int | None]]:
        session = self.session
        session.reset()
        logits = session.eval(prompt, logits="last")
        ids: list[int] = []
        drafts: list[int | None] = []
        draft: int | None = None
        while len(ids) < MAX_TOKENS:
            assert logits is not None
            token = int(np.argmax(logits))
            ids.append(token)
            drafts.append(draft)
            if token in self.end_ids:
                break
            draft = int(np.argmax(session.mtp_logits(token))) if self.mtp else None
            logits = session.eval([token], logits="last")
        return ids, drafts

    def text(self, ids: list[int]) -> str:
        return self.model.tokenizer.decode(ids, special=True)
