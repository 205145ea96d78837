"""Exactness on held-out examples during training, from one teacher-forced pass.

If every token of an answer is the most likely one given the answer so far, greedy decoding writes that
answer: the share of such examples is the greedy score, for the price of a forward pass. The reported scores
come from eval/tiny/score.py, which decodes.
"""

import random
from collections.abc import Callable

import torch

from train import tasks, tools
from train.batches import collate
from train.chat import Chat
from train.model import HY3Tiny, Step
from train.tasks import Conversation

SUITES: dict[str, Callable[[random.Random], Conversation]] = {
    "sum2": lambda rng: tasks.sums(rng, True, count=2, turns=1),
    "sum3": lambda rng: tasks.sums(rng, True, count=3, turns=1),
    "worked": lambda rng: tasks.worked_sums(rng, True),
    "recall100": lambda rng: tasks.recall(rng, True, 100),
    "recall1000": lambda rng: tasks.recall(rng, True, 1000),
    "tools": lambda rng: tools.tool_calls(rng, True, turns=1),
    "talk": lambda rng: tasks.talk(rng, True),
}
COUNTS = {"sum2": 200, "sum3": 200, "worked": 50, "recall100": 40, "recall1000": 12, "tools": 40, "talk": 40}


@torch.no_grad()
def exactness(model: HY3Tiny, chat: Chat, conversations: list[Conversation]) -> tuple[float, float]:
    """(share of exact answers, share of right first drafts of the MTP layer)."""
    batch = collate([chat.example(c) for c in conversations], chat.pad)
    step = Step(model, batch)
    hidden = step.hidden()
    targets = batch.targets[batch.targets >= 0]
    right = step.head(hidden[targets]).argmax(-1) == batch.ids[targets + 1]
    document, first = [], 0
    for rows in batch.documents:
        numbers = rows + torch.arange(first, first + len(rows))[:, None] * 1000
        document.append(numbers.flatten())
        first += len(rows)
    keys = torch.cat([*document, torch.zeros(len(batch.ids) - sum(map(len, document)), dtype=torch.int64)])[
        targets
    ]
    wrong = set(keys[~right].tolist())
    exact = 1 - len(wrong) / len(set(keys.tolist()))
    far = batch.mtp_targets[batch.mtp_targets >= 0]
    # End tokens are not content.
    far = far[batch.ids[far + 2] != chat.eos]
    if not len(far):
        return exact, float("nan")
    drafts = step.head(step.mtp_hidden(hidden, far)).argmax(-1)
    return exact, float((drafts == batch.ids[far + 2]).float().mean())


def scores(model: HY3Tiny, chat: Chat, seed: int = 1) -> dict[str, tuple[float, float]]:
    out = {}
    for name, draw in SUITES.items():
        rng = random.Random(f"{seed}/{name}")
        out[name] = exactness(model, chat, [draw(rng) for _ in range(COUNTS[name])])
    return out
