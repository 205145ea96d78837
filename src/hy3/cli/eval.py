"""`hy3 eval`: how good a model, a quantization or a cache type is, by suites of questions and over texts."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hy3.chat.conversation import EFFORT
from hy3.cli.engine import Engine, open_engine
from hy3.cli.options import EngineOptions, Real, Several, Whole, engine_options, model_option
from hy3.errors import Hy3Error
from hy3.evals import text
from hy3.evals.client import Client, LocalClient, RemoteClient
from hy3.evals.coding import Coding
from hy3.evals.needle import MOST, Needle
from hy3.evals.reasoning import Reasoning
from hy3.evals.results import Results
from hy3.evals.run import run
from hy3.evals.suite import Settings, Suite
from hy3.evals.tiny import Tiny
from hy3.evals.tools import Tools

if TYPE_CHECKING:
    from hy3core import Session

QUESTIONS = ("reasoning", "coding", "tools", "needle", "tiny")
TEXTS = ("perplexity", "kl")
GENERAL = ("reasoning", "coding", "tools", "needle")  # what `all` is


@click.command("eval")
@model_option
@click.option(
    "--suite",
    "suites",
    type=click.Choice([*QUESTIONS, *TEXTS, "all"]),
    multiple=True,
    required=True,
    help=f"What to measure; may be given several times. `all` is {', '.join(GENERAL)}.",
)
@click.option("--json", "out", type=click.Path(path_type=Path), metavar="OUT", help="Write results there.")
@click.option("--resume", is_flag=True, help="Go on from what --json has, instead of starting again.")
@click.option("--url", metavar="URL", help="Ask an OpenAI-compatible server (http://HOST:PORT/v1) instead.")
@click.option("--api-key", metavar="KEY", help="For --url.")
@click.option(
    "--seeds",
    type=Whole(1, 1000, "Give 1 or more"),
    default=1,
    show_default=True,
    metavar="N",
    help="Ask each question N times with different seeds. At temperature 0 only `needle` changes with them.",
)
@click.option(
    "--temp",
    type=Real(0.0, 100.0, "Give 0 (always the likeliest token) or more"),
    default=0.0,
    show_default=True,
    metavar="X",
    help="Temperature of the answers.",
)
@click.option(
    "--think",
    type=click.Choice(["off", "low", "high"]),
    default="off",
    show_default=True,
    help="How much the model may think before it answers (`tiny` has its own).",
)
@click.option(
    "-n",
    "--max-tokens",
    type=Whole(1, 1 << 20, "Give 1 or more"),
    metavar="N",
    help="Most tokens of an answer. Left out: the suite's own.",
)
@click.option(
    "--limit", type=Whole(1, 1 << 20, "Give 1 or more"), metavar="N", help="Only the first N tasks."
)
@click.option(
    "--tokens",
    type=Several(Whole(100, 1 << 24, "Give 100 or more, such as 1000,4000", units=True)),
    default="1000,4000",
    show_default=True,
    metavar="N,...",
    help="needle: lengths of the text.",
)
@click.option(
    "--depth",
    type=Several(Real(0.0, 1.0, "Give 0 (the beginning) to 1 (the end), such as 0,0.5,1")),
    default="0,0.25,0.5,0.75,1",
    show_default=True,
    metavar="X,...",
    help="needle: where in the text.",
)
@click.option(
    "--needles",
    type=Whole(1, MOST, f"Give 1 to {MOST}"),
    default=1,
    show_default=True,
    metavar="N",
    help="needle: facts to find in a text.",
)
@click.option(
    "--png", type=click.Path(path_type=Path), metavar="OUT", help="needle: a heat map as a picture."
)
@click.option(
    "-f", "--file", type=click.Path(path_type=Path), metavar="FILE", help="perplexity, kl: the text."
)
@click.option(
    "--window",
    type=Whole(2, 1 << 24, "Give 2 or more", units=True),
    default=512,
    show_default=True,
    metavar="N",
    help="perplexity, kl: most tokens that the model sees at once.",
)
@click.option(
    "--stride",
    type=Whole(1, 1 << 24, "Give 1 to --window", units=True),
    metavar="N",
    help="perplexity, kl: new tokens of a window. Left out: half of it.",
)
@click.option("--save", type=click.Path(path_type=Path), metavar="OUT", help="kl: write the reference there.")
@click.option("--reference", type=click.Path(path_type=Path), metavar="FILE", help="kl: compare with it.")
@engine_options
def evaluate(
    model: str | None,
    suites: tuple[str, ...],
    out: Path | None,
    resume: bool,
    url: str | None,
    api_key: str | None,
    seeds: int,
    temp: float,
    think: str,
    max_tokens: int | None,
    limit: int | None,
    tokens: tuple[int, ...],
    depth: tuple[float, ...],
    needles: int,
    png: Path | None,
    file: Path | None,
    window: int,
    stride: int | None,
    save: Path | None,
    reference: Path | None,
    engine: EngineOptions,
) -> None:
    """Measure a model: scores on questions, or how well it predicts a text.

    The table goes to stdout. Shares have a 95% interval (Wilson).
    """
    names = list(
        dict.fromkeys(name for suite in suites for name in (GENERAL if suite == "all" else (suite,)))
    )
    if resume and out is None:
        raise click.UsageError("--resume goes on from a file. Give it with --json")
    if url is not None and (model is not None or set(names) & set(TEXTS)):
        raise click.UsageError("--url takes no -m, and perplexity and kl need the model here (-m)")
    if "perplexity" in names and file is None:
        raise click.UsageError("perplexity measures a text. Give it with -f FILE")
    if "kl" in names and (reference is None) == (save is None or file is None):
        raise click.UsageError("kl takes either -f FILE --save OUT, or --reference FILE")
    stride = window // 2 if stride is None else stride
    if stride > window:
        raise click.UsageError(f"--stride {stride} is more than --window {window}. Give 1 to {window}")

    opened = None if url is not None else open_engine(model, engine)
    client = RemoteClient(url, api_key) if url is not None else local(opened)
    settings = Settings(EFFORT[think], max_tokens, temp)
    about = {"model": client.name, "effort": settings.effort, "max_tokens": max_tokens, "temperature": temp}
    if url is None:
        about |= {"kv": engine.kv, "experts": engine.experts}
    results = Results.open(about, out, resume)
    for name in names:
        if name in QUESTIONS:
            suite = make_suite(name, client, tokens, depth, needles)
            with progress(name) as advance:
                run(suite, client, settings, range(seeds), results, limit, advance)
        else:
            assert opened is not None
            measure(name, opened, results, file, window, stride, save, reference)
    show(results, names)
    if png is not None and "needle" in names:
        picture(results.suites["needle"]["rows"], png)


def local(opened: Engine | None) -> Client:
    assert opened is not None
    return LocalClient(opened.model, opened.session, opened.ctx)


def make_suite(
    name: str, client: Client, tokens: tuple[int, ...], depth: tuple[float, ...], needles: int
) -> Suite:
    if name == "needle":
        return Needle(client, tokens, depth, needles)
    kinds: dict[str, Any] = {"reasoning": Reasoning, "coding": Coding, "tools": Tools, "tiny": Tiny}
    suite: Suite = kinds[name]()
    return suite


def measure(
    name: str,
    opened: Engine,
    results: Results,
    file: Path | None,
    window: int,
    stride: int,
    save: Path | None,
    reference: Path | None,
) -> None:
    session = new_session(opened, window)
    with progress(name) as advance:

        def heard(done: int, total: int) -> None:
            advance(done, total, "", True)

        if name == "perplexity":
            results.put(name, text.perplexity(session, ids_of(file, session), window, stride, heard))
        elif save is not None:
            text.save(save, session, ids_of(file, session), window, stride, heard)
            results.put(name, {"saved": str(save)})
        else:
            assert reference is not None
            saved = text.Reference.open(reference)
            if saved.window > window:
                session = new_session(opened, saved.window)
            results.put(name, text.divergence(session, saved, heard))


def new_session(opened: Engine, ctx: int) -> "Session":
    kv: Any = opened.session.kv
    return opened.model.session(ctx=ctx, kv=kv, chunk=opened.session.chunk)


def ids_of(file: Path | None, session: "Session") -> list[int]:
    assert file is not None
    ids = session.model.tokenizer.encode(file.read_bytes())
    if len(ids) < 2:
        raise Hy3Error(f"{file} has {len(ids)} tokens", "Give a text of at least two")
    return ids


@contextmanager
def progress(name: str) -> Iterator[Any]:
    """A bar on stderr when that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn(name),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[last]}"),
    )
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task(name, total=None, last="")

        def advance(done: int, total: int, last: str, right: bool) -> None:
            bar.update(
                task,
                completed=done,
                total=total,
                last=f"{last} {'right' if right else 'wrong'}" if last else "",
            )

        yield advance


def show(results: Results, names: list[str]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("suite", "", "asked", "right", "95% interval"):
        table.add_column(column, justify="right" if column in ("asked", "right") else "left")
    for name in names:
        result = results.suites[name]
        if "rows" not in result:
            for key, value in result.items():
                table.add_row(name, key, "", f"{value:.6g}" if isinstance(value, float) else str(value), "")
            continue
        rows = result["rows"] if len(result["rows"]) > 1 else {}
        for row, score in [*rows.items(), ("all", result["score"])]:
            low, high = score["interval"]
            share = f"{score['share']:.1%}"
            table.add_row(name, row, str(score["asked"]), share, f"{low:.1%} to {high:.1%}")
    Console(width=None if sys.stdout.isatty() else 100).print(table)


def picture(rows: dict[str, Any], path: Path) -> None:
    from hy3.evals.heatmap import draw

    draw(rows, path)
