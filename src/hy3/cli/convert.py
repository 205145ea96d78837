"""`hy3 convert`: a checkpoint or a GGUF to a GGUF."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hy3.cli.options import gguf_out_option
from hy3.errors import Hy3Error

if TYPE_CHECKING:
    from hy3.convert import Override

LAYOUTS = (
    "q4_k", "f32", "f16", "bf16", "q8_0", "q5_k", "q6_k", "q3_k", "q2_k", "q4_0", "iq4_nl", "iq4_xs", "mxfp4",
    "copy",
)  # fmt: skip
UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}


class Size(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """50G, 4.5GB, 512Mi: decimal units, or binary ones with an i."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", str(value), re.IGNORECASE)
        if isinstance(value, int):
            return value
        unit = UNITS.get(match[2].lower()) if match else None
        size = int(float(match[1]) * unit) if match and unit else 0
        if size < 1:
            self.fail(f"'{value}' is not a size. Write it like 50G, 4.5G or 512M", param, ctx)
        return size


class TypeOverride(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    name = "override"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Override":
        from hy3.convert import Override

        if isinstance(value, Override):
            return value
        try:
            return Override.parse(str(value))
        except Hy3Error as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@gguf_out_option
@click.option(
    "-t", "layout", metavar="TYPE", type=click.Choice(LAYOUTS, case_sensitive=False), default="q4_k",
    show_default=True,
    help="Layout: " + ", ".join(LAYOUTS) + ".",
)  # fmt: skip
@click.option(
    "--type", "overrides", metavar="PATTERN=TYPE", multiple=True, type=TypeOverride(),
    help="Type of the matrices whose name matches a shell pattern (re:... for a regular expression), as "
    "often as needed; the last match wins. For example '*ffn_down_exps*=q6_k'.",
)  # fmt: skip
@click.option(
    "--imatrix", metavar="FILE", type=click.Path(path_type=Path),
    help="Importance matrix (of `hy3 imatrix` or llama.cpp) to quantize by. It makes no difference to "
    "q8_0 and floats.",
)  # fmt: skip
@click.option("--no-mtp", is_flag=True, help="Drop the MTP layer (used for drafting).")
@click.option(
    "--mtp-only", is_flag=True, help="Write only the MTP layer and what it borrows: embedding, norm, head."
)
@click.option(
    "--split-max-size",
    type=Size(),
    default=0,
    metavar="SIZE",
    help="Split into files of at most this size: 50G.",
)
@click.option("--resume", is_flag=True, help="Continue an interrupted conversion; without one, begin.")
@click.option(
    "--force", is_flag=True, help="Overwrite the output, and what an interrupted conversion has left."
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads that convert (default: one per core).")
@click.option(
    "--pre", metavar="NAME", help="Pre-tokenizer, if the program does not recognize the checkpoint's."
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
def convert(
    source: Path,
    out: Path,
    layout: str,
    overrides: "tuple[Override, ...]",
    imatrix: Path | None,
    no_mtp: bool,
    mtp_only: bool,
    split_max_size: int,
    resume: bool,
    force: bool,
    threads: int | None,
    pre: str | None,
    quiet: bool,
) -> None:
    """Convert SRC, a Hugging Face checkpoint's directory or a GGUF file, to a GGUF file.

    The layouts q4_k (default), q5_k, q6_k, q3_k, q2_k, q4_0, iq4_nl, iq4_xs and mxfp4 store the routed
    experts at that type; attention, shared expert, dense FFN and output at q8_0; the embedding at f16. q8_0,
    bf16, f16 and f32 store every matrix at that type. Norms, router and selection bias are always f32. `copy`
    keeps the types of the source: with it, splitting and merging a GGUF changes no weight. Of a split GGUF,
    give the first file.
    """
    from hy3 import convert as converter
    from hy3.convert import progress

    options = converter.Options(
        type=layout.lower(),
        overrides=tuple(overrides),
        no_mtp=no_mtp,
        mtp_only=mtp_only,
        split_max_size=split_max_size,
        pre=pre,
        imatrix=imatrix,
    )
    try:
        written = converter.convert(
            source,
            out,
            options,
            resume=resume,
            force=force,
            threads=threads or 0,
            progress=progress.choose(quiet),
        )
    except converter.Interrupted as interruption:
        click.echo(f"hy3: {interruption}", err=True)
        raise SystemExit(130) from None
    except FileNotFoundError as error:
        raise Hy3Error(f"{error.filename}: there is no such file", "Check the path") from None
    if not quiet:
        for path in written:
            click.echo(f"hy3: wrote {path} ({path.stat().st_size / 1e9:.3f} GB)", err=True)
