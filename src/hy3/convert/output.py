"""The result's files while they are written: `NAME.partial` beside the final name, renamed when all is on
disk."""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Iterable
from pathlib import Path

from hy3.convert.journal import Journal, Span
from hy3.convert.plan import Block, Plan
from hy3.errors import Hy3Error

# Between two records in the journal, whichever comes first: what a kill costs at most, and often enough that
# the system never has to write out gigabytes at once.
SYNC_BYTES = 128 << 20
SYNC_SECONDS = 2.0

_sync = getattr(os, "fdatasync", os.fsync)


def partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


class Output:
    def __init__(self, plan: Plan, journal: Journal) -> None:
        self.plan = plan
        self.journal = journal
        self._fds: dict[int, int] = {}
        self._blocks = 0  # on disk or on the way there
        self._crc = 0
        self._pending = 0  # bytes since the last record
        self._recorded = time.monotonic()
        self._dirty: set[int] = set()

    def create(self) -> None:
        """Sets the sizes and writes the headers; what the files already hold elsewhere stays."""
        for number, file in enumerate(self.plan.files):
            fd = self._open(number)
            os.ftruncate(fd, file.nbytes)
            _write(fd, 0, memoryview(file.header))
            self._dirty.add(number)

    def verify(self, blocks: Iterable[Block], spans: list[Span]) -> int:
        """How many of the spans are on disk as recorded; writing goes on after them."""
        good, crc, buffer = 0, 0, bytearray()
        for count, block in enumerate(blocks, 1):
            if good == len(spans):
                break
            if len(buffer) < block.nbytes:
                buffer = bytearray(block.nbytes)
            view = memoryview(buffer)[: block.nbytes]
            fd = self._open(block.file)
            if os.preadv(fd, [view], block.offset) != block.nbytes:
                break
            crc = zlib.crc32(view, crc)
            if count == spans[good].end:
                if crc != spans[good].crc:
                    break
                good, crc = good + 1, 0
        self._blocks = spans[good - 1].end if good else 0
        return good

    def write(self, block: Block, data: memoryview) -> None:
        _write(self._open(block.file), block.offset, data)
        self._crc = zlib.crc32(data, self._crc)
        self._blocks += 1
        self._pending += len(data)
        self._dirty.add(block.file)
        if self._pending >= SYNC_BYTES or time.monotonic() - self._recorded >= SYNC_SECONDS:
            self.record()

    def record(self) -> None:
        """Brings all that was written to disk, then says so in the journal."""
        for number in self._dirty:
            fd = self._open(number)
            _sync(fd)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # not read again by this process
        self._dirty.clear()
        if self._pending:
            self.journal.add(Span(self._blocks, self._crc))
        self._crc, self._pending, self._recorded = 0, 0, time.monotonic()

    def commit(self) -> None:
        self.record()
        self.journal.finish()
        rename(self.plan)
        self.journal.remove()

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _open(self, number: int) -> int:
        if number not in self._fds:
            path = partial(self.plan.files[number].path)
            self._fds[number] = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        return self._fds[number]


def rename(plan: Plan) -> None:
    """Gives the complete files their names. Can be repeated: a kill may fall between two of them."""
    for file in plan.files:
        if partial(file.path).exists():
            os.replace(partial(file.path), file.path)
    fd = os.open(plan.files[0].path.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_place(out: Path) -> None:
    if out.is_dir():
        raise Hy3Error(f"{out} is a directory", "Give the name of the file to write, ending in .gguf")
    if not out.parent.is_dir():
        raise Hy3Error(f"{out.parent}: there is no such directory", "Create it first, or correct -o")
    if not os.access(out.parent, os.W_OK):
        raise Hy3Error(f"{out.parent}: no permission to write there", "Choose another place with -o")


def check_space(plan: Plan) -> None:
    directory = plan.files[0].path.parent
    there = 0
    for file in plan.files:
        path = partial(file.path)
        if path.exists():
            there += path.stat().st_blocks * 512  # bytes that a resumed or overwritten partial has already
    needed, free = max(plan.nbytes - there, 0), shutil.disk_usage(directory).free
    if needed > free:
        raise Hy3Error(
            f"not enough space in {directory}: {gigabytes(needed)} needed, {gigabytes(free)} free",
            "Free some, write to another disk, or choose a smaller type",
        )


def gigabytes(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e7 else f"{nbytes:,} bytes"


def _write(fd: int, offset: int, data: memoryview) -> None:
    while data:
        count = os.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count
