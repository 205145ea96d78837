"""`hy3 imatrix`: an importance matrix for `hy3 convert --imatrix`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hy3.cli import say
from hy3.cli.engine import describe, model_path, warn_of_memory
from hy3.cli.options import (
    LARGE,
    Whole,
    backend_option,
    gguf_out_option,
    mlock_option,
    model_option,
    no_mmap_option,
    threads_option,
)
from hy3.cli.run import decoded
from hy3.errors import Hy3Error

if TYPE_CHECKING:
    from hy3.imatrix import Chunk, Collection, Text

SAVE_SECONDS = 600.0  # what an interruption costs at most
LINE_SECONDS = 30.0  # between two lines where stderr is no terminal


@click.command()
@model_option
@click.option(
    "-f",
    "--file",
    "files",
    metavar="TEXT",
    multiple=True,
    required=True,
    help="Text to read; may be given several times. `-` is stdin.",
)
@gguf_out_option
@click.option(
    "-c",
    "--chunk-size",
    type=Whole(2, LARGE, "Give a number of tokens, such as 512 or 4k", units=True),
    default=512,
    show_default=True,
    metavar="N",
    help="Tokens read at a time, each chunk from an empty context.",
)
@click.option(
    "--chunks", type=Whole(1, LARGE, "Give 1 or more"), metavar="N", help="Read only the first N chunks."
)
@click.option("--plain", is_flag=True, help="Take the names of special tokens as plain text.")
@click.option("--force", is_flag=True, help="Overwrite the output.")
@threads_option()
@backend_option()
@mlock_option()
@no_mmap_option()
def imatrix(
    model: str | None,
    files: tuple[str, ...],
    out: Path,
    chunk_size: int,
    chunks: int | None,
    plain: bool,
    force: bool,
    threads: int | None,
    backend: str,
    mlock: bool,
    no_mmap: bool,
) -> None:
    """Make an importance matrix from texts, for `hy3 convert --imatrix`.

    While the model reads, the squares of what goes into each column of its weights are summed up. Give texts
    like those it will be used on: a few hundred thousand tokens, more the more experts there are to reach.
    They are read as they are, without the chat template; special tokens in them count as such. The file has
    llama.cpp's layout. It is saved every ten minutes; Ctrl-C keeps what has been saved.
    """
    import hy3core
    from hy3.convert.output import check_place
    from hy3.imatrix import Collection

    check_place(out)
    if out.exists() and not force:
        raise Hy3Error(f"{out} exists", "--force overwrites it")
    file = model_path(model)
    if out.exists() and any(out.samefile(name) for name in [str(file), *files] if name != "-"):
        raise Hy3Error(f"{out} is one of the files to read", "Write to another file with -o")
    warn_of_memory(file, describe(file), chunk_size, "f16")
    opened = hy3core.Model(
        str(file), backend=backend, threads=threads or 0, use_mmap=not no_mmap, mlock=mlock
    )
    if chunk_size > opened.config.ctx:
        raise Hy3Error(
            f"-c {chunk_size} is more than the {opened.config.ctx} tokens the model was trained for",
            "Give less",
        )
    texts = [read_text(name, opened.tokenizer, special=not plain) for name in files]
    collection = Collection(opened, texts, chunk_size, chunks)
    with collection:
        read(collection, out)
        warn_of_unvisited(collection)
        collection.save(out)
    say(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")


def read_text(name: str, tokenizer: Any, special: bool) -> "Text":
    """Its line ends are part of it."""
    from hy3.imatrix import Text

    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    ids = tokenizer.encode(decoded(data, "stdin" if name == "-" else name), special=special)
    if not ids:
        raise Hy3Error(f"{name}: there is no text in it", "Give a file with some text")
    return Text("stdin" if name == "-" else Path(name).name, ids)


def read(collection: "Collection", out: Path) -> None:
    """Reads all chunks, shows how far it is, and saves now and then."""
    began = said = saved = time.monotonic()
    kept = 0
    terminal = sys.stderr.isatty()
    try:
        say(f"{len(collection)} chunks of up to {collection.chunk_size} tokens")
        for chunk in collection:
            now = time.monotonic()
            last = chunk.number == len(collection)
            if terminal or last or now - said >= LINE_SECONDS:
                said = now
                show(progress_line(chunk, len(collection), now - began), terminal, last)
            if now - saved >= SAVE_SECONDS and not last:
                collection.save(out)
                saved, kept = time.monotonic(), chunk.number
    except KeyboardInterrupt:
        if terminal:
            click.echo(err=True)
        say(f"{out} has the first {kept} of {len(collection)} chunks." if kept else "Nothing was written.")
        raise


def progress_line(chunk: "Chunk", total: int, seconds: float) -> str:
    from hy3.convert.progress import clock

    left = seconds / chunk.number * (total - chunk.number)
    return f"chunk {chunk.number} of {total}, perplexity {chunk.perplexity:.3f}, {clock(left)} left"


def show(line: str, terminal: bool, last: bool) -> None:
    """On a terminal each line takes the place of the one before."""
    if terminal:
        click.echo(f"\r\x1b[Khy3: {line}", err=True, nl=last)
    else:
        say(line)


def warn_of_unvisited(collection: "Collection") -> None:
    missing = collection.unvisited()
    if not missing:
        return
    where = ", ".join(f"{block}: {len(experts)}" for block, experts in missing.items())
    say(
        f"warning: no token was routed to {sum(map(len, missing.values()))} experts ({where}). For these, "
        "`hy3 convert` takes the mean of the layer's others for gate and up, and quantizes down without "
        "importance. More or more varied text reaches more of them."
    )
