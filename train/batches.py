"""The batch of a step: a mixture of tasks, packed into rows of a few fixed lengths.

A batch is a function of its key (seed, step, worker) and the run's progress alone, so that a resumed run
draws what an uninterrupted one would.
"""

import random
from collections.abc import Sequence

import numpy as np
import torch

from train import tasks, tools
from train.chat import Chat
from train.model import Batch
from train.tasks import Conversation

# Share of a step's tokens by task, with the share of the run up to which it holds. Passcodes are recalled
# early; from then on more of a step goes to what takes longest: the last digit of a sum, and names copied
# into calls (echoes are practice for that). Worked sums teach the partial sums that a direct answer needs.
MIXTURES = [
    (0.4, {"sums": 0.50, "worked": 0.06, "recall": 0.20, "tools": 0.20, "talk": 0.04}),
    (0.7, {"sums": 0.66, "worked": 0.06, "recall": 0.07, "tools": 0.14, "echo": 0.05, "talk": 0.02}),
    (1.0, {"sums": 0.68, "worked": 0.07, "recall": 0.04, "tools": 0.12, "echo": 0.08, "talk": 0.01}),
]


def mixture(progress: float) -> dict[str, float]:
    return next(shares for end, shares in MIXTURES if progress < end)


ROW_LENGTHS = (128, 256, 512, 1088)


def recall_length(rng: random.Random, progress: float) -> int:
    """Filler tokens: short at first, where copying is learned soonest, up to 1,000 from a third of the run
    on.
    """
    longest = min(1000, int(40 + 960 * progress / 0.33))
    if rng.random() < 0.4:
        return rng.randint(0, min(longest, 60))
    return rng.randint(0, longest // 3 if rng.random() < 0.5 else longest)


def draw(task: str, rng: random.Random, progress: float) -> Conversation:
    if task == "sums":
        # Mostly one sum a conversation: earlier sums' digits in the context make it far harder to learn.
        turns = 1 if rng.random() < 0.85 else rng.randint(2, 4)
        return tasks.sums(rng, False, turns=turns, two=0.45 if progress < 0.7 else 0.15)
    if task == "worked":
        return tasks.worked_sums(rng, False)
    if task == "recall":
        return tasks.recall(rng, False, recall_length(rng, progress))
    if task == "tools":
        return tools.tool_calls(rng, False)
    if task == "echo":
        return tools.echo(rng)
    return tasks.talk(rng, False)


def pack(lengths: Sequence[int]) -> dict[int, list[list[int]]]:
    """Rows of documents by row length: the longest first, each into the first row with room, else into a new
    one.
    """
    rows: list[tuple[int, list[int]]] = []
    room: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        row = next((r for r, free in enumerate(room) if free >= lengths[i]), None)
        if row is None:
            row = len(rows)
            rows.append((next(length for length in ROW_LENGTHS if length >= lengths[i]), []))
            room.append(rows[row][0])
        rows[row][1].append(i)
        room[row] -= lengths[i]
    return {length: [docs for n, docs in rows if n == length] for length in ROW_LENGTHS}


def padded(indices: np.ndarray, step: int) -> torch.Tensor:
    out = np.full(-(-len(indices) // step) * step, -1, np.int64)
    out[: len(indices)] = indices
    return torch.from_numpy(out)


def collate(examples: Sequence[tuple[np.ndarray, np.ndarray]], pad: int) -> Batch:
    rectangles = {length: rows for length, rows in pack([len(ids) for ids, _ in examples]).items() if rows}
    total = sum(length * len(rows) for length, rows in rectangles.items())
    total = -(-total // 256) * 256
    ids = np.full(total, pad, np.int64)
    positions = np.zeros(total, np.int64)
    documents = np.zeros(total, np.int64)
    mask = np.zeros(total + 2, bool)  # two more: a shift by one or two finds nothing there
    base = 0
    for length, rows in rectangles.items():
        for docs in rows:
            start = base
            for number, i in enumerate(docs, 1):
                cut = slice(start, start + len(examples[i][0]))
                start = cut.stop
                ids[cut], mask[cut] = examples[i]
                positions[cut] = np.arange(len(examples[i][0]))
                documents[cut] = number
            base += length
    cuts = np.cumsum([0] + [length * len(rows) for length, rows in rectangles.items()])
    return Batch(
        torch.from_numpy(ids),
        torch.from_numpy(positions),
        [
            torch.from_numpy(documents[a:b]).view(-1, length)
            for a, b, length in zip(cuts[:-1], cuts[1:], rectangles, strict=True)
        ],
        padded(np.flatnonzero(mask[1:-1]), 128),
        padded(np.flatnonzero(mask[1:-1] & mask[2:]), 128),
    )


def make_batch(chat: Chat, key: str, progress: float, tokens: int) -> Batch:
    rng = random.Random(key)
    examples = []
    for task, share in mixture(progress).items():
        # What a task overdraws in one step evens out over steps: the last example is kept by the chance that
        # fits.
        left = share * tokens
        while left > 0:
            example = chat.example(draw(task, rng, progress))
            if len(example[0]) > left and rng.random() > left / len(example[0]):
                break
            examples.append(example)
            left -= len(example[0])
    return collate(examples, chat.pad)
