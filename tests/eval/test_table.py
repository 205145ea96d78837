"""eval/table.py: the rows fit the machine they are for, and a run that was broken off goes on."""

import json
from pathlib import Path
from typing import Any

import pytest

from eval import synth, table
from eval.compare import MOST_BYTES, numbers
from eval.speeds import Machine, Pairs, Report
from hy3.bench import Measurement


def test_every_slice_is_as_deep_as_fits() -> None:
    for row in table.ROWS:
        if row.shape is None:
            continue
        config = table.config_of(row)
        assert synth.slice_bytes(config, row.experts_type, "q8_0") < MOST_BYTES
        layers = config["num_hidden_layers"] - 1
        if layers < table.MOST_MOE_LAYERS[row.shape]:
            deeper = synth.slice_config(row.shape, layers + 1)
            assert synth.slice_bytes(deeper, row.experts_type, "q8_0") > MOST_BYTES - (64 << 20)
    assert len({row.name for row in table.ROWS}) == len(table.ROWS)


def report(path: Path, prompts: list[int], n: int, *_: object) -> Report:
    machine = Machine(40e9, 1e12, 1 << 30)
    ours, theirs = (
        Measurement("prefill", tokens, 0, 8, (seconds,), 10**9, 10**9)
        for tokens, seconds in ((prompts[0], 1.0), (prompts[0], 2.0))
    )
    return Report(path.name, 1, 2, "f16", "avx2", [Pairs(ours, theirs, "x", machine)], 100 << 20)


def test_a_run_goes_on_where_it_was_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [table.Row(name, "hy3", prompts=(64,), wanted={"prefill 64": 1.7}) for name in ("a", "b")]
    asked: list[str] = []

    def measure(path: Path, *arguments: Any) -> Report:
        asked.append(path.stem)
        if len(asked) == 2:
            raise RuntimeError("llama.cpp died")
        assert path.exists()
        return report(path, *arguments)

    monkeypatch.setattr(table, "ROWS", rows)
    monkeypatch.setattr(table, "measure", measure)
    monkeypatch.setattr(synth, "write_slice", lambda path, *_: path.write_bytes(b"x"))
    for _ in range(3):
        table.run_table(tmp_path, "", 2, 5, "python")
    assert asked == ["a", "b", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.json", "table.md"]
    assert list(json.loads((tmp_path / "table.json").read_text())) == ["a", "b"]
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert len(lines) == 6
    assert lines[2].startswith("| a | prefill 64 | f16 | 64.00 | 32.00 | 2.00 (2.00 to 2.00) |")
    assert lines[2].endswith("| 1.7 |")
    assert lines[3].startswith("| a | private memory | f16 | 100 MiB |")


def test_an_unknown_row_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No row has 'q9'"):
        table.run_table(tmp_path, "q9", 2, 5, "python")


def test_lists_of_numbers() -> None:
    assert numbers("64,512") == [64, 512]
    assert numbers("") == []
    with pytest.raises(ValueError):
        numbers("x")
