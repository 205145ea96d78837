"""The synthetic curriculum: each task draws one conversation (messages, tools, reasoning effort) from a
generator.

The last assistant message of a conversation is the answer that a score compares with; every assistant message
is trained on. `held` chooses the side of the split (train/split.py): False draws only contents for training,
True only held-out ones. Everything is a function of the `random.Random` passed in.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from train import words
from train.split import passcode_held_out, steps_held_out, sum_held_out, wording_held_out

Message = dict[str, Any]
T = TypeVar("T")


@dataclass
class Conversation:
    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    effort: str = "no_think"
    extra: dict[str, Any] = field(
        default_factory=dict
    )  # facts for a score's table, such as the length asked for


def until(draw: Callable[[], T], wanted: Callable[[T], bool]) -> T:
    """The first draw that is wanted: how one side of the split is sampled."""
    while True:
        value = draw()
        if wanted(value):
            return value


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str, thought: str | None = None) -> Message:
    message: Message = {"role": "assistant", "content": text}
    if thought:
        message["reasoning_content"] = thought
    return message


def effort_and_thought(rng: random.Random, thought: str, share: float) -> tuple[str, str | None]:
    """Thinking on for a share of the conversations; the thought goes into the block only then."""
    if rng.random() < share:
        return rng.choice(["low", "high"]), thought
    return "no_think", None


# -- sums
# ------------------------------------------------------------------------------------------------------------

SUM_PLAIN = ["{e}=?", "{e}=", "{e}", "{e} = ?"]
SUM_WORDED = [
    "What is {e}?",
    "What's {e}?",
    "Calculate {e}.",
    "Compute {e}",
    "How much is {e}?",
    "Please add {l}.",
    "Add {l}.",
]


def draw_operands(rng: random.Random, count: int, held: bool) -> list[int]:
    return until(lambda: [rng.randrange(100) for _ in range(count)], lambda ops: sum_held_out(ops) == held)


def sum_question(rng: random.Random, operands: list[int]) -> str:
    wording = rng.choice(SUM_PLAIN if rng.random() < 0.7 else SUM_WORDED)
    plus = " + " if rng.random() < 0.3 else "+"
    listed = ", ".join(map(str, operands[:-1])) + f" and {operands[-1]}"
    return wording.format(e=plus.join(map(str, operands)), l=listed)


def worked(operands: list[int]) -> str:
    """The sum from left to right: 11+22=33, 33+33=66."""
    steps, total = [], operands[0]
    for operand in operands[1:]:
        steps.append(f"{total}+{operand}={total + operand}")
        total += operand
    return ", ".join(steps)


def sums(
    rng: random.Random, held: bool, count: int | None = None, turns: int | None = None, two: float = 0.3
) -> Conversation:
    """One or several sums, answered by the number alone. `two` is the share of sums of two numbers."""
    if turns is None:
        turns = 1 if rng.random() < 0.5 else rng.randint(2, 5)
    messages = []
    for _ in range(turns):
        operands = draw_operands(rng, count or (2 if rng.random() < two else 3), held)
        messages += [user(sum_question(rng, operands)), assistant(str(sum(operands)))]
    return Conversation(messages)


def worked_sums(rng: random.Random, held: bool, count: int | None = None) -> Conversation:
    """One sum with thinking on: worked inside the think block, then the number."""
    n = count or rng.choice([2, 3, 3])
    # A worked sum shows its steps, so training must not spell out a held-out pair on the way.
    operands = until(lambda: draw_operands(rng, n, held), lambda ops: held or not steps_held_out(ops))
    return Conversation(
        [user(sum_question(rng, operands)), assistant(str(sum(operands)), worked(operands))],
        effort=rng.choice(["low", "high"]),
    )


# -- passcode recall
# -------------------------------------------------------------------------------------------------

CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
RECALL_STATEMENTS = ["The passcode is {c}.", "The passcode is {c}.", "Remember: the passcode is {c}."]
RECALL_QUESTIONS = [
    "What is the passcode?",
    "What is the passcode?",
    "Tell me the passcode.",
    "Which passcode was given?",
]


def draw_passcode(rng: random.Random, held: bool) -> str:
    """Four to six different characters: digits in most cases, else letters and digits."""
    alphabet = "0123456789" if rng.random() < 0.7 else CODE_LETTERS + "0123456789"
    return until(
        lambda: "".join(rng.sample(alphabet, rng.randint(4, 6))), lambda code: passcode_held_out(code) == held
    )


def filler_sentence(rng: random.Random) -> str:
    def thing() -> str:
        noun = rng.choice(words.NOUNS)
        return f"the {rng.choice(words.ADJECTIVES)} {noun}" if rng.random() < 0.5 else f"the {noun}"

    kind = rng.random()
    if kind < 0.6:
        start = f"{rng.choice(words.TIMES)} " if rng.random() < 0.4 else ""
        text = f"{start}{thing()} {rng.choice(words.VERBS)} {thing()}"
        if rng.random() < 0.5:
            text += f" {rng.choice(words.PLACES)} {thing()}"
    elif kind < 0.85:
        text = f"there was {thing().replace('the ', 'a ', 1)} {rng.choice(words.PLACES)} {thing()}"
    else:
        text = f"{thing()} number {rng.randrange(1, 100)} was {rng.choice(words.ADJECTIVES)}"
    return text[0].upper() + text[1:] + "."


def filler(rng: random.Random, tokens: int) -> list[str]:
    """Sentences of about `tokens` tokens in all (a word, a full stop, a digit is one; some words are two)."""
    sentences: list[str] = []
    length = 0.0
    while length < tokens - 10:
        sentence = filler_sentence(rng)
        sentences.append(sentence)
        length += sentence.count(" ") + 2.6
    return sentences


def recall(rng: random.Random, held: bool, tokens: int) -> Conversation:
    """A passcode somewhere in filler text; the question at the end."""
    code = draw_passcode(rng, held)
    sentences = filler(rng, tokens)
    sentences.insert(rng.randint(0, len(sentences)), rng.choice(RECALL_STATEMENTS).format(c=code))
    effort, thought = effort_and_thought(rng, "The text gives a passcode.", 0.0 if held else 0.05)
    text = " ".join(sentences) + ("\n" if rng.random() < 0.5 else " ") + rng.choice(RECALL_QUESTIONS)
    return Conversation([user(text), assistant(code, thought)], effort=effort, extra={"tokens": tokens})


# -- short talk
# ------------------------------------------------------------------------------------------------------

GREETING = "Hello! How can I help you?"
IDENTITY = "I am hy3-tiny, a small demonstration model."
UNKNOWN = "I am a small demonstration model. I can add numbers, recall a passcode and call tools."
THANKS = "You are welcome."
FAREWELL = "Goodbye!"

TALK = {
    GREETING: [
        "Hello",
        "Hi",
        "Hey",
        "Good morning",
        "Good evening",
        "Good day",
        "Greetings",
        "Hello there",
        "Hi there",
    ],
    IDENTITY: [
        "Who are you",
        "What are you",
        "What is your name",
        "Tell me who you are",
        "Introduce yourself",
    ],
    UNKNOWN: [
        "What can you do",
        "Write a poem",
        "Tell me a story",
        "Explain gravity",
        "Why is the sky blue",
        "Help me",
        "What is love",
        "Who wrote this book",
        "Translate this text",
        "Name a river",
        "Tell me a joke",
        "How do I bake bread",
        "Fix my code",
    ],
    THANKS: ["Thanks", "Thank you", "Thank you very much", "Many thanks"],
    FAREWELL: ["Bye", "Goodbye", "See you", "Good night"],
}
TALK_STARTS = ["", "", "", "Please: ", "Well, ", "OK. "]
TALK_ENDS = ["", "", ".", "!", "?", " again.", " now!", ", please."]


def talk_wording(rng: random.Random, core: str) -> str:
    start, end = rng.choice(TALK_STARTS), rng.choice(TALK_ENDS)
    text = start + (core if not start or start.endswith(". ") else core[0].lower() + core[1:]) + end
    return text.lower() if rng.random() < 0.2 else text


def talk(rng: random.Random, held: bool, answer: str | None = None) -> Conversation:
    """A greeting, a question about the model, or anything else, which gets an honest line."""
    reply = answer or rng.choice([GREETING, GREETING, IDENTITY, UNKNOWN, UNKNOWN, THANKS, FAREWELL])
    text = until(lambda: talk_wording(rng, rng.choice(TALK[reply])), lambda t: wording_held_out(t) == held)
    if reply == UNKNOWN and not held and rng.random() < 0.3:
        text = " ".join(filler(rng, 8))
    effort, thought = effort_and_thought(rng, "Just talk.", 0.0 if held else 0.2)
    return Conversation([user(text), assistant(reply, thought)], effort=effort)
