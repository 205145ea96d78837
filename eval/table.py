"""The performance table: which slices and workloads, and the ratio to llama.cpp that each shall reach."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from eval import synth
from eval.compare import MOST_BYTES, measure, say
from eval.speeds import HEAD, Pairs, memory_row, plot_depths, table_row, write_json

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

    def target(self, pairs: Pairs) -> float | None:
        return self.wanted.get(pairs.name, self.wanted.get(pairs.what))


MAIN = {"prefill 64": 1.7, "prefill 512": 2.0, "prefill 2048": 2.0, "decode": 1.2}
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


def config_of(row: Row) -> dict[str, object]:
    """The deepest slice that is not too large."""
    assert row.shape is not None
    for layers in range(MOST_MOE_LAYERS[row.shape], 0, -1):
        config = synth.slice_config(row.shape, layers)
        if synth.slice_bytes(config, row.experts_type, "q8_0") < MOST_BYTES - (64 << 20):
            return config
    raise ValueError(f"{row.name}: not even one layer fits into {MOST_BYTES} bytes")


def run_table(directory: Path, only: str, threads: int, pairs: int, python: str) -> None:
    """Appends each row to DIR/table.json and DIR/table.md as soon as it is measured, and plots the depths of
    those that have several; a row that is there already is left out, so that a run can be continued.
    """
    if not any(only in row.name for row in ROWS):
        raise SystemExit(f"No row has {only!r} in its name. There are {', '.join(row.name for row in ROWS)}.")
    directory.mkdir(parents=True, exist_ok=True)
    results, page = directory / "table.json", directory / "table.md"
    done = json.loads(results.read_text()) if results.exists() else {}
    if not page.exists():
        page.write_text(HEAD)
    for row in ROWS:
        if only not in row.name or row.name in done:
            continue
        path = TINY
        if row.shape is not None:
            path = directory / f"{row.name}.gguf"
            say(f"{row.name}: writing the slice")
            synth.write_slice(path, config_of(row), row.experts_type, "q8_0")
        try:
            report = measure(path, list(row.prompts), row.n, list(row.depths), threads, row.kv, pairs, python)
        except Exception as error:  # the other rows are worth having without this one
            print(f"{row.name}: {error}", file=sys.stderr)
            continue
        finally:
            if row.shape is not None:
                path.unlink()
        done[row.name] = report.to_json()
        write_json(results, done)
        if len(row.depths) > 1:
            plot_depths(directory / f"{row.name}.png", report.pairs, f"{row.name}, {row.kv} KV")
        with page.open("a") as out:
            out.writelines(table_row(row.name, row.kv, found, row.target(found)) for found in report.pairs)
            out.write(memory_row(row.name, row.kv, report.private_bytes, row.most_memory))
