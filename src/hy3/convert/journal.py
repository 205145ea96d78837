"""The record beside an unfinished result that lets a later run continue it.

`OUT.partial.journal` has one JSON object a line. The first says what is being made, from what: a run that
would make anything else must not continue it. Each further line says that so many blocks are on disk, with
the CRC-32 of the bytes that the line adds; it is written after those bytes are. The last one says that
everything is, and that only renaming is left. A kill, or a power cut, can only lose the last lines or leave
one of them torn.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hy3.errors import Hy3Error

FORMAT = 1  # of the journal and of the cutting into blocks


@dataclass(frozen=True)
class Span:
    """Blocks from the end of the span before up to `end`."""

    end: int
    crc: int


@dataclass
class Record:
    job: dict[str, Any]
    spans: list[Span]
    complete: bool
    offsets: list[int]  # in the journal: after the first line, after each span


class Journal:
    """Open for appending, and locked: two runs must not write one result."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise Hy3Error(
                f"{path}: another conversion is writing this output", "Wait for it, or stop it"
            ) from None

    def begin(self, job: dict[str, Any]) -> None:
        os.ftruncate(self._fd, 0)
        self._append(job)

    def keep(self, record: Record, spans: int) -> None:
        """Forgets what comes after the first `spans` spans."""
        os.ftruncate(self._fd, record.offsets[spans])

    def add(self, span: Span) -> None:
        self._append({"blocks": span.end, "crc": span.crc})

    def finish(self) -> None:
        self._append({"complete": True})

    def _append(self, entry: dict[str, Any]) -> None:
        line = memoryview(json.dumps(entry).encode() + b"\n")
        while line:
            line = line[os.write(self._fd, line) :]
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def read(path: Path) -> Record | None:
    """None where there is no journal, or one that was torn before it said anything."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    entries, offsets = [], []
    at = 0
    for line in content.split(b"\n")[:-1]:  # what follows the last newline was torn
        try:
            entry = json.loads(line)
        except ValueError:
            break
        if not isinstance(entry, dict):
            break
        at += len(line) + 1
        entries.append(entry)
        offsets.append(at)
    if not entries or entries[0].get("hy3") != "convert":
        return None
    spans: list[Span] = []
    for entry in entries[1:]:
        blocks, crc = entry.get("blocks"), entry.get("crc")
        if type(blocks) is not int or type(crc) is not int or blocks <= (spans[-1].end if spans else 0):
            break
        spans.append(Span(blocks, crc))
    return Record(entries[0], spans, entries[-1].get("complete") is True, offsets)


def job_of(
    digest: str, version: str, options: dict[str, Any], source: Any, files: list[list[Any]]
) -> dict[str, Any]:
    return {
        "hy3": "convert",
        "format": FORMAT,
        "version": version,
        "options": options,
        "source": source,
        "files": files,
        "header": digest,
    }


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What has changed since the interrupted run, in words; empty when it can be continued."""
    if old == new:
        return []
    out = []
    if old.get("format") != new["format"] or old.get("version") != new["version"]:
        out.append(f"it was made by version {old.get('version')}, this is {new['version']}")
    before = old.get("options")
    before = before if isinstance(before, dict) else {}
    for key, value in new["options"].items():
        if before.get(key) != value:
            out.append(f"{key} was {before.get(key)}, is {value}")
    if old.get("source") != new["source"]:
        then = {str(entry[0]): entry for entry in old.get("source") or []}
        changed = [str(entry[0]) for entry in new["source"] if then.get(str(entry[0])) != entry]
        out.append(f"the source has changed ({', '.join(changed[:5]) or 'fewer files'})")
    return out or ["the keys or tensors to write have changed"]
