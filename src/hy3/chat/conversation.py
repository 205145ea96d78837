"""The messages of a chat and the token ids they became, so that a turn computes only what is new.

The session reuses the longest prefix of ids that it already holds. Text tokenized twice need not give the ids
that were sampled (`12` as one token or two), so the ids of answers are kept and put back where the answer's
text stands in the newly rendered prompt. Finding that place is the template's business, not ours: it may drop
old reasoning, strip or reorder. So the messages are rendered a second time with a marker for each kept text.
If putting the texts back for the markers gives exactly the first rendering, the markers' places are the
texts' places. If not (a template that looks inside an answer), nothing is reused and all of the prompt is
tokenized: slower, never wrong.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hy3.chat.reply import Reply, opens_thinking
from hy3.errors import Hy3Error
from hy3.template import ChatTemplate, TemplateError

if TYPE_CHECKING:
    from hy3core import Tokenizer

EFFORT = {"off": "no_think", "low": "low", "high": "high"}  # --think -> the template's reasoning_effort
FIELDS = ("reasoning_content", "content")  # of a message, that a model can have written
FORMAT = "hy3-chat-1"  # of a saved conversation


@dataclass(frozen=True)
class Prompt:
    ids: list[int]
    thinking: bool  # the text ends inside a think block


@dataclass
class Turn:
    """A message, and for each of FIELDS that was sampled, its ids."""

    message: dict[str, Any]
    ids: dict[str, list[int]] = field(default_factory=dict)


class Conversation:
    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: "Tokenizer",
        system: str | None = None,
        think: str = "off",
        add_bos: bool = False,
    ) -> None:
        self.system = system
        self.think = think
        self.turns: list[Turn] = []
        self._template = template
        self._tokenizer = tokenizer
        self._add_bos = add_bos

    @property
    def messages(self) -> list[dict[str, Any]]:
        """As the template gets them, the system prompt first."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return system + [turn.message for turn in self.turns]

    def prompt(self, question: str) -> Prompt:
        """The ids that ask the next question. Nothing is remembered until `add`."""
        turns = [*self.turns, Turn({"role": "user", "content": question})]
        text = self._render(turns)
        pieces = self._pieces(turns, text) or [text]
        ids: list[int] = []
        for piece in pieces:
            ids += self._tokenizer.encode(piece, special=True) if isinstance(piece, str) else piece
        return Prompt(with_bos(ids, self._tokenizer, self._add_bos), opens_thinking(text, self._tokenizer))

    def add(self, question: str, reply: Reply) -> None:
        """Keeps a question and its answer, whole or cut short."""
        message: dict[str, Any] = {"role": "assistant", "content": reply.content}
        ids = {"content": reply.content_ids, "reasoning_content": reply.reasoning_ids}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        self.turns.append(Turn({"role": "user", "content": question}))
        self.turns.append(Turn(message, {name: kept for name, kept in ids.items() if kept}))

    def reset(self) -> None:
        """Forgets the turns; the system prompt and the thinking mode stay."""
        self.turns.clear()

    def to_json(self) -> str:
        saved = {
            "format": FORMAT,
            "system": self.system,
            "think": self.think,
            "turns": [{"message": turn.message, "ids": turn.ids} for turn in self.turns],
        }
        return json.dumps(saved, ensure_ascii=False, indent=1) + "\n"

    def take_json(self, text: str, name: str) -> None:
        """Replaces this conversation by a saved one, which errors call `name`; they change nothing."""
        saved = parse(text, name)
        turns = [Turn(turn["message"], self._valid_ids(turn)) for turn in saved["turns"]]
        self.system, self.think, self.turns = saved["system"], saved["think"], turns

    def _valid_ids(self, turn: Mapping[str, Any]) -> dict[str, list[int]]:
        """The saved ids that mean the saved text: those of another model's vocabulary do not."""
        valid = {}
        for name, ids in turn["ids"].items():
            in_range = all(0 <= token < self._tokenizer.vocab_size for token in ids)
            if in_range and self._tokenizer.decode(ids, special=True) == turn["message"].get(name):
                valid[name] = ids
        return valid

    def _render(self, turns: Sequence[Turn]) -> str:
        system = [{"role": "system", "content": self.system}] if self.system else []
        messages = system + [turn.message for turn in turns]
        return self._template.render(
            messages, add_generation_prompt=True, reasoning_effort=EFFORT[self.think]
        )

    def _pieces(self, turns: Sequence[Turn], text: str) -> list[str | list[int]] | None:
        """The prompt as text to tokenize and kept ids, alternating; None if these cannot be placed."""
        kept: list[tuple[str, list[int]]] = []
        open_, close = private_marks(text)
        marked: list[Turn] = []
        for turn in turns:
            message = dict(turn.message)
            for name in FIELDS:
                if name in turn.ids:
                    kept.append((message[name], turn.ids[name]))
                    message[name] = f"{open_}{len(kept) - 1}{close}"
            marked.append(Turn(message))
        if not kept:
            return None
        try:
            parts = re.split(f"{open_}([0-9]+){close}", self._render(marked))
        except TemplateError:
            return None  # one that refuses the markers
        numbers = [int(number) for number in parts[1::2]]
        parts[1::2] = [kept[number][0] for number in numbers]
        if "".join(parts) != text:
            return None
        pieces: list[str | list[int]] = list(parts)
        pieces[1::2] = [kept[number][1] for number in numbers]
        return pieces


def with_bos(ids: list[int], tokenizer: "Tokenizer", wanted: bool) -> list[int]:
    """A model's file may ask for the begin token; most templates write it themselves."""
    bos = tokenizer.bos_id
    return [bos, *ids] if wanted and bos is not None and ids[:1] != [bos] else ids


def private_marks(text: str) -> tuple[str, str]:
    """Two characters that do not occur in the text, from Unicode's private use areas."""
    free = [mark for code in range(0xE000, 0xF900) if (mark := chr(code)) not in text]
    if len(free) < 2:
        free = [chr(0xF0000), chr(0xF0001)]  # then a wrong guess only fails the comparison in _pieces
    return free[0], free[1]


def parse(text: str, name: str) -> dict[str, Any]:
    """A saved conversation, checked field by field."""
    hint = "Give a file that /save wrote"
    try:
        saved = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Hy3Error(f"{name} is not a saved conversation: {error}", hint) from None
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise Hy3Error(f"{name} is not a saved conversation: its format is not {FORMAT}", hint)
    system, think, turns = saved.get("system"), saved.get("think"), saved.get("turns")
    if not (system is None or isinstance(system, str)) or think not in EFFORT or not isinstance(turns, list):
        raise Hy3Error(f"{name} has a wrong system, think or turns entry", hint)
    for number, turn in enumerate(turns, 1):
        if not is_turn(turn):
            raise Hy3Error(f"{name} has a wrong turn number {number}", hint)
    return saved


def is_turn(turn: Any) -> bool:
    if not isinstance(turn, dict):
        return False
    message, ids = turn.get("message"), turn.get("ids")
    return (
        isinstance(message, dict)
        and message.get("role") in ("user", "assistant")
        and all(isinstance(value, str) for value in message.values())
        and "content" in message
        and isinstance(ids, dict)
        and all(name in FIELDS and name in message for name in ids)
        and all(isinstance(kept, list) and all(type(token) is int for token in kept) for kept in ids.values())
    )
