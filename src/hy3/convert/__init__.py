"""From a checkpoint or a GGUF to a GGUF.

    convert(Path("tencent/Hy3"), Path("hy3.gguf"), Options(type="q4_k"))

In order: the source is read and checked (checkpoint.py, gguf_source.py), the result is planned to the byte
(plan.py), then blocks of rows stream through (pipeline.py) into a file that gets its name when it is complete
(output.py), with a journal that lets a later run continue (journal.py).

What is left behind: nothing when the request or the source is refused, nothing but a message when a weight is
NaN; after an interruption, a full disk or a failing one the unfinished file and its journal, which the
message names.
"""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path
from typing import Any

import hy3core
from hy3.convert import journal as journals
from hy3.convert.checkpoint import open_checkpoint
from hy3.convert.gguf_source import open_gguf
from hy3.convert.importance import Importance
from hy3.convert.layouts import LAYOUTS, Override
from hy3.convert.output import Output, check_place, check_space, gigabytes, partial, rename
from hy3.convert.pipeline import BadWeights, Pipeline
from hy3.convert.plan import Options, Plan, make_plan
from hy3.convert.progress import Progress
from hy3.convert.source import Source
from hy3.errors import Hy3Error

__all__ = ["LAYOUTS", "Interrupted", "Options", "Override", "convert"]

CONTINUE = "The unfinished output is kept: the same command with --resume continues it"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C after writing had begun; the message says how to go on."""


def convert(
    source: Path,
    out: Path,
    options: Options | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> list[Path]:
    """Writes `out`, or the files it is split into, and returns them. Errors: Hy3Error, hy3core.Error,
    OSError."""
    options = options or Options()
    shown = progress or Progress()
    check_place(out)
    opened = _open(source, options)
    try:
        importance = None if options.imatrix is None else Importance(options.imatrix, opened.model)
        plan = make_plan(opened, options, out, importance)
        for warning in plan.warnings:
            shown.warn(warning)
        job = _job(opened, options, plan, importance)
        return _Job(opened, plan, out, job, shown, importance).run(resume, force, threads)
    finally:
        shown.stop()
        opened.reader.close()


def _open(source: Path, options: Options) -> Source:
    if source.is_dir():
        return open_checkpoint(source, options.pre)
    if not source.exists():
        raise Hy3Error(
            f"{source}: there is no such file or directory", "Give a checkpoint's directory or a GGUF file"
        )
    if source.suffix in (".safetensors", ".json", ".bin"):
        raise Hy3Error(f"{source} is one file of a checkpoint", f"Give its directory: {source.parent}")
    return open_gguf(source, options.pre)


def _job(source: Source, options: Options, plan: Plan, importance: Importance | None) -> dict[str, Any]:
    chosen = dataclasses.asdict(options)
    # By what is in it: it may be moved, and another one may come under its name.
    chosen["imatrix"] = None if importance is None else f"sha256:{importance.digest}"
    chosen["overrides"] = [f"{each.pattern}={each.type}" for each in options.overrides]
    files = [[file.path.name, file.nbytes] for file in plan.files]
    return journals.job_of(plan.digest(), str(hy3core.version), chosen, source.fingerprint(), files)


class _Job:
    def __init__(
        self,
        source: Source,
        plan: Plan,
        out: Path,
        job: dict[str, Any],
        shown: Progress,
        importance: Importance | None,
    ) -> None:
        self.source = source
        self.plan = plan
        self.job = job
        self.shown = shown
        self.importance = importance
        self.journal_path = partial(out).with_name(partial(out).name + ".journal")
        self.finals = [file.path for file in plan.files]

    def run(self, resume: bool, force: bool, threads: int) -> list[Path]:
        for path in self.finals:
            inputs = [*self.source.files, *([self.importance.path] if self.importance else [])]
            if any(path.exists() and os.path.samefile(path, file) for file in inputs):
                raise Hy3Error(f"{path} is the source itself", "Write to another file with -o")
        record = journals.read(self.journal_path)
        if resume and record and record.complete and self._continues(record):
            return self._finish_renaming()
        existing = [str(path) for path in self.finals if path.exists()]
        if existing and not force:
            raise Hy3Error(f"{existing[0]} exists", "--force overwrites it")
        if not (resume and record and self._continues(record)):
            record = None
            self._clear(force, resume)
        check_space(self.plan)
        return self._write(record, threads)

    def _continues(self, record: journals.Record) -> bool:
        changed = journals.differences(record.job, self.job)
        if changed:
            raise Hy3Error(
                f"{self.journal_path.with_suffix('').name} cannot be continued: {'; '.join(changed)}",
                "Repeat the earlier command with --resume, or start over with --force and without --resume",
            )
        sizes = [(partial(file.path), file.nbytes) for file in self.plan.files]
        for path, nbytes in [] if record.complete else sizes:
            if not path.exists() or path.stat().st_size != nbytes:
                return False  # killed before the files were laid out: nothing to continue
        return True

    def _finish_renaming(self) -> list[Path]:
        rename(self.plan)
        lost = [path.name for path in self.finals if not path.exists()]
        if lost:
            raise Hy3Error(
                f"{lost[0]} was complete and is gone", f"Remove {self.journal_path} and convert again"
            )
        self.journal_path.unlink()
        return self.finals

    def _clear(self, force: bool, resume: bool) -> None:
        """Removes what an earlier run left, if that is what was asked for."""
        names = [path.name for path in self.finals]
        record = journals.read(self.journal_path)
        for entry in record.job.get("files") or [] if record else []:  # it may have been split differently
            names.append(str(entry[0]))
        leftovers = [partial(self.journal_path.with_name(name)) for name in dict.fromkeys(names)]
        leftovers = [path for path in leftovers if path.exists()]
        if leftovers and not force and not resume:
            raise Hy3Error(
                f"{leftovers[0]} is left from an interrupted conversion",
                "--resume continues it, --force starts over",
            )
        if leftovers and resume:
            self.shown.note(
                "the interrupted conversion had not written anything yet: starting from the beginning"
            )
        for path in leftovers:
            path.unlink()

    def _write(self, record: journals.Record | None, threads: int) -> list[Path]:
        journal = journals.Journal(self.journal_path)
        output = Output(self.plan, journal)
        try:
            done = 0
            if record is not None:
                done = self._verify(output, journal, record)
            else:
                journal.begin(self.job)
            output.create()
            self._stream(output, done, threads)
            output.commit()
        except BadWeights as error:
            output.close()
            for path in self.finals:
                partial(path).unlink(missing_ok=True)
            journal.remove()
            raise Hy3Error(error.what, f"{error.hint}. The unfinished output was removed") from None
        except Hy3Error as error:
            raise Hy3Error(error.what, f"{error.hint}. The unfinished output is kept") from None
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted. {CONTINUE}.") from None
        except OSError as error:
            raise _explain(error, self.finals[0]) from error
        finally:
            output.close()
            journal.close()
        return self.finals

    def _verify(self, output: Output, journal: journals.Journal, record: journals.Record) -> int:
        spans = output.verify(self.plan.blocks(), record.spans)
        journal.keep(record, spans)
        if spans < len(record.spans):
            self.shown.warn("the end of the unfinished output is damaged: converting that part again")
        return record.spans[spans - 1].end if spans else 0

    def _stream(self, output: Output, done: int, threads: int) -> None:
        largest_in = largest_out = skipped = 0
        for number, block in enumerate(self.plan.blocks()):
            largest_in, largest_out = max(largest_in, block.source_bytes), max(largest_out, block.nbytes)
            skipped += block.source_bytes if number < done else 0
        if done:
            self.shown.note(f"continuing after {gigabytes(skipped)} of the source")
        self.shown.start(self.plan.source_bytes, skipped)
        blocks = (block for number, block in enumerate(self.plan.blocks()) if number >= done)
        pipeline = Pipeline(self.source.reader, output, threads, self.shown.advance, self.importance)
        pipeline.run(blocks, largest_in, largest_out)


def _explain(error: OSError, out: Path) -> Hy3Error:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Hy3Error(f"no space left in {out.parent}", f"Free some. {CONTINUE}")
    if error.errno == errno.EFBIG:
        return Hy3Error(
            f"the file system or a limit does not allow a file this large: {out}",
            f"--split-max-size writes several files. {CONTINUE}",
        )
    return Hy3Error(f"{error.filename or out}: {error.strerror or error}", CONTINUE)
