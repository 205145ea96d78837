"""eval/table.py: the rows fit the machine they are for, a run that was broken off goes on, and each bar is
judged by the numbers.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from eval import compare, synth, table
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


def test_what_is_asked() -> None:
    """Every bar of the table: where it stands, and how high."""
    asked = {(row.name, bar.what, row.kv): bar.wanted for row in table.ROWS for bar in table.bars(row, None)}
    expected = {
        ("hy3-q4_k", "prefill 64", "f16"): "at least 1.7",
        ("hy3-q4_k", "prefill 512", "f16"): "at least 2.0",
        ("hy3-q4_k", "prefill 2048", "f16"): "at least 2.0",
        ("hy3-q4_k", "decode 32", "f16"): "at least 1.2",
        ("hy3-q4_k", "decode 32 at depth 16384", "f16"): "at least 1.2",
        ("hy3-q4_k-kv-q8", "decode 32 at depth 16384", "q8"): "at least 1.2",
        ("hy3-q4_k", "private memory", "f16"): "at most 600 MiB",
        ("hy-mt2-q4_k", "prefill 64", "f16"): "at least 1.7",
        ("hy-mt2-q4_k", "prefill 512", "f16"): "at least 2.0",
        ("hy-mt2-q4_k", "prefill 2048", "f16"): "at least 2.0",
        ("hy-mt2-q4_k", "decode 32", "f16"): "at least 1.2",
        ("hy3-tiny", "decode 256", "f16"): "at least 2.0",
    }
    for kind in table.EXPERTS_TYPES:
        for what in ("prefill 512", "decode 32"):
            expected[f"hy3-{kind}", what, "f16"] = "at least 1.0"
    assert asked == expected


def pairs_of(what: str, tokens: int, depth: int, ratio: float) -> Pairs:
    ours, theirs = (Measurement(what, tokens, depth, 8, (seconds,), 10**9, 10**9) for seconds in (1.0, ratio))
    return Pairs(ours, theirs, "x", Machine(40e9, 1e12, 1 << 30))


def report(path: Path, prompts: list[int], n: int, depths: list[int], *_: object, ratio: float = 2) -> Report:
    found = [pairs_of("prefill", tokens, 0, ratio) for tokens in prompts]
    found += [pairs_of("decode", n, depth, ratio) for depth in depths]
    return Report(path.name, 1, 2, "f16", "avx2", found, 100 << 20)


def rows_of(*names: str) -> list[table.Row]:
    wanted = {"prefill 64": 1.7, "decode 32": 2.5}
    return [table.Row(name, "hy3", prompts=(64,), depths=(0, 512), wanted=wanted) for name in names]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Rows a and b instead of the table's; the names of those measured. The second attempt fails."""
    asked: list[str] = []

    def measure(path: Path, *arguments: Any) -> Report:
        asked.append(path.stem)
        if len(asked) == 2:
            raise RuntimeError("llama.cpp died")
        assert path.exists()
        return report(path, *arguments)

    monkeypatch.setattr(table, "ROWS", rows_of("a", "b"))
    monkeypatch.setattr(table, "measure", measure)
    monkeypatch.setattr(synth, "write_slice", lambda path, *_: path.write_bytes(b"x"))
    return asked


def test_a_run_goes_on_where_it_was_broken_off(
    measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.run_table(tmp_path, "", 2, 5, "python")
    assert capsys.readouterr().out.splitlines() == [
        "met           a, prefill 64, f16 KV: 2.00 (2.00 to 2.00); at least 1.7",
        "missed        a, decode 32, f16 KV: 2.00 (2.00 to 2.00); at least 2.5",
        "not measured  b, prefill 64, f16 KV: at least 1.7",
        "not measured  b, decode 32, f16 KV: at least 2.5",
        "4 bars: 1 met, 1 missed, 2 not measured",
    ]
    for _ in range(2):
        table.run_table(tmp_path, "", 2, 5, "python")
    assert measured == ["a", "b", "b"]
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "b.png", "table.json", "table.md"}
    assert list(json.loads((tmp_path / "table.json").read_text())) == ["a", "b"]
    assert capsys.readouterr().out.endswith("4 bars: 2 met, 2 missed, 0 not measured\n")


def test_the_page(measured: list[str], tmp_path: Path) -> None:
    table.run_table(tmp_path, "a", 2, 5, "python")
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert len(lines) == 6
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2] == (
        "| a | prefill 64 | f16 | 64.00 | 32.00 | 2.00 (2.00 to 2.00) | 6% of the int8 rate | "
        "at least 1.7: met |"
    )
    assert lines[3].endswith("| at least 2.5: missed |")
    assert lines[4].startswith("| a | decode 32 at depth 512 |") and lines[4].endswith("|  |")
    assert lines[5] == "| a | private memory | f16 | 100 MiB | | | |  |"


def test_without_matplotlib_there_is_the_table_and_no_plot(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of what an earlier run left: its numbers alone, some of the rows."""
    found = {"a": report(Path("a.gguf"), [64], 32, [0, 512]).to_json()}
    (tmp_path / "table.json").write_text(json.dumps(found))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["compare.py", "--table", str(tmp_path), "--report"])
    compare.main()
    assert measured == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.json", "table.md"]
    assert len((tmp_path / "table.md").read_text().splitlines()) == 6
    out, err = capsys.readouterr()
    assert "nothing is plotted" in err
    assert out.endswith("4 bars: 1 met, 1 missed, 2 not measured\n")


@pytest.mark.parametrize(("bytes_more", "met"), [(0, True), (1, False)])
def test_the_bar_of_the_memory(bytes_more: int, met: bool) -> None:
    row = table.Row("a", "hy3", prompts=(64,), most_memory=100 << 20)
    found = report(Path("a.gguf"), [64], 32, [])
    found = Report(**vars(found) | {"private_bytes": found.private_bytes + bytes_more})
    [bar] = table.bars(row, found)
    assert (bar.what, bar.found, bar.met) == ("private memory", "100 MiB", met)


def test_a_ratio_just_below_the_bar_misses_it() -> None:
    [row] = rows_of("a")
    almost = report(Path("a.gguf"), [64], 32, [0], ratio=2.4999)
    assert [bar.met for bar in table.bars(row, almost)] == [True, False]


def test_a_report_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"table\.json does not exist"):
        table.show_table(tmp_path)


def test_an_unknown_row_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No row has 'q9'"):
        table.run_table(tmp_path, "q9", 2, 5, "python")


def test_lists_of_numbers() -> None:
    assert numbers("64,512") == [64, 512]
    assert numbers("") == []
    with pytest.raises(ValueError):
        numbers("x")
