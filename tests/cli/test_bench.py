"""`hy3 bench` on the real engine and a small model."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.gguf_files import tiny_hy3

import hy3core
from hy3.cli import main


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_hy3(tmp_path_factory.mktemp("model") / "tiny.gguf", num_nextn_predict_layers=1)


@pytest.fixture
def bench(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """bench("-p", 4, ...): the result, the probe of the machine left out."""
    monkeypatch.setattr(hy3core, "measure_machine", lambda threads, span: hy3core.MachineSpeed(20e9, 1e12))

    def run(*args: object) -> Result:
        return CliRunner().invoke(main, ["bench", "-m", str(tiny), *map(str, args)])

    return run


def test_the_table(bench: Any) -> None:
    result = bench("-p", 4, "-n", 2, "-d", "0,20", "--rounds", 2, "-t", 1)
    assert result.exit_code == 0, result.output
    head, *rows = [line.split() for line in result.stdout.splitlines()]
    assert head == ["work", "depth", "experts", "tokens/s", "spread", "GB/s", "GOPS", "share"]
    assert [row[:4] for row in rows] == [
        ["prefill", "4", "0", "2"],
        ["decode", "2", "0", "2"],
        ["prefill", "4", "20", "2"],
        ["decode", "2", "20", "2"],
    ]
    assert [row[-1] for row in rows] == ["int8", "read"] * 2
    assert all(float(row[4]) > 0 for row in rows)
    assert "this machine: 20.0 GB/s read (over " in result.stderr


def test_json_and_a_row_for_each_number_of_experts(bench: Any, tmp_path: Path) -> None:
    result = bench("-p", 0, "-n", 2, "--experts", "1,4", "--json", tmp_path / "x.json", "--kv", "f32")
    assert result.exit_code == 0, result.output
    facts = json.loads((tmp_path / "x.json").read_text())
    assert facts["machine"] == {"read_bytes": 20e9, "int8_ops": 1e12}
    assert facts["options"]["kv"] == "f32"
    few, many = facts["results"]
    assert (few["experts"], many["experts"], few["what"]) == (1, 4, "decode")
    assert many["token_bytes"] > few["token_bytes"]
    assert few["tokens_per_s"] > 0 and len(few["seconds"]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_wrong_usage(bench: Any) -> None:
    for args, message in (
        (("-p", 0, "-n", 0), "Both -p and -n are 0"),
        (("-p", 8, "-c", 4), "-c 4 is less than the 128 tokens measured"),
        (("-d", "1,x"), "'x' is not a whole number"),
        (("--experts", "0"), "0 is out of range"),
        (("--rounds", "0"), "0 is out of range"),
    ):
        result = bench(*args)
        assert result.exit_code == 2, result.output
        assert message in str(result.exception) + result.output


def test_a_model_that_cannot_hold_so_many_tokens_says_so(bench: Any) -> None:
    assert bench("-p", 1, "-n", 1, "--experts", "9").exit_code == 1


def test_drafts(bench: Any, tmp_path: Path) -> None:
    result = bench("-p", 0, "-n", 12, "--mtp", 2, "--rounds", 1, "-t", 1, "--json", tmp_path / "x.json")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["1", "2"]
    assert lines[-3].split() == ["drafts", "right", "verify", "step", "with", "drafts", "break-even"]
    facts = json.loads((tmp_path / "x.json").read_text())["drafting"]
    assert len(facts["steps"]) == len(facts["drafts"]) == len(facts["break_even"]) == 2
    assert all(cost > 0 for cost in (*facts["steps"], facts["draft"], facts["step_seconds"]))
    assert facts["drafts"][0][0] > 0
    assert "Drafting" not in bench("-p", 0, "-n", 2).stdout
    assert bench("-p", 0, "-n", 3, "--mtp", 2, "--rounds", 1).exit_code == 0


def test_too_few_tokens_for_drafts(bench: Any) -> None:
    for n in (0, 2):
        result = bench("-p", 4, "-n", n, "--mtp", 2)
        assert result.exit_code == 2
        assert f"-n {n} leaves no room for --mtp 2" in str(result.exception) + result.output
