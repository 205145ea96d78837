"""Runs hy3-tiny's checkpoint through torch: the trunk by `transformers`, the drafts by the training code's
MTP layer.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, HYV3ForCausalLM
from transformers.cache_utils import DynamicCache

from eval.tiny.grade import Question
from eval.tiny.score import MAX_TOKENS, Verdict
from train.batches import collate
from train.export import load
from train.model import Step


class TorchRunner:
    def __init__(self, path: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(path)
        self.trunk = HYV3ForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.model = load(path)
        ends = self.trunk.generation_config.eos_token_id
        self.end_ids = frozenset(ends if isinstance(ends, list) else [ends])
        self.tag_ids = frozenset(self.tokenizer.added_tokens_decoder)

    def prompt(self, question: Question) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            question.messages,
            tools=question.tools,
            add_generation_prompt=True,
            reasoning_effort=question.reasoning_effort,
            tokenize=False,
        )
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    @torch.no_grad()
    def answer(self, prompt: list[int]) -> tuple[list[int], list[Verdict | None]]:
        cache = DynamicCache(config=self.trunk.config)
        ids: list[int] = []
        fed = prompt
        while len(ids) < MAX_TOKENS and not (ids and ids[-1] in self.end_ids):
            out = self.trunk(torch.tensor([fed]), cache=cache, use_cache=True, logits_to_keep=1)
            ids.append(int(out.logits[0, -1].argmax()))
            fed = ids[-1:]
        drafts = self.drafts(prompt, ids)
        return ids, [None, *((1, draft == token) for draft, token in zip(drafts, ids[1:], strict=True))]

    def drafts(self, prompt: list[int], ids: list[int]) -> list[int]:
        """For ids[1:]: drafted from the state before ids[n - 1], and ids[n - 1]."""
        if len(ids) < 2:
            return []
        whole = np.array(prompt + ids, np.int16)
        step = Step(self.model, collate([(whole, np.zeros(len(whole), bool))], pad=0), torch.float32)
        rows = torch.arange(len(prompt) - 1, len(whole) - 2)
        drafts: list[int] = step.head(step.mtp_hidden(step.hidden(), rows)).argmax(-1).tolist()
        return drafts

    def text(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text
