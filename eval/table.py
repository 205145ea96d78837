"""The performance table: its slices and workloads, what each shall reach, and whether it did."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from eval import synth
from eval.compare import MOST_BYTES, measure, say
from eval.speeds import Pairs, Report, plot_depths, workload, write_json

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "src/hy3/models/hy3-tiny.gguf"
EXPERTS_TYPES = (
    "q8_0", "q6_k", "q5_k", "q3_k", "q2_k", "iq2_xxs", "iq3_xxs", "iq4_xs", "iq1_m", "mxfp4", "f16", "bf16",
)  # fmt: skip
# Hy-MT2's are small: with few of them the output matrix would be most of what a token reads.
MOST_MOE_LAYERS = {"hy3": 4, "hy-mt2": 24}


@dataclass(frozen=True)
class Row:
    """A slice (or the bundled model, without a shape) and its workloads."""

    name: str
    shape: str | None
    experts_type: str = "q4_k"
    prompts: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()
    kv: str = "f16"
    n: int = 32
    wanted: dict[str, float] = field(default_factory=dict)  # by the name of the workload, or of its kind
    most_memory: int | None = None  # private bytes of hy3

    @property
    def workloads(self) -> list[str]:
        return [workload("prefill", n, 0) for n in self.prompts] + [
            workload("decode", self.n, depth) for depth in self.depths
        ]

    def target(self, name: str) -> float | None:
        return self.wanted.get(name, self.wanted.get(name.split()[0]))


MAIN = {
    "prefill 64": 1.7,
    "prefill 512": 2.0,
    "prefill 2048": 2.0,
    "decode 32": 1.2,
    "decode 32 at depth 16384": 1.2,
}
ROWS = [
    Row(
        "hy3-q4_k",
        "hy3",
        prompts=(64, 512, 2048),
        depths=(0, 4096, 16384),
        wanted=MAIN,
        most_memory=600 << 20,
    ),
    Row("hy3-q4_k-kv-q8", "hy3", depths=(16384,), kv="q8", wanted=MAIN),
    *(
        Row(f"hy3-{kind}", "hy3", kind, prompts=(512,), depths=(0,), wanted={"prefill": 1.0, "decode": 1.0})
        for kind in EXPERTS_TYPES
    ),
    Row("hy-mt2-q4_k", "hy-mt2", prompts=(64, 512, 2048), depths=(0,), wanted=MAIN),
    Row("hy3-tiny", None, depths=(0,), n=256, wanted={"decode": 2.0}),
]


@dataclass(frozen=True)
class Bar:
    """Something that a row shall reach: a ratio at least, or so much memory at most."""

    row: Row
    what: str
    wanted: str
    found: str
    met: bool | None  # None: not measured

    @property
    def verdict(self) -> str:
        return {True: "met", False: "missed", None: "not measured"}[self.met]

    def __str__(self) -> str:
        found = f"{self.found}; " if self.found else ""
        return f"{self.verdict:<12}  {self.row.name}, {self.what}, {self.row.kv} KV: {found}{self.wanted}"


def ratio_bar(row: Row, name: str, pairs: Pairs | None) -> Bar | None:
    wanted = row.target(name)
    if wanted is None:
        return None
    text = f"at least {wanted:.1f}"
    if pairs is None:
        return Bar(row, name, text, "", None)
    return Bar(row, name, text, ratio(pairs), pairs.ratio >= wanted)


def memory_bar(row: Row, report: Report | None) -> Bar | None:
    if row.most_memory is None:
        return None
    text = f"at most {row.most_memory >> 20} MiB"
    if report is None:
        return Bar(row, "private memory", text, "", None)
    return Bar(row, "private memory", text, memory(report), report.private_bytes <= row.most_memory)


def bars(row: Row, report: Report | None) -> Iterator[Bar]:
    """Every bar of a row, and what became of it."""
    found = {} if report is None else {pairs.name: pairs for pairs in report.pairs}
    for bar in [*(ratio_bar(row, name, found.get(name)) for name in row.workloads), memory_bar(row, report)]:
        if bar is not None:
            yield bar


def ratio(pairs: Pairs) -> str:
    return f"{pairs.ratio:.2f} ({min(pairs.ratios):.2f} to {max(pairs.ratios):.2f})"


def memory(report: Report) -> str:
    return f"{report.private_bytes / 2**20:.0f} MiB"


HEAD = (
    "| file | workload | KV | hy3, tokens/s | llama.cpp, tokens/s | ratio (range) | share | asked |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def page_rows(row: Row, report: Report) -> Iterator[str]:
    """The lines of table.md."""

    def asked(bar: Bar | None) -> str:
        return "" if bar is None else f"{bar.wanted}: {bar.verdict}"

    for pairs in report.pairs:
        yield (
            f"| {row.name} | {pairs.name} | {row.kv} | {pairs.hy3.rate:.2f} | {pairs.llama.rate:.2f} | "
            f"{ratio(pairs)} | {pairs.hy3.share(pairs.machine):.0%} of the {pairs.limit} | "
            f"{asked(ratio_bar(row, pairs.name, pairs))} |\n"
        )
    yield (
        f"| {row.name} | private memory | {row.kv} | {memory(report)} | | | | "
        f"{asked(memory_bar(row, report))} |\n"
    )


def config_of(row: Row) -> dict[str, object]:
    """The deepest slice that is not too large."""
    assert row.shape is not None
    for layers in range(MOST_MOE_LAYERS[row.shape], 0, -1):
        config = synth.slice_config(row.shape, layers)
        if synth.slice_bytes(config, row.experts_type, "q8_0") < MOST_BYTES - (64 << 20):
            return config
    raise ValueError(f"{row.name}: not even one layer fits into {MOST_BYTES} bytes")


def measure_row(row: Row, directory: Path, threads: int, pairs: int, python: str) -> Report:
    path = TINY
    if row.shape is not None:
        path = directory / f"{row.name}.gguf"
        say(f"{row.name}: writing the slice")
        synth.write_slice(path, config_of(row), row.experts_type, "q8_0")
    try:
        return measure(path, list(row.prompts), row.n, list(row.depths), threads, row.kv, pairs, python)
    finally:
        if row.shape is not None:
            path.unlink()


def chosen(only: str) -> list[Row]:
    rows = [row for row in ROWS if only in row.name]
    if not rows:
        raise SystemExit(f"No row has {only!r} in its name. There are {', '.join(row.name for row in ROWS)}.")
    return rows


def run_table(directory: Path, only: str, threads: int, pairs: int, python: str) -> None:
    """Adds each row to DIR/table.json as soon as it is measured; a row that is there already is left out, so
    that a run can be continued. Then says what became of the bars.
    """
    rows = chosen(only)
    directory.mkdir(parents=True, exist_ok=True)
    results = directory / "table.json"
    done = json.loads(results.read_text()) if results.exists() else {}
    for row in rows:
        if row.name in done:
            continue
        try:
            done[row.name] = measure_row(row, directory, threads, pairs, python).to_json()
        except Exception as error:  # the other rows are worth having without this one
            print(f"{row.name}: {error}", file=sys.stderr)
            continue
        write_json(results, done)
        write_page(directory)
    show_table(directory, only)


def reports(directory: Path) -> dict[str, Report]:
    """What DIR/table.json has, by the name of the row."""
    results = directory / "table.json"
    if not results.exists():
        raise SystemExit(f"{results} does not exist: no row was measured. Measure one, without --report.")
    return {name: Report.from_json(found) for name, found in json.loads(results.read_text()).items()}


def write_page(directory: Path) -> None:
    """DIR/table.md, from all that was measured so far."""
    found = reports(directory)
    lines = [line for row in ROWS if row.name in found for line in page_rows(row, found[row.name])]
    (directory / "table.md").write_text(HEAD + "".join(lines))


def show_table(directory: Path, only: str = "") -> None:
    """Makes the page and the plots of rows with several depths, and says which bars are met."""
    rows, found = chosen(only), reports(directory)
    write_page(directory)
    deep = [row for row in rows if len(row.depths) > 1 and row.name in found]
    if importlib.util.find_spec("matplotlib") is not None:
        for row in deep:
            plot_depths(directory / f"{row.name}.png", found[row.name].pairs, f"{row.name}, {row.kv} KV")
    elif deep:
        say("matplotlib is not installed, so nothing is plotted (pip install 'hy3[eval]')")
    judged = [bar for row in rows for bar in bars(row, found.get(row.name))]
    print("\n".join(map(str, judged)))
    verdicts = [bar.verdict for bar in judged]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in ("met", "missed", "not measured"))
    print(f"{len(judged)} bars: {counts}")
