"""Importance matrices: what goes into each weight while a model reads texts, summed and written as llama.cpp
writes it (general.type "imatrix"; NAME.in_sum2 and NAME.counts for each weight NAME).

    texts = [Text("train.txt", ids)]
    with Collection(model, texts, chunk_size=512) as collection:
        for chunk in collection: ...
        collection.save(Path("hy3.imatrix.gguf"))
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hy3.convert.output import partial
from hy3.errors import Hy3Error

if TYPE_CHECKING:
    import hy3core

KEPT = 512  # most rows computed at once


@dataclass(frozen=True)
class Text:
    name: str
    ids: list[int]


@dataclass(frozen=True)
class Chunk:
    """One that has been read: its number from 1, and the perplexity of all text so far."""

    number: int
    perplexity: float


class Collection:
    """Reads texts chunk by chunk, each from an empty context. No chunk reaches over the end of a text, so the
    last one of each may be shorter.

    A model that wants a begin token (tokenizer.ggml.add_bos_token) gets it at the start of every chunk.
    """

    def __init__(
        self, model: hy3core.Model, texts: Sequence[Text], chunk_size: int = 512, chunks: int | None = None
    ) -> None:
        self.model = model
        self.texts = texts
        self.chunk_size = chunk_size
        bos = model.tokenizer.bos_id if model.metadata.get("tokenizer.ggml.add_bos_token") else None
        self._head = [] if bos is None else [bos]
        self._chunks = list(self._cut())[:chunks]
        self.read = 0
        self._session = model.session(
            ctx=chunk_size, chunk=min(chunk_size, KEPT), mtp=model.config.n_mtp_layers > 0
        )
        self._collector: Any = None

    def __len__(self) -> int:
        return len(self._chunks)

    def _cut(self) -> Iterator[list[int]]:
        step = self.chunk_size - len(self._head)
        for text in self.texts:
            for at in range(0, len(text.ids), step):
                yield self._head + text.ids[at : at + step]

    def __enter__(self) -> Collection:
        self._collector = self.model.collect_importance().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._collector.__exit__(kind, error, trace)

    def __iter__(self) -> Iterator[Chunk]:
        total, scored = 0.0, 0
        for number, ids in enumerate(self._chunks, 1):
            self._session.reset()
            logprobs = self._session.score(ids)[1:]  # nothing precedes the first
            total, scored = total - float(logprobs.sum()), scored + len(logprobs)
            self.read = number
            yield Chunk(number, math.exp(total / scored) if scored else math.nan)

    def unvisited(self) -> dict[str, list[int]]:
        """The experts that no token was routed to, by block ("blk.3")."""
        out = {}
        for name in self._collector.names:
            block, part, _ = name.partition(".ffn_down_exps.")
            missing = [int(e) for e in (self._collector.counts(name) == 0).nonzero()[0]] if part else []
            if missing:
                out[block] = missing
        return out

    def save(self, path: Path) -> None:
        """Writes the sums of the chunks read so far; weights that nothing went into are left out."""
        names = [name for name in sorted(self._collector.names) if self._collector.counts(name).any()]
        metadata = [
            ("general.type", "str", "imatrix"),
            ("imatrix.datasets", "[str]", [text.name for text in self.texts]),
            ("imatrix.chunk_count", "u32", self.read),
            ("imatrix.chunk_size", "u32", self.chunk_size),
        ]
        write_gguf(path, metadata, self._arrays(names), self._arrays(names))

    def _arrays(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        for name in names:
            yield f"{name}.in_sum2", self._collector.sums(name)
            yield f"{name}.counts", self._collector.counts(name)[:, None]


def write_gguf(
    path: Path,
    metadata: Sequence[tuple[str, str, Any]],
    shapes: Iterable[tuple[str, Any]],
    arrays: Iterable[tuple[str, Any]],
) -> None:
    """Arrays with their names as float32, written aside and then renamed. They come twice, once for the
    shapes, so that no more than one has to be in memory."""
    import hy3core

    tensors = [(name, "f32", tuple(reversed(array.shape))) for name, array in shapes]
    header, offsets, nbytes = hy3core.gguf_header(metadata, tensors)
    aside = partial(path)
    try:
        with aside.open("wb") as file:
            file.write(header)
            for offset, (_, values) in zip(offsets, arrays, strict=True):
                file.seek(len(header) + offset)
                file.write(values.astype("<f4").tobytes())
            file.truncate(len(header) + nbytes)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise Hy3Error(
            f"{path} cannot be written: {error.strerror}", "Free some space, or choose another place"
        ) from error
    finally:
        aside.unlink(missing_ok=True)
