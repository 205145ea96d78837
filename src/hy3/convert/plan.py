"""From a Source and the options to the exact bytes of the result's layout: which tensor is written where, in
which type, from which rows; in files, and in blocks of rows small enough to hold.

Nothing here touches a weight, so that every error in the request shows before the first byte is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import hy3core
from hy3.convert.hf_config import ARCHITECTURE
from hy3.convert.importance import KEYS, WEIGHTED, Importance
from hy3.convert.layouts import COPY, FILE_TYPES, Override, TypeChooser, row_bytes
from hy3.convert.shapes import Model, Tensor
from hy3.convert.source import Entry, Run, Source
from hy3.errors import Hy3Error

ALIGNMENT = 32
QUANTIZATION_VERSION = 2  # of ggml's block formats
# Bytes of a block, as read or as written, whichever is more. A handful of blocks is in memory at a time; a
# block takes well under a second, so that progress and Ctrl-C are prompt.
BLOCK_BYTES = 8 << 20
MAX_PARTS = 1000


@dataclass(frozen=True)
class Options:
    type: str = "q4_k"
    overrides: tuple[Override, ...] = ()
    no_mtp: bool = False
    mtp_only: bool = False
    split_max_size: int = 0  # bytes; 0: one file
    pre: str | None = None
    imatrix: Path | None = None


@dataclass(frozen=True)
class Output:
    """A tensor to write: the rows of `runs`, one after the other, as `type`."""

    tensor: Tensor
    type: str
    runs: tuple[Run, ...]
    weighted: bool = False  # quantized by the importance of its columns

    @property
    def row_bytes(self) -> int:
        return row_bytes(self.type, self.tensor.cols)

    @property
    def nbytes(self) -> int:
        return self.row_bytes * self.tensor.rows

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape


@dataclass(frozen=True)
class Piece:
    file: int  # of the source
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Block:
    """Consecutive rows of one tensor and one source type: the unit of work."""

    name: str
    source_type: str
    type: str
    first_row: int  # in the tensor
    rows: int
    cols: int
    pieces: tuple[Piece, ...]
    file: int  # of the result
    offset: int  # in that file
    nbytes: int  # as written
    weighted: tuple[Tensor, int] | None = None  # tensor and expert whose columns' importance counts

    @property
    def source_bytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces)


@dataclass(frozen=True)
class File:
    """One file of the result."""

    path: Path
    header: bytes
    outputs: tuple[Output, ...]
    offsets: tuple[int, ...]  # of the outputs, from the file's beginning
    nbytes: int


@dataclass(frozen=True)
class Plan:
    files: tuple[File, ...]
    source_bytes: int
    warnings: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)

    def digest(self) -> str:
        """Of everything but the weights: keys, names, shapes, types, places."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(hashlib.sha256(file.header).digest())
        return digest.hexdigest()

    def blocks(self) -> Iterator[Block]:
        for number, file in enumerate(self.files):
            for output, offset in zip(file.outputs, file.offsets, strict=True):
                yield from _blocks(output, number, offset)


def make_plan(source: Source, options: Options, out: Path, importance: Importance | None = None) -> Plan:
    model = _kept_model(source, options)
    chooser = TypeChooser(options.type, options.overrides, source_is_gguf=source.is_gguf)
    outputs = []
    for tensor in model.tensors(trunk=source.has_trunk and not options.mtp_only):
        runs = source.runs.get(tensor.name)
        if runs:
            chosen = chooser.choose(tensor, runs[0].type)
            # Rows that are of the type already are copied.
            search = importance is not None and chosen in WEIGHTED and any(run.type != chosen for run in runs)
            outputs.append(Output(tensor, chosen, tuple(runs), search))
    chooser.check_overrides()
    warnings = [*source.warnings, *chooser.warnings()]
    metadata = _metadata(source, model, options)
    if importance is not None:
        warnings += importance.warnings(output.tensor for output in outputs if output.weighted)
        metadata = [entry for entry in metadata if not entry[0].startswith(KEYS)] + importance.metadata()
    files = _files(metadata, outputs, options.split_max_size, out)
    source_bytes = sum(row_bytes(run.type, run.cols) * run.rows for output in outputs for run in output.runs)
    return Plan(files, source_bytes, tuple(warnings))


def _kept_model(source: Source, options: Options) -> Model:
    model = source.model
    if options.no_mtp and options.mtp_only:
        raise Hy3Error("--no-mtp and --mtp-only leave nothing", "Give one of them")
    if options.mtp_only and not model.n_mtp:
        raise Hy3Error("--mtp-only, but the source has no MTP layer", "Leave the option out")
    if not options.no_mtp:
        return model
    if not source.has_trunk:
        raise Hy3Error("--no-mtp, but the source has nothing but an MTP layer", "Leave the option out")
    kept = slice(model.n_layers)
    return replace(
        model, n_mtp=0, ffn=model.ffn[kept], expert_ffn=model.expert_ffn[kept], sparse=model.sparse[kept]
    )


def _metadata(source: Source, model: Model, options: Options) -> list[Entry]:
    file_type = source.file_type if options.type == COPY else FILE_TYPES[options.type]
    entries: list[Entry] = [("general.architecture", "str", ARCHITECTURE)]
    if file_type is not None:
        entries.append(("general.file_type", "u32", file_type))
    entries.append(("general.quantization_version", "u32", QUANTIZATION_VERSION))
    entries.append((f"{ARCHITECTURE}.block_count", "u32", model.n_blocks))
    entries.append((f"{ARCHITECTURE}.nextn_predict_layers", "u32", model.n_mtp))
    for key, kind, value in source.metadata:
        if key.startswith(ARCHITECTURE + ".") and isinstance(value, list | tuple):
            value = list(value)[: model.n_blocks]  # a number for each block, of which some may be dropped
        entries.append((key, kind, value))
    return entries


def _files(metadata: list[Entry], outputs: list[Output], max_bytes: int, out: Path) -> tuple[File, ...]:
    groups = _split(metadata, outputs, max_bytes)
    if len(groups) == 1:
        return (_file(out, metadata, outputs),)
    if len(groups) > MAX_PARTS:
        raise Hy3Error(
            f"--split-max-size {max_bytes} would make {len(groups)} files, more than {MAX_PARTS}",
            "Give a larger size",
        )
    files = []
    for number, group in enumerate(groups):
        entries = list(metadata) if number == 0 else []
        entries += [  # of the kinds llama.cpp writes
            ("split.no", "u16", number),
            ("split.count", "u16", len(groups)),
            ("split.tensors.count", "i32", len(outputs)),
        ]
        files.append(_file(part_path(out, number, len(groups)), entries, group))
    return tuple(files)


def part_path(out: Path, number: int, count: int) -> Path:
    return out.with_name(f"{out.name.removesuffix('.gguf')}-{number + 1:05d}-of-{count:05d}.gguf")


def _split(metadata: list[Entry], outputs: list[Output], max_bytes: int) -> list[list[Output]]:
    """Consecutive tensors into files of at most `max_bytes`; a tensor that alone is larger gets a file of its
    own."""
    if not max_bytes:
        return [outputs]
    header = len(_header(metadata, [])[0]) + 128
    groups: list[list[Output]] = [[]]
    size = header
    for output in outputs:
        # With its entry in the header: name, shape, type, offset, and the header's own padding.
        needed = _padded(output.nbytes) + len(output.tensor.name.encode()) + 64
        if groups[-1] and size + needed > max_bytes:
            groups.append([])
            size = 256
        groups[-1].append(output)
        size += needed
    return groups


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _header(metadata: list[Entry], outputs: list[Output]) -> tuple[bytes, list[int], int]:
    tensors = [(output.tensor.name, output.type, output.shape) for output in outputs]
    header, offsets, nbytes = hy3core.gguf_header(metadata, tensors, alignment=ALIGNMENT)
    return bytes(header), list(offsets), int(nbytes)


def _file(path: Path, metadata: list[Entry], outputs: list[Output]) -> File:
    header, offsets, nbytes = _header(metadata, outputs)
    places = tuple(len(header) + offset for offset in offsets)
    return File(path, header, tuple(outputs), places, len(header) + nbytes)


def _blocks(output: Output, file: int, offset: int) -> Iterator[Block]:
    """Fills blocks run by run; a block ends where it is full or where the source type changes, and where an
    expert ends if each has its own importance."""
    cols = output.tensor.cols
    per_expert = output.tensor.shape[1] if len(output.tensor.shape) > 1 else 1
    pieces: list[Piece] = []
    kind, first, rows = output.runs[0].type, 0, 0

    def finish() -> Block:
        nonlocal first, rows, pieces
        block = Block(
            name=output.tensor.name,
            source_type=kind,
            type=output.type,
            first_row=first,
            rows=rows,
            cols=cols,
            pieces=tuple(pieces),
            file=file,
            offset=offset + first * output.row_bytes,
            nbytes=rows * output.row_bytes,
            weighted=(output.tensor, first // per_expert) if output.weighted else None,
        )
        first, rows, pieces = first + rows, 0, []
        return block

    for run in output.runs:
        if run.type != kind and rows:
            yield finish()
        kind = run.type
        in_row = row_bytes(kind, cols)
        most = max(1, BLOCK_BYTES // max(in_row, output.row_bytes))
        done = 0
        while done < run.rows:
            count = min(most - rows, run.rows - done)
            if output.weighted:
                count = min(count, per_expert - (first + rows) % per_expert)
            pieces.append(Piece(run.file, run.offset + done * in_row, count * in_row))
            rows, done = rows + count, done + count
            if rows >= most or (output.weighted and (first + rows) % per_expert == 0):
                yield finish()
    if rows:
        yield finish()
