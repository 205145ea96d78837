"""The options that several commands share, in one place each: the model, the engine, sampling, the prompt.

A group is a dataclass and a decorator. The decorator adds the options to a command and hands their values
over as one object: `@engine_options` calls `command(engine=EngineOptions(...), ...)`.
"""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


class Whole(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """A whole number within bounds; `k` and `m` multiply by 1024 and its square where `units` is set."""

    name = "integer"

    def __init__(self, least: int, most: int, hint: str, units: bool = False) -> None:
        self.least, self.most, self.hint, self.units = least, most, hint, units

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text, factor = str(value).strip(), 1
        if self.units and text[-1:].lower() in ("k", "m"):
            factor = 1024 if text[-1].lower() == "k" else 1024 * 1024
            text = text[:-1]
        try:
            number = int(text) * factor
        except ValueError:
            self.fail(f"'{value}' is not a whole number. {self.hint}", param, ctx)
        if not self.least <= number <= self.most:
            self.fail(f"{value} is out of range. {self.hint}", param, ctx)
        return number


class Real(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """A finite number within bounds."""

    name = "number"

    def __init__(self, least: float, most: float, hint: str) -> None:
        self.least, self.most, self.hint = least, most, hint

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"'{value}' is not a number. {self.hint}", param, ctx)
        if not self.least <= number <= self.most:  # also false for NaN
            self.fail(f"{value} is out of range. {self.hint}", param, ctx)
        return number


class Several(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """Numbers with commas between them."""

    name = "numbers"

    def __init__(self, one: Whole | Real) -> None:
        self.one = one

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):  # a default
            return value
        return tuple(self.one.convert(word, param, ctx) for word in str(value).split(","))


class Stop(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """A stop string: any text but the empty one, which would stop every answer before it begins."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("An empty stop string stops everything. Leave it out, or give some text", param, ctx)
        return str(value)


@dataclass(frozen=True)
class EngineOptions:
    threads: int | None  # None: as many as the machine has cores
    ctx: int | None  # None: DEFAULT_CTX, or the model's own if that is less
    kv: Literal["f32", "f16", "q8", "q4"]
    backend: str
    experts: int | None  # None: as the file says
    rope_factor: float | None  # None: as the file says
    rope_ctx: int | None
    rope_attention_factor: float | None
    rope_beta_fast: float | None
    rope_beta_slow: float | None
    chunk: int
    mtp: int | None  # None: as many drafts as pay
    mtp_model: str | None
    mlock: bool
    no_mmap: bool


@dataclass(frozen=True)
class SamplingOptions:
    """None: what the file says, else what hy3core.Sampling has."""

    max_tokens: int | None
    temp: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repeat_penalty: float | None
    seed: int | None
    stop: tuple[str, ...]


@dataclass(frozen=True)
class PromptOptions:
    system: str | None
    think: str


DEFAULT_CTX = 4096
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
LARGE = (1 << 31) - 1


class Group:
    """The decorator of a group: adds the options, and replaces their values by one `name=kind(...)`."""

    def __init__(self, name: str, kind: type, options: Sequence[Callable[[Any], Any]]) -> None:
        self.name, self.kind, self.options = name, kind, options

    def __call__(self, function: Function) -> Function:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            values = {field.name: kwargs.pop(field.name, None) for field in fields(self.kind)}
            return function(*args, **{self.name: self.kind(**values)}, **kwargs)

        decorated: Any = wrapper
        for option in reversed(self.options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    def without(self, *left_out: Callable[[Any], Any]) -> "Group":
        """For a command that has its own options in their places; a value that none gives is None."""
        return Group(self.name, self.kind, [option for option in self.options if option not in left_out])


def ctx_option(text: str) -> Callable[[Any], Any]:
    hint = "Give a number of tokens, such as 4096 or 32k"
    return click.option("-c", "--ctx", type=Whole(1, LARGE, hint, units=True), metavar="N", help=text)


def mtp_option(text: str) -> Callable[[Any], Any]:
    return click.option("--mtp", type=Whole(0, 8, "Give 0 (no drafts) to 8"), metavar="N", help=text)


def kv_option() -> Callable[[Any], Any]:
    return click.option(
        "--kv",
        type=click.Choice(["f32", "f16", "q8", "q4"]),
        default="f16",
        show_default=True,
        help="Type of the KV cache; q8 and q4 take about 1/2 and 1/3.6 of f16's memory.",
    )


def threads_option() -> Callable[[Any], Any]:
    hint = f"Leave it out to use all cores (this machine has {CORES}), or give 1 to 1024"
    text = "Threads that compute. Left out: one for each physical core."
    return click.option("-t", "--threads", type=Whole(1, 1024, hint), metavar="N", help=text)


def backend_option() -> Callable[[Any], Any]:
    return click.option(
        "--backend",
        type=click.Choice(["auto", "reference", "cpu"]),
        default="auto",
        show_default=True,
        help="What computes; `reference` is plain and slow.",
    )


def mlock_option() -> Callable[[Any], Any]:
    return click.option("--mlock", is_flag=True, help="Keep the weights in memory, whatever others need.")


def no_mmap_option() -> Callable[[Any], Any]:
    return click.option(
        "--no-mmap", is_flag=True, help="Read the file into memory at once instead of mapping it."
    )


model_option = click.option(
    "-m",
    "--model",
    metavar="M",
    help="A GGUF file; of a split one, the first part. Left out: the bundled model.",
)

gguf_out_option = click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT.gguf",
    required=True,
    type=click.Path(path_type=Path),
    help="File to write.",
)

default_ctx_option = ctx_option(
    f"Tokens the context holds. Left out: {DEFAULT_CTX}, or what the model was trained for if less."
)
EXPERTS = Whole(1, 1024, "Give 1 to the model's number of experts")
experts_option = click.option(
    "--experts", type=EXPERTS, metavar="K", help="Experts used for each token. Left out: as the file says."
)

default_mtp_option = mtp_option(
    "Most tokens that the model's MTP layer drafts at a time; the answer is the same with and without. Left "
    "out: as many as pay; 0 where there is no MTP layer."
)

engine_options = Group(
    "engine",
    EngineOptions,
    [
        threads_option(),
        default_ctx_option,
        kv_option(),
        backend_option(),
        experts_option,
        click.option(
            "--rope-factor",
            type=Real(1.0, 1024.0, "Give 1 (none) or more, such as 4"),
            metavar="F",
            help="Stretch the context F times with YaRN; 1 is no stretching. Left out: as the file says.",
        ),
        click.option(
            "--rope-ctx",
            type=Whole(1, LARGE, "Give a number of tokens, such as 262144 or 256k", units=True),
            metavar="N",
            help="Context that --rope-factor stretches. Left out: what the model was trained for.",
        ),
        click.option(
            "--rope-attention-factor",
            type=Real(1e-3, 1e6, "Give a number above 0, such as 1.1"),
            metavar="X",
            help="YaRN's factor on cosines and sines. Left out: as the file says, else 0.1 ln F + 1.",
        ),
        click.option(
            "--rope-beta-fast",
            type=Real(1e-3, 1e6, "Give a number above 0, such as 32"),
            metavar="X",
            help="YaRN leaves alone what turns X times or more within --rope-ctx. Left out: as the file "
            "says, else 32.",
        ),
        click.option(
            "--rope-beta-slow",
            type=Real(1e-3, 1e6, "Give a number above 0, such as 1"),
            metavar="X",
            help="YaRN stretches F times what turns X times or less. Left out: as the file says, else 1.",
        ),
        click.option(
            "--chunk",
            type=Whole(1, LARGE, "Give 1 or more"),
            default=512,
            show_default=True,
            metavar="N",
            help="Prompt tokens computed at a time.",
        ),
        default_mtp_option,
        click.option(
            "--mtp-model",
            metavar="FILE",
            help="The MTP layer from a file of its own (`hy3 convert --mtp-only`), for a model without.",
        ),
        mlock_option(),
        no_mmap_option(),
    ],
)


def seed_option(text: str) -> Callable[[Any], Any]:
    return click.option("--seed", type=Whole(0, (1 << 64) - 1, "Give 0 or more"), metavar="N", help=text)


default_seed_option = seed_option("Seed of the sampling. Left out: random, and printed.")
stop_option = click.option(
    "--stop", type=Stop(), multiple=True, help="Stop at this text; may be given several times."
)

sampling_options = Group(
    "sampling",
    SamplingOptions,
    [
        click.option(
            "-n",
            "--max-tokens",
            type=Whole(1, LARGE, "Give 1 or more; leave it out for as many as the context has room for"),
            metavar="N",
            help="Most tokens to generate. Left out: as many as the context has room for.",
        ),
        click.option(
            "--temp",
            type=Real(0.0, 100.0, "Give 0 (always the likeliest token) or more, such as 0.7"),
            metavar="X",
            help="Temperature; 0 takes the likeliest token. This and the next four, left out: what the file "
            "recommends, else 0 and no filter.",
        ),
        click.option(
            "--top-k",
            type=Whole(0, LARGE, "Give 0 (all tokens) or more"),
            metavar="N",
            help="Sample among the N likeliest tokens; 0 is all.",
        ),
        click.option(
            "--top-p",
            type=Real(0.0, 1.0, "Give 0 to 1; 1 is all tokens"),
            metavar="X",
            help="Sample among the likeliest tokens that together have probability X; 1 is all.",
        ),
        click.option(
            "--min-p",
            type=Real(0.0, 1.0, "Give 0 to 1; 0 is all tokens"),
            metavar="X",
            help="Sample among tokens at least X times as likely as the likeliest; 0 is all.",
        ),
        click.option(
            "--repeat-penalty",
            type=Real(0.01, 100.0, "Give 1 (none) or a little more, such as 1.1"),
            metavar="X",
            help="Makes the last 64 tokens less likely; 1 is no penalty.",
        ),
        default_seed_option,
        stop_option,
    ],
)

prompt_options = Group(
    "prompting",
    PromptOptions,
    [
        click.option("--system", metavar="TEXT", help="System prompt."),
        click.option(
            "--think",
            type=click.Choice(["off", "low", "high"]),
            default="off",
            show_default=True,
            help="How much the model may think before it answers.",
        ),
    ],
)
