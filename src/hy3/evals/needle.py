"""`needle`: facts hidden at given depths of a long text of an exact number of tokens.

The text is made of sentences that say nothing twice; each needle names a place and a code of six digits. The
question asks for all the codes, and the answer is right when it has each of them.
"""

import json
import random
from dataclasses import dataclass, field

from hy3.errors import Hy3Error
from hy3.evals.client import Answer, Client, Request
from hy3.evals.files import find
from hy3.evals.suite import Grade, Settings, Task

MOST = 8  # needles: as many as there are places
Words = dict[str, list[str]]
PAD = " and"  # one token in any vocabulary with ordinary English


@dataclass
class Needle:
    """`tokens`: lengths of the text; `depths`: where the needles are, 0 the beginning; every depth for every
    length."""

    client: Client
    tokens: tuple[int, ...] = (1000, 4000)
    depths: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    needles: int = 1  # a text; the first at the depth, the others spread over the text
    name: str = field(default="needle", init=False)

    def tasks(self) -> list[Task]:
        return [
            Task(
                f"{tokens}@{depth:g}", f"{tokens} tokens, depth {depth:g}", {"tokens": tokens, "depth": depth}
            )
            for tokens in self.tokens
            for depth in self.depths
        ]

    def request(self, task: Task, seed: int, settings: Settings) -> Request:
        source = random.Random(f"{seed}/{task.id}")
        words = json.loads(find("needle.json").read_text(encoding="utf-8"))
        places = source.sample(words["places"], self.needles)
        codes = [f"{source.randrange(10**6):06d}" for _ in places]
        task.record["codes"] = codes
        depths = [task.record["depth"]] + [(i + 0.5) / self.needles for i in range(1, self.needles)]
        facts = [f"The code of the {place} is {code}." for place, code in zip(places, codes, strict=True)]
        text = haystack(
            self.client, source, words, task.record["tokens"], list(zip(depths, facts, strict=True))
        )
        asked = " and of the ".join(places)
        question = f"\n\nWhat is the code of the {asked}? Answer with the digits."
        return Request(
            [{"role": "user", "content": text + question}],
            effort=settings.effort,
            max_tokens=settings.max_tokens or 64 * self.needles,
            temperature=settings.temperature,
            seed=seed,
        )

    def grade(self, task: Task, answer: Answer) -> Grade:
        missing = [code for code in task.record["codes"] if code not in answer.text]
        return Grade(not missing, f"{', '.join(missing)} is missing" if missing else "")


def sentence(source: random.Random, words: Words) -> str:
    return " ".join(source.choice(words[part]) for part in ("who", "did", "what", "when")) + "."


def haystack(
    client: Client, source: random.Random, words: Words, tokens: int, facts: list[tuple[float, str]]
) -> str:
    """A text of exactly `tokens` tokens with the facts at their depths."""
    needed = client.count(" ".join(fact for _, fact in facts))
    if tokens < needed + 50:
        raise Hy3Error(
            f"--tokens {tokens} has no room for {len(facts)} needles", "Give more tokens, or fewer needles"
        )
    sentences = [sentence(source, words) for _ in range(8)]
    each = client.count(" ".join(sentences)) / len(sentences)
    while len(sentences) * each < tokens:
        sentences.append(sentence(source, words))

    def text(count: int) -> str:
        lines = sentences[:count]
        for depth, fact in sorted(facts, reverse=True):
            lines.insert(round(depth * count), fact)
        return " ".join(lines)

    low, high = 0, len(sentences)  # as many sentences as fit
    while low < high:
        middle = (low + high + 1) // 2
        if client.count(text(middle)) <= tokens:
            low = middle
        else:
            high = middle - 1
    out = text(low)
    while (short := tokens - client.count(out)) > 0:  # inside the first sentence, away from the question
        head, tail = out.split(" ", 1)
        longer = head + PAD * short + " " + tail
        if client.count(longer) > tokens:
            longer = head + PAD + " " + tail
        out = longer
    if client.count(out) != tokens:
        raise Hy3Error(f"No text of exactly {tokens} tokens was found", "Give another number of --tokens")
    return out
