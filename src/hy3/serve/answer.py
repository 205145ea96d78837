"""From token events to the parts of an answer: reasoning, text, tool calls.

The answer that is not streamed is the parts put together, so that both are the same. Stop strings count in
the answer only, not in the reasoning before it.
"""

import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hy3.chat import tool_calls
from hy3.chat.reply import Chunk, StopFilter, ThinkSplitter, think_tags
from hy3core import Event

if TYPE_CHECKING:
    from hy3core import Tokenizer


@dataclass(frozen=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True)
class TextDelta:
    text: str


@dataclass(frozen=True)
class CallStart:
    index: int
    id: str
    name: str


@dataclass(frozen=True)
class CallArguments:
    index: int
    fragment: str  # of a JSON object


@dataclass(frozen=True)
class TokenScore:
    """A token of the answer, reasoning apart, and what was most likely in its place: (id, logprob)."""

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]


Part = ReasoningDelta | TextDelta | CallStart | CallArguments | TokenScore


@dataclass(frozen=True)
class Style:
    """How the tokens of a request are to be read. `tools`: the parameters' schema of each function; None:
    what looks like a call is text. `one_call`: the answer ends with its first call. `plain`: think tags are
    text as well. `ends`: tokens that end the answer here, where the scheduler was told of none, so that they
    have a score."""

    thinking: bool = False  # the prompt ends inside a think block
    stops: Sequence[str] = ()
    tools: Mapping[str, Mapping[str, Any]] | None = None
    one_call: bool = False
    plain: bool = False
    ends: Sequence[int] = ()


class Answer:
    """One answer under way: `push` each event, `finish` with the last one's reason."""

    def __init__(self, tokenizer: "Tokenizer", style: Style) -> None:
        self.ended = False  # by a stop string or enough calls: nothing more is to be generated
        self.finish_reason = ""  # in the end: "stop", "length" or "tool_calls"
        self.tokens = 0
        self.reasoning_tokens = 0
        self._decoder = tokenizer.stream_decoder(special=True)
        self._ends = style.ends
        self._think = ThinkSplitter(() if style.plain else think_tags(tokenizer), style.thinking)
        self._stop = StopFilter(style.stops)
        self._parser = None if style.tools is None else tool_calls.ToolCallParser(style.tools)
        self._one_call = style.one_call
        self._calls = 0
        self._scores: deque[tuple[int, TokenScore]] = deque()  # with the characters there are before it
        self._answered = 0  # characters decoded of the answer, and those past the stop filter
        self._passed = 0

    @property
    def stop_string(self) -> str | None:
        """The one that ended the answer."""
        return self._stop.matched

    def push(self, event: Event) -> list[Part]:
        if event.token is None or self.ended:
            return []
        self.tokens += 1
        if event.token in self._ends:
            return self._end(event)
        thought = self._think.thinking
        before = self._answered
        chunks = self._think.push(self._decoder.push(event.token))
        if thought or self._think.thinking:
            self.reasoning_tokens += 1
        elif event.logprob is not None:
            score = TokenScore(event.token, event.logprob, event.top or ())
            self._scores.append((before, score))
        return self._scored(self._parts(chunks))

    def finish(self, reason: str) -> list[Part]:
        """The rest; `reason` is the scheduler's, "stop" or "length"."""
        parts = [] if self.ended else self._parts(self._think.finish())
        if not self.ended:
            parts += self._read(self._stop.finish())
        if self._parser is not None:
            parts += self._named(self._parser.finish())
        if self._calls and (self.ended or reason == "stop"):
            self.finish_reason = "tool_calls"
        else:
            self.finish_reason = "stop" if self.ended else reason
        return self._scored(parts, all_of_them=not self.ended)

    def _end(self, event: Event) -> list[Part]:
        """An end token: it has a score but no text."""
        assert event.token is not None
        parts = self._scored(self._parts(self._think.finish()) + self._read(self._stop.finish()), True)
        self.ended = True
        if event.logprob is not None:
            parts.append(TokenScore(event.token, event.logprob, event.top or ()))
        return parts

    def _parts(self, chunks: Sequence[Chunk]) -> list[Part]:
        parts: list[Part] = []
        for chunk in chunks:
            if chunk.thinking:
                parts.append(ReasoningDelta(chunk.text))
                continue
            self._answered += len(chunk.text)
            parts += self._read(self._stop.push(chunk.text))
        self.ended = self.ended or self._stop.stopped
        return parts

    def _read(self, text: str) -> list[Part]:
        self._passed += len(text)
        if not text:
            return []
        return [TextDelta(text)] if self._parser is None else self._named(self._parser.push(text))

    def _named(self, events: Sequence[tool_calls.Event]) -> list[Part]:
        """The parser's events as parts, up to the call that is one too many."""
        parts: list[Part] = []
        for event in events:
            if self._calls and self._one_call and not isinstance(event, tool_calls.Arguments):
                self.ended = self.ended or isinstance(event, tool_calls.CallStart)
                continue
            if isinstance(event, tool_calls.CallStart):
                self._calls += 1
                parts.append(CallStart(event.index, "call_" + secrets.token_hex(12), event.name))
            elif isinstance(event, tool_calls.Arguments):
                if event.index < self._calls:
                    parts.append(CallArguments(event.index, event.fragment))
            else:
                parts.append(TextDelta(event.text))
        return parts

    def _scored(self, parts: list[Part], all_of_them: bool = False) -> list[Part]:
        """Before the parts, the scores of tokens whose text is out; those of a stop string never are."""
        scores: list[Part] = []
        while self._scores and (all_of_them or self._scores[0][0] < self._passed):
            scores.append(self._scores.popleft()[1])
        return scores + parts
