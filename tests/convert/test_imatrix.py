"""`convert --imatrix`: each expert by its own columns' importance, and what does not fit is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.convert_files import metadata, run, tensors
from support.imatrix_files import Entries, legacy_bytes, write_imatrix
from support.random_hy3 import (
    gguf_weights,
    in_type,
    make_config,
    make_weights,
    write_model,
)

import hy3core
from hy3.convert import Options, Override, convert, output, plan
from hy3.convert.progress import Progress
from hy3.errors import Hy3Error

CONFIG = make_config(
    hidden_size=256, moe_intermediate_size=256, num_hidden_layers=2, num_experts=4, num_nextn_predict_layers=1
)
WEIGHTS = make_weights(CONFIG, seed=1)
PARTS = gguf_weights(CONFIG, WEIGHTS)
UNVISITED = 2


class Told(Progress):
    """Remembers the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def entries(**changes: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For every matrix of the model; expert UNVISITED of block 1 has no data."""
    rng = np.random.default_rng(7)
    out = {}
    for name, array in PARTS.items():
        if array.ndim == 1 or name.startswith(("token_embd", "blk.2.nextn")):
            continue
        n = len(array) if array.ndim == 3 else 1
        sums, counts = rng.random((n, array.shape[-1])) ** 4, rng.integers(1, 99, n)
        if array.ndim == 3 and name.startswith("blk.1."):
            sums[UNVISITED], counts[UNVISITED] = 0, 0
        out[name] = (sums, counts)
    return out | changes


def means(entries: Entries, name: str, expert: int) -> np.ndarray:
    sums, counts = entries[name]
    return sums[expert].astype(np.float32) / np.float32(counts[expert])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "source.gguf", CONFIG, WEIGHTS, in_type("f32"))


@pytest.fixture
def go(source: Path, tmp_path: Path) -> Callable[..., tuple[Path, list[str]]]:
    """go(entries, type=..., ...): the converted file and the warnings."""

    def convert_with(given: Entries | Path, **options: Any) -> tuple[Path, list[str]]:
        out, told = tmp_path / "out.gguf", Told()
        file = given if isinstance(given, Path) else write_imatrix(tmp_path / "i.gguf", given)
        convert(source, out, Options(imatrix=file, **options), force=True, progress=told)
        return out, told.warnings

    return convert_with


Go = Callable[..., tuple[Path, list[str]]]


@pytest.mark.parametrize("block_bytes", [1 << 23, 20_000, 1])
def test_every_expert_by_its_own_importance(
    go: Go, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(plan, "BLOCK_BYTES", block_bytes)
    given = entries()
    out, warnings = go(given, type="q2_k")
    got = tensors(out)
    for block in (1, 2):
        for part in ("gate", "up", "down"):
            name = f"blk.{block}.ffn_{part}_exps.weight"
            wanted = b""
            for expert in range(4):
                importance: np.ndarray | None
                if (block, expert) != (1, UNVISITED):
                    importance = means(given, name, expert)
                elif part == "down":  # its columns mean nothing to the other experts
                    importance = None
                else:
                    importance = (given[name][0].astype(np.float32).sum(axis=0, dtype=np.float64)) / given[
                        name
                    ][1].sum()
                wanted += hy3core.quantize(PARTS[name][expert], "q2_k", importance)
            assert got[name].data == wanted, name
            assert got[name].data != hy3core.quantize(PARTS[name].reshape(-1, 256), "q2_k")
    assert len(warnings) == 1
    assert warnings[0].startswith("i.gguf has no data for 1 experts (blk.1 expert 2): the mean of the others")


def test_other_matrices_by_override(go: Go) -> None:
    given = entries()
    out, _ = go(given, type="q8_0", overrides=(Override.parse("blk.0.attn_q.weight=q3_k"),))
    got = tensors(out)
    name = "blk.0.attn_q.weight"
    assert got[name].data == hy3core.quantize(PARTS[name], "q3_k", means(given, name, 0))
    assert got["blk.0.attn_k.weight"].data == hy3core.quantize(PARTS["blk.0.attn_k.weight"], "q8_0")


def test_llama_cpps_older_format(go: Go, tmp_path: Path) -> None:
    given = entries()
    file = tmp_path / "i.dat"
    file.write_bytes(legacy_bytes(given, calls=1))
    out, warnings = go(file, type="q3_k")
    name = "blk.2.ffn_up_exps.weight"
    importance = given[name][0] / given[name][1][:, None]
    wanted = b"".join(hy3core.quantize(PARTS[name][e], "q3_k", importance[e]) for e in range(4))
    assert tensors(out)[name].data == wanted
    assert not warnings
    assert metadata(out)["quantize.imatrix.chunks_count"] == 7


def test_names_of_fused_tensors(go: Go) -> None:
    given = entries()
    sums, counts = given.pop("blk.2.ffn_gate_exps.weight")
    given["blk.2.ffn_gate_up_exps.weight"] = (sums, counts)
    del given["blk.2.ffn_up_exps.weight"]
    given["blk.0.attn_qkv.weight"] = given.pop("blk.0.attn_q.weight")
    out, warnings = go(given, type="q2_k", overrides=(Override.parse("blk.0.attn_v.weight=q4_k"),))
    for part in ("gate", "up"):
        name = f"blk.2.ffn_{part}_exps.weight"
        wanted = b"".join(
            hy3core.quantize(PARTS[name][e], "q2_k", sums[e].astype(np.float32) / np.float32(counts[e]))
            for e in range(4)
        )
        assert tensors(out)[name].data == wanted
    # The entry of its own name goes first.
    name = "blk.0.attn_v.weight"
    assert tensors(out)[name].data == hy3core.quantize(PARTS[name], "q4_k", means(given, name, 0))
    assert len(warnings) == 1 and "blk.1 expert 2" in warnings[0]


def test_the_file_says_what_it_was_quantized_with(go: Go, tmp_path: Path) -> None:
    out, _ = go(entries(), type="q2_k")
    said = metadata(out)
    assert said["quantize.imatrix.file"] == "i.gguf"
    assert said["quantize.imatrix.dataset"] == "a.txt"
    assert said["quantize.imatrix.entries_count"] == len(entries())
    assert said["quantize.imatrix.chunks_count"] == 5
    again = tmp_path / "again.gguf"
    convert(out, again, Options(type="copy"))
    assert metadata(again)["quantize.imatrix.file"] == "i.gguf"


def test_a_part_that_is_dropped_is_not_unknown(go: Go) -> None:
    _, warnings = go(entries(), type="q2_k", no_mtp=True)
    assert not [warning for warning in warnings if "does not have" in warning]


def test_unknown_entries_are_named(go: Go) -> None:
    extra = (np.ones((1, 8)), np.array([1]))
    _, warnings = go(entries(**{"blk.9.attn_q.weight": extra, "vision.weight": extra}), type="q2_k")
    assert warnings[0] == (
        "i.gguf has entries for tensors this model does not have: blk.9.attn_q.weight, vision.weight"
    )


def test_tensors_without_data_are_named(go: Go) -> None:
    given = entries()
    del given["blk.1.ffn_down_exps.weight"]
    given["blk.2.ffn_up_exps.weight"] = (np.zeros((4, 256)), np.zeros(4))
    out, warnings = go(given, type="q2_k")
    assert (
        "i.gguf has no data for blk.1.ffn_down_exps.weight, blk.2.ffn_up_exps.weight: quantized without it"
        in warnings
    )
    for name in ("blk.1.ffn_down_exps.weight", "blk.2.ffn_up_exps.weight"):
        assert tensors(out)[name].data == hy3core.quantize(PARTS[name].reshape(-1, 256), "q2_k")


def test_importance_that_makes_no_difference_is_said(go: Go) -> None:
    _, warnings = go(entries(), type="q8_0")
    assert warnings[0].startswith("--imatrix changes nothing: no tensor is stored as one of q4_k, ")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blk.1.ffn_up_exps.weight", (4, 128)),
        ("blk.1.ffn_up_exps.weight", (5, 256)),
        ("blk.0.attn_output.weight", (1, 64)),
        ("blk.0.attn_q.weight", (2, 256)),
        ("blk.1.ffn_gate_inp.weight", (1, 8)),
    ],
)
def test_an_entry_of_another_size_is_an_error(
    go: Go, tmp_path: Path, name: str, shape: tuple[int, int]
) -> None:
    with pytest.raises(
        hy3core.FormatError, match=rf"i\.gguf: {name} has .* The importance matrix is another model's"
    ):
        go(entries(**{name: (np.ones(shape), np.ones(shape[0]))}), type="q2_k")
    assert not (tmp_path / "out.gguf").exists()


def test_another_models_matrix_is_an_error(go: Go) -> None:
    with pytest.raises(Hy3Error, match=r"has nothing for this model; it has a\.weight"):
        go({"a.weight": (np.ones((1, 8)), np.ones(1))}, type="q2_k")


def test_a_model_instead_of_a_matrix(go: Go, source: Path) -> None:
    with pytest.raises(hy3core.FormatError, match="no importance matrix in this file"):
        go(source, type="q2_k")


class Stopped(BaseException):
    pass


class StopAfter(Progress):
    left = 30

    def advance(self, nbytes: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise Stopped


def test_resume_notices_another_matrix(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(output, "SYNC_BYTES", 50_000)
    file = write_imatrix(tmp_path / "i.gguf", entries())
    whole, out = tmp_path / "whole.gguf", tmp_path / "x.gguf"
    options = Options(type="q2_k", imatrix=file)
    convert(source, whole, options)
    with pytest.raises(Stopped):
        convert(source, out, options, progress=StopAfter())
    with pytest.raises(Hy3Error, match=r"cannot be continued: imatrix was sha256:\w+, is None"):
        convert(source, out, Options(type="q2_k"), resume=True)
    other = tmp_path / "other" / "i.gguf"
    other.parent.mkdir()
    write_imatrix(other, entries(**{"output.weight": (np.ones((1, 256)), np.ones(1))}))
    with pytest.raises(Hy3Error, match=r"cannot be continued: imatrix was sha256:\w+, is sha256:\w+\."):
        convert(source, out, Options(type="q2_k", imatrix=other), resume=True)
    file.rename(other)  # the same one at another place
    convert(source, out, Options(type="q2_k", imatrix=other), resume=True)
    assert out.read_bytes() == whole.read_bytes()


def test_on_the_command_line(source: Path, tmp_path: Path) -> None:
    file = write_imatrix(tmp_path / "i.gguf", entries())
    result = run(source, "-o", tmp_path / "x.gguf", "-t", "q2_k", "--imatrix", file)
    assert result.returncode == 0
    assert "hy3: warning: i.gguf has no data for 1 experts (blk.1 expert 2)" in result.stderr
    result = run(source, "-o", tmp_path / "y.gguf", "-t", "q2_k", "--imatrix", tmp_path / "none")
    assert result.returncode == 1
    assert "none" in result.stderr and "Traceback" not in result.stderr
    result = run(source, "-o", file, "-t", "q2_k", "--imatrix", file, "--force")
    assert result.returncode == 1
    assert "is the source itself" in result.stderr
