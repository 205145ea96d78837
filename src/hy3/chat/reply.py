"""One answer as it streams out of a model: bytes to characters, stop strings, thinking apart from the answer.

Token ids go in, pieces of text come out as soon as they are certain: the bytes of an unfinished character,
the beginning of what may be a stop string and the beginning of what may be a think tag are held back until
they are. The ids are kept beside the text, so that the next turn can go on from what was sampled without
tokenizing it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hy3core import Tokenizer

# The second kind is that of Hy3-preview and Hy-MT2.
THINK_TAGS = (("<think:opensource>", "</think:opensource>"), ("<think>", "</think>"))


def think_tags(tokenizer: "Tokenizer") -> Sequence[tuple[str, str]]:
    """The opening and closing tags this model uses: those that are tokens of its vocabulary, else any."""
    known = [pair for pair in THINK_TAGS if all(tokenizer.token_id(tag) is not None for tag in pair)]
    return known or THINK_TAGS


def opens_thinking(prompt: str, tokenizer: "Tokenizer") -> bool:
    """Whether a rendered prompt ends inside a think block, which the model is then to close."""
    return prompt.rstrip().endswith(tuple(opening for opening, _ in think_tags(tokenizer)))


@dataclass(frozen=True)
class Chunk:
    """Text that will not change any more."""

    text: str
    thinking: bool


class StopFilter:
    """Passes text on up to the first stop string, and never the beginning of one under way."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = [stop for stop in stops if stop]
        self.matched: str | None = None  # the stop string that was completed
        self._held = ""

    @property
    def stopped(self) -> bool:
        return self.matched is not None

    def push(self, text: str) -> str:
        if self.stopped:
            return ""
        self._held += text
        found = [(at, stop) for stop in self.stops if (at := self._held.find(stop)) >= 0]
        if found:
            safe, self.matched = min(found)
        else:
            safe = len(self._held) - unfinished(self._held, self.stops)
        out, self._held = self._held[:safe], self._held[safe:]
        return out

    def finish(self) -> str:
        """What was held back, when nothing follows that could complete a stop string."""
        out = "" if self.stopped else self._held
        self._held = ""
        return out


class ThinkSplitter:
    """Cuts a stream at its think tags. Offsets count characters of the stream, tags included.

    A tag opens only at the start of the answer, and closes only an open block: further on it is text that the
    model wrote about.
    """

    def __init__(self, tags: Sequence[tuple[str, str]], thinking: bool) -> None:
        self.thinking = thinking
        self.reasoning_span: tuple[int, int] | None = (0, 0) if thinking else None
        self.content_start = 0
        self._openings = [opening for opening, _ in tags]
        self._closings = [closing for _, closing in tags]
        self._at_start = not thinking
        self._held = ""
        self._offset = 0  # of what is held, in the stream

    def push(self, text: str) -> list[Chunk]:
        self._held += text
        chunks: list[Chunk] = []
        while True:
            tags = self._closings if self.thinking else self._openings if self._at_start else []
            found = [(at, tag) for tag in tags if (at := self._held.find(tag)) >= 0]
            if not found or (not self.thinking and self._held[: min(found)[0]].strip()):
                break
            at, tag = min(found)
            if (
                self.thinking
            ):  # white space before an opening tag is dropped, before a closing one it is reasoning
                self._emit(at, chunks)
            else:
                self._drop(at)
            self._drop(len(tag))
            self._turn()
        if not self.thinking and self._at_start and self._held.strip():
            # Not white space any more: either the beginning of a tag or of the answer.
            start = self._held.lstrip()
            if not any(opening.startswith(start) for opening in self._openings):
                self._at_start = False
        if self.thinking:
            self._emit(len(self._held) - unfinished(self._held, self._closings), chunks)
        elif not self._at_start:
            self._emit(len(self._held), chunks)
        return chunks

    def finish(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        self._emit(len(self._held), chunks)
        return chunks

    def _turn(self) -> None:
        self.thinking = not self.thinking
        self._at_start = False
        if self.thinking:
            self.reasoning_span = (self._offset, self._offset)
        else:
            self.content_start = self._offset

    def _emit(self, length: int, chunks: list[Chunk]) -> None:
        if length:
            chunks.append(Chunk(self._held[:length], self.thinking))
            self._drop(length)
        if self.thinking and self.reasoning_span is not None:
            self.reasoning_span = (self.reasoning_span[0], self._offset)

    def _drop(self, length: int) -> None:
        self._held = self._held[length:]
        self._offset += length


class Reply:
    """Collects an answer. After the last `push`, `finish`; then all that it has is complete."""

    def __init__(self, tokenizer: "Tokenizer", stops: Sequence[str] = (), thinking: bool = False) -> None:
        self.end = (
            ""  # why it ended, once it has: "token" (an end token), "stop", "length" or "context" (full)
        )
        self.ids: list[int] = []
        self.content = ""
        self.reasoning = ""
        self._tokenizer = tokenizer
        self._decoder = tokenizer.stream_decoder(special=True)
        self._stop = StopFilter(stops)
        self._think = ThinkSplitter(think_tags(tokenizer), thinking)
        self._ends: list[int] = []  # _ends[i]: characters decoded once ids[i] was pushed

    @property
    def stopped(self) -> bool:
        """Whether a stop string was completed: nothing more is to be pushed."""
        return self._stop.stopped

    def push(self, token: int) -> list[Chunk]:
        text = self._decoder.push(token)
        self.ids.append(token)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(text))
        return self._collect(self._think.push(self._stop.push(text)))

    def finish(self) -> list[Chunk]:
        """The text still held back. A character whose last bytes never came is dropped."""
        chunks = self._think.push(self._stop.finish())
        return self._collect(chunks + self._think.finish())

    @property
    def content_ids(self) -> list[int] | None:
        """The sampled ids whose text is `content`, or None if no run of them gives just that."""
        start = self._think.content_start
        return self._ids_of(start, start + len(self.content), self.content)

    @property
    def reasoning_ids(self) -> list[int] | None:
        if self._think.reasoning_span is None:
            return None
        return self._ids_of(*self._think.reasoning_span, self.reasoning)

    def _collect(self, chunks: list[Chunk]) -> list[Chunk]:
        for chunk in chunks:
            if chunk.thinking:
                self.reasoning += chunk.text
            else:
                self.content += chunk.text
        return chunks

    def _ids_of(self, start: int, end: int, text: str) -> list[int] | None:
        ends = [0, *self._ends]
        if start not in ends or end not in ends:
            return None
        ids = self.ids[ends.index(start) : ends.index(end)]
        return ids if self._tokenizer.decode(ids, special=True) == text else None


def unfinished(text: str, markers: Sequence[str]) -> int:
    """The length of the longest end of `text` that begins one of the markers without completing it."""
    for length in range(min(len(text), max(map(len, markers), default=1) - 1), 0, -1):
        if any(len(marker) > length and marker.startswith(text[-length:]) for marker in markers):
            return length
    return 0
