"""What a conversion reads from: runs of rows in files, and the metadata that goes with them.

Two kinds of source exist, a checkpoint directory (checkpoint.py) and a GGUF (gguf_source.py). Each comes down
to a `Source`: for every tensor of the model the runs of rows that make it up, one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from hy3.convert.shapes import Model
from hy3.errors import Hy3Error

# A GGUF key, the kind of its value ("u32", "str", "[i32]", ...), and the value.
Entry: TypeAlias = tuple[str, str, object]


@dataclass(frozen=True)
class Run:
    """`rows` rows of `cols` elements of `type`, contiguous from byte `offset` of part number `part` of the
    source."""

    file: int
    offset: int
    type: str
    rows: int
    cols: int


class FileReader:
    """Reads with pread, so that nothing is mapped: pages read never count as this process' memory, and a file
    that shrinks meanwhile is an error, not a SIGBUS."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self._fds: dict[int, int] = {}

    def read(self, file: int, offset: int, out: memoryview) -> None:
        fd = self._fds.get(file)
        if fd is None:
            fd = self._fds[file] = os.open(self.paths[file], os.O_RDONLY)
        done, size = 0, len(out)
        while done < size:
            count = os.preadv(fd, [out[done:]], offset + done)
            if count == 0:
                raise Hy3Error(
                    f"{self.paths[file]} ends at byte {offset + done}, where tensor data was expected",
                    "Do not change the source while it is converted",
                )
            done += count
        if hasattr(os, "posix_fadvise"):
            # Read once and never again: left in the page cache, a 600 GB source pushes everything else out of
            # it.
            os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


@dataclass
class Source:
    model: Model
    reader: FileReader
    runs: dict[str, list[Run]]  # by GGUF tensor name
    metadata: list[Entry]  # without what depends on the chosen output: counts of blocks, file type, split
    files: list[Path]  # all that the result depends on
    is_gguf: bool
    has_trunk: bool = True
    file_type: int | None = None  # a GGUF's general.file_type
    warnings: list[str] = field(default_factory=list)

    def fingerprint(self) -> list[list[object]]:
        """Name, size and time of change of each file: what must stay the same for a conversion to be
        resumed."""
        stats = [(path, path.stat()) for path in self.files]
        return [[path.name, stat.st_size, stat.st_mtime_ns] for path, stat in stats]
