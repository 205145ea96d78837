"""`hy3 bench`: how fast a model runs on this machine, and how near that is to what the machine could do."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from hy3.bench import Measurement, Work, machine_span, measure, spread
from hy3.bench_drafts import Drafting, measure_drafts
from hy3.bench_drafts import context as drafting_ctx
from hy3.cli import say
from hy3.cli.engine import model_path, open_engine, open_gguf
from hy3.cli.options import (
    EXPERTS,
    LARGE,
    EngineOptions,
    Several,
    Whole,
    ctx_option,
    default_ctx_option,
    default_mtp_option,
    engine_options,
    experts_option,
    model_option,
    mtp_option,
)
from hy3.modelfile import ModelFile

if TYPE_CHECKING:
    from hy3core import MachineSpeed

COUNT = Whole(0, LARGE, "Give 0 (not measured) or more, such as 512 or 2k", units=True)
DEPTH = Whole(0, LARGE, "Give numbers of tokens, such as 0,4096 or 0,16k", units=True)


@click.command()
@model_option
@click.option(
    "-p",
    "--prompt",
    type=COUNT,
    default=512,
    show_default=True,
    metavar="N",
    help="Length of the prompt; 0: none.",
)
@click.option(
    "-n",
    "--decode",
    type=COUNT,
    default=128,
    show_default=True,
    metavar="N",
    help="Tokens computed one after the other; 0: none.",
)
@click.option(
    "-d",
    "--depth",
    "depths",
    type=Several(DEPTH),
    default=(0,),
    metavar="N,...",
    help="Tokens in the context before. Left out: none.",
)
@click.option(
    "--rounds",
    type=Whole(1, 1000, "Give 1 or more"),
    default=3,
    show_default=True,
    metavar="N",
    help="How often everything is measured; the median counts.",
)
@click.option(
    "--experts",
    "expert_counts",
    type=Several(EXPERTS),
    default=(None,),
    metavar="K,...",
    help="Experts used for each token, one row for each number. Left out: as the file says.",
)
@ctx_option("Tokens the context holds. Left out: as many as are measured.")
@mtp_option(
    "Also measure N drafts of the MTP layer at a time: how often they are right in a text that the model "
    "writes, what they and the steps that verify them cost, and from which share on they pay."
)
@engine_options.without(default_ctx_option, experts_option, default_mtp_option)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="OUT", help="Write it all to OUT."
)
def bench(
    model: str | None,
    prompt: int,
    decode: int,
    depths: tuple[int, ...],
    rounds: int,
    expert_counts: tuple[int | None, ...],
    json_file: Path | None,
    engine: EngineOptions,
) -> None:
    """Measure the speed of prompts and of single tokens.

    The tokens are synthetic, and one more round than counts comes first. Beside the speeds stands what they
    amount to: for single tokens the bytes that must be read, as a share of the memory bandwidth measured in
    the same run; for a prompt the multiplications and additions, as a share of the measured int8 rate.
    """
    if prompt == 0 and decode == 0:
        raise click.UsageError("Both -p and -n are 0. Give something to measure")
    if engine.mtp and decode <= engine.mtp:
        raise click.UsageError(f"-n {decode} leaves no room for --mtp {engine.mtp}. Give a larger -n")
    work = Work(prompt, decode, depths, rounds)
    if engine.ctx is not None and engine.ctx < work.ctx:
        raise click.UsageError(f"-c {engine.ctx} is less than the {work.ctx} tokens measured. Leave it out")
    file = ModelFile(open_gguf(model_path(model)))
    machine = measure_machine(file, engine.threads)
    found = list(measure_all(model, file, work, expert_counts, engine))
    show(found, machine)
    drafting = measure_drafting(model, work, engine) if engine.mtp else None
    if drafting is not None:
        show_drafting(drafting)
    if json_file is not None:
        write_json(json_file, found, drafting, machine, engine)


def measure_machine(file: ModelFile, threads: int | None) -> "MachineSpeed":
    import hy3core

    span = machine_span(file.weights_bytes)
    speed = hy3core.measure_machine(threads or 0, span)
    say(
        f"this machine: {speed.read_bytes / 1e9:.1f} GB/s read (over {span / 2**30:.1f} GiB), "
        f"{speed.int8_ops / 1e9:.0f} GOPS int8"
    )
    return speed


def measure_all(
    model: str | None, file: ModelFile, work: Work, expert_counts: Sequence[int | None], engine: EngineOptions
) -> Iterator[Measurement]:
    """The model is opened anew for each number of experts; its pages stay in memory."""
    for experts in expert_counts:
        opened = open_engine(model, replace(engine, ctx=engine.ctx or work.ctx, experts=experts, mtp=0))
        yield from measure(opened.session, file, work, experts)
        del opened  # before the next one is read, where it is not mapped


def measure_drafting(model: str | None, work: Work, engine: EngineOptions) -> Drafting:
    depth = engine.mtp or 0
    ctx = max(engine.ctx or 0, drafting_ctx(depth, work.decode))
    opened = open_engine(model, replace(engine, ctx=ctx))
    plain = opened.model.session(ctx=ctx, kv=engine.kv, chunk=engine.chunk)
    return measure_drafts(opened.session, plain, depth, work.decode, work.rounds)


def show_drafting(drafting: Drafting) -> None:
    """Costs are in steps of one row; a break-even of `-` cannot be reached."""
    table = Table(box=None, pad_edge=False)
    for name in ("drafts", "right", "verify step", "with drafts", "break-even"):
        table.add_column(name, justify="right")
    for depth in range(1, len(drafting.steps) + 1):
        right, break_even = drafting.right(depth), drafting.break_even(depth)
        table.add_row(
            str(depth),
            "-" if right is None else f"{right:.0%} of {drafting.drafts[depth - 1][0]}",
            f"{drafting.steps[depth - 1]:.2f}",
            f"{drafting.cost(depth):.2f}",
            "-" if break_even is None else f"{break_even:.0%}",
        )
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"\nDrafting; costs in steps of one row ({drafting.step_seconds * 1e3:.2f} ms):")
    console.print(table)


def show(found: Sequence[Measurement], machine: "MachineSpeed") -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("work")
    for name in ("depth", "experts", "tokens/s", "spread", "GB/s", "GOPS", "share"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(
            f"{one.what} {one.tokens}",
            str(one.depth),
            str(one.experts or ""),
            f"{one.rate:.2f}",
            f"±{spread(one.rates):.1%}",
            "" if one.read_bytes is None else f"{one.read_bytes / 1e9:.1f}",
            f"{one.ops / 1e9:.0f}",
            f"{one.share(machine):.0%} of {'int8' if one.read_bytes is None else 'read'}",
        )
    Console(soft_wrap=True, highlight=False).print(table)


def write_json(
    path: Path,
    found: Sequence[Measurement],
    drafting: Drafting | None,
    machine: "MachineSpeed",
    engine: EngineOptions,
) -> None:
    import hy3core

    facts: dict[str, Any] = {
        "version": hy3core.version,
        "isa": hy3core.build_info()["isa"],
        "machine": machine._asdict(),
        "options": asdict(engine),
        "results": [one.to_json(machine) for one in found],
        "drafting": None if drafting is None else drafting.to_json(),
    }
    aside = path.with_name(path.name + ".partial")
    aside.write_text(json.dumps(facts, indent=1) + "\n")
    aside.replace(path)
