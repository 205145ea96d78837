"""Reads, converts and writes at the same time: a thread that reads, the calling one that converts (on all
cores, in native code), and a thread that writes. A fixed set of buffers goes round between them and bounds
the memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import hy3core
from hy3.convert.importance import Importance
from hy3.convert.output import Output
from hy3.convert.plan import Block
from hy3.convert.source import FileReader
from hy3.errors import Hy3Error

BUFFERS = 3  # in each direction: one being filled, one being emptied, one in between

T = TypeVar("T")


class BadWeights(Hy3Error):
    """A NaN or an infinity: no run on this source can succeed."""


class Closed(Exception):
    pass


class Channel(Generic[T]):
    """A queue that can be closed: then `get` raises at once, or, after `finish`, once it is empty."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._finished = self._closed = False

    def put(self, item: T) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self) -> T:
        with self._changed:
            while not self._items and not self._finished and not self._closed:
                self._changed.wait()
            if self._closed or not self._items:
                raise Closed
            return self._items.popleft()

    def finish(self) -> None:
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Pipeline:
    def __init__(
        self,
        reader: FileReader,
        output: Output,
        threads: int,
        progress: Callable[[int], None],
        importance: Importance | None = None,
    ) -> None:
        self.reader = reader
        self.output = output
        self.threads = threads
        self.progress = progress
        self.importance = importance
        self._empty_in: Channel[bytearray] = Channel()
        self._full_in: Channel[tuple[Block, bytearray]] = Channel()
        self._empty_out: Channel[bytearray] = Channel()
        self._full_out: Channel[tuple[Block, bytearray]] = Channel()
        self._channels: Sequence[Channel[Any]] = (
            self._empty_in,
            self._full_in,
            self._empty_out,
            self._full_out,
        )
        self._error: BaseException | None = None

    def run(self, blocks: Iterable[Block], largest_in: int, largest_out: int) -> None:
        """Converts the blocks in order. On an error everything that was written before it is recorded."""
        for _ in range(BUFFERS):
            self._empty_in.put(bytearray(largest_in))
            self._empty_out.put(bytearray(largest_out))
        reader = threading.Thread(
            target=self._guard, args=(self._read, blocks), name="convert-read", daemon=True
        )
        writer = threading.Thread(target=self._guard, args=(self._write,), name="convert-write", daemon=True)
        reader.start()
        writer.start()
        try:
            self._convert()
        except Closed:
            pass
        finally:
            # Also on Ctrl-C or a bad weight: the reader stops, the writer finishes what it was given.
            self._empty_in.close()
            self._full_in.close()
            self._full_out.finish()
            reader.join()
            writer.join()
            if self._error is None:
                self.output.record()
        if self._error is not None:
            raise self._error

    def _guard(self, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except Closed:
            pass
        except BaseException as error:  # raised again in `run`
            self._error = self._error or error
            for channel in self._channels:
                channel.close()

    def _read(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            buffer = self._empty_in.get()
            view, at = memoryview(buffer), 0
            for piece in block.pieces:
                self.reader.read(piece.file, piece.offset, view[at : at + piece.nbytes])
                at += piece.nbytes
            self._full_in.put((block, buffer))
        self._full_in.finish()

    def _convert(self) -> None:
        while True:
            block, source = self._full_in.get()
            target = self._empty_out.get()
            self._convert_block(
                block, memoryview(source)[: block.source_bytes], memoryview(target)[: block.nbytes]
            )
            self._empty_in.put(source)
            self._full_out.put((block, target))

    def _convert_block(self, block: Block, source: memoryview, target: memoryview) -> None:
        columns = None
        if self.importance is not None and block.weighted is not None:
            columns = self.importance.columns(*block.weighted)
        try:
            hy3core.convert_rows(
                source, block.source_type, block.type, block.rows, block.cols, target, columns, self.threads
            )
        except hy3core.OutOfMemoryError:
            raise
        except hy3core.Error as error:
            raise BadWeights(
                f"tensor '{block.name}', in the {block.rows} rows from row {block.first_row}: {error}",
                "The source may be damaged: download it again",
            ) from None

    def _write(self) -> None:
        while True:
            block, buffer = self._full_out.get()
            self.output.write(block, memoryview(buffer)[: block.nbytes])
            self._empty_out.put(buffer)
            self.progress(block.source_bytes)
