"""What an importance matrix gains: how far the quantized model is from the float32 one, with and without.

    python -m eval.imatrix_gain [--model M.gguf] [--type q2_k --type q3_k ...]

Reference: the model's weights as float32 (hy3-tiny ships as Q8_0, so these are the dequantized ones). The
matrix is made of conversations drawn by the training's generators, rendered by the chat template, each read
from an empty context. What is measured, on the held-out questions (eval/tiny, which the generators never
draw) with their expected answers: the mean KL(float32 || quantized) of the next-token distribution, in nats,
over the positions that predict the answer, and over all; and how often the likeliest token of an answer's
position is the same. `gain` is the share of the KL that the matrix takes away, with its standard error.
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

import hy3core
from eval.tiny.grade import SUITES, Question, questions
from hy3 import template
from hy3.convert import Options, convert
from hy3.imatrix import Collection, Text
from train import tasks, tools
from train.tasks import Conversation

SEED = 20261130
CTX = 2048  # the longest question has 1,100 tokens
# The types of a mixed layout that take an importance matrix, fewest bits first.
TYPES = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs")

Draw = Callable[[random.Random], Conversation]
DRAWS: Sequence[Draw] = (
    lambda rng: tasks.sums(rng, False, turns=1),
    lambda rng: tasks.worked_sums(rng, False),
    lambda rng: tasks.recall(rng, False, rng.randint(30, 1000)),
    lambda rng: tools.tool_calls(rng, False),
    lambda rng: tasks.talk(rng, False),
)


def calibration(model: hy3core.Model, count: int) -> list[Text]:
    """Conversations for training, every task in turn."""
    render, rng = template.for_model(model).render, random.Random(SEED)
    out = []
    for number in range(count):
        drawn = DRAWS[number % len(DRAWS)](rng)
        text = render(drawn.messages, drawn.tools, reasoning_effort=drawn.effort, is_training=True)
        out.append(Text(f"conversation {number}", model.tokenizer.encode(text)))
    return out


@dataclass(frozen=True)
class Example:
    ids: list[int]
    answer: int  # the first position whose prediction is part of the answer


def examples(model: hy3core.Model, limit: int | None) -> Iterator[Example]:
    render, tokenizer = template.for_model(model).render, model.tokenizer
    for suite in SUITES:
        for question in questions(suite)[:limit]:
            prompt = tokenizer.encode(prompt_of(render, question))
            yield Example(prompt + tokenizer.encode(question.expected), len(prompt) - 1)


def prompt_of(render: Callable[..., str], question: Question) -> str:
    return render(
        question.messages,
        question.tools,
        add_generation_prompt=True,
        reasoning_effort=question.reasoning_effort,
    )


def log_probabilities(session: hy3core.Session, example: Example) -> np.ndarray:
    """float32[n, vocab]"""
    session.reset()
    logits = session.eval(example.ids, logits="all")
    assert logits is not None
    logits = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


@dataclass
class Distance:
    """From the reference, per question: mean KL of the answer's positions and of all, and equal choices."""

    answers: list[float]
    everything: list[float]
    same: int = 0
    positions: int = 0

    def add(self, wanted: np.ndarray, got: np.ndarray, answer: int) -> None:
        kl = (np.exp(wanted) * (wanted - got)).sum(axis=1, dtype=np.float64)
        self.answers.append(float(kl[answer:].mean()))
        self.everything.append(float(kl.mean()))
        self.same += int((wanted[answer:].argmax(axis=1) == got[answer:].argmax(axis=1)).sum())
        self.positions += len(kl) - answer


def measure(reference: Path, others: Sequence[Path], limit: int | None, threads: int) -> list[Distance]:
    """All models read the questions side by side, so that the reference is computed once."""
    models = [hy3core.Model(str(path), backend="cpu", threads=threads) for path in (reference, *others)]
    sessions = [model.session(ctx=CTX, kv="f32") for model in models]
    distances = [Distance([], []) for _ in others]
    for example in examples(models[0], limit):
        wanted = log_probabilities(sessions[0], example)
        for session, distance in zip(sessions[1:], distances, strict=True):
            distance.add(wanted, log_probabilities(session, example), example.answer)
    return distances


def gain(without: Sequence[float], with_: Sequence[float]) -> str:
    """The share of the KL that is gone, with the standard error over the questions."""
    a, saved = np.array(without), np.array(without) - np.array(with_)
    error = saved.std(ddof=1) / len(a) ** 0.5
    return f"{a.mean():9.5f} {np.mean(with_):9.5f} {saved.mean() / a.mean():5.0%} +-{error / a.mean():4.0%}"


def row(name: str, without: Distance, with_: Distance) -> str:
    return (
        f"{name:<6} {gain(without.answers, with_.answers)}   {gain(without.everything, with_.everything)}"
        f"   {without.same / without.positions:8.2%} {with_.same / with_.positions:8.2%}"
    )


HEAD = """\
       KL of the answers                KL of all positions              same choice
type     without      with  gain          without      with  gain          without     with"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a GGUF of hy3-tiny; left out: the bundled one")
    parser.add_argument("--type", action="append", choices=TYPES, help="may be repeated; left out: all")
    parser.add_argument("--conversations", type=int, default=1000, help="to make the matrix of")
    parser.add_argument("--limit", type=int, help="only the first questions of each suite")
    parser.add_argument("--threads", type=int, default=0, help="they do not change the numbers")
    args = parser.parse_args()
    source = args.model or Path(str(resources.files("hy3").joinpath("models/hy3-tiny.gguf")))
    types = args.type or TYPES
    with tempfile.TemporaryDirectory() as folder:
        matrix, reference = Path(folder, "imatrix.gguf"), Path(folder, "f32.gguf")
        model = hy3core.Model(str(source), backend="cpu", threads=args.threads)
        texts = calibration(model, args.conversations)
        with Collection(model, texts, CTX) as collection:
            for _ in collection:
                pass
            collection.save(matrix)
            missing = sum(map(len, collection.unvisited().values()))
        tokens = sum(len(text.ids) for text in texts)
        print(f"{len(texts)} conversations, {tokens} tokens; {missing} experts never chosen")
        convert(source, reference, Options(type="f32"))
        files = []
        for name in types:
            for importance in (None, matrix):
                files.append(Path(folder, f"{name}-{importance is not None}.gguf"))
                convert(reference, files[-1], Options(type=name, imatrix=importance))
        distances = measure(reference, files, args.limit, args.threads)
        print(f"{len(distances[0].answers)} questions\n{HEAD}")
        for name, without, with_ in zip(types, distances[::2], distances[1::2], strict=True):
            print(row(name, without, with_))


if __name__ == "__main__":
    main()
