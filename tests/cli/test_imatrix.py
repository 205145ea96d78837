"""`hy3 imatrix` on the real engine: what it writes, what it says, what it refuses."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.gguf_files import tiny_hy3, tiny_hy3_parts, write_gguf

import hy3core
from hy3.cli import imatrix as command
from hy3.cli import main

TEXT = "The quick brown fox jumps over the lazy dog. " * 8


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return tiny_hy3(path, num_nextn_predict_layers=1, num_experts=8)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def hy3(*args: object, **options: Any) -> Result:
    return CliRunner().invoke(main, ["imatrix", *map(str, args)], **options)


def sums(path: Path) -> dict[str, np.ndarray]:
    file = hy3core.GGUF(path)
    return {
        info.name: np.frombuffer(file.tensor(info.name), np.float32).reshape(tuple(reversed(info.shape)))
        for info in file.tensors
    }


def test_what_is_written(tiny: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "i.gguf"
    result = hy3("-m", tiny, "-f", text, "-o", out, "-c", 64)
    assert result.exit_code == 0, result.stderr
    ids = hy3core.Tokenizer(str(tiny)).encode(TEXT)
    file = hy3core.GGUF(out)
    chunks = -(-len(ids) // 64)
    assert dict(file.metadata) == {
        "general.type": "imatrix",
        "imatrix.datasets": ["text.txt"],
        "imatrix.chunk_count": chunks,
        "imatrix.chunk_size": 64,
    }
    assert dict(file.kinds) == {
        "general.type": "str",
        "imatrix.datasets": "[str]",
        "imatrix.chunk_count": "u32",
        "imatrix.chunk_size": "u32",
    }
    shapes = {info.name: info.shape for info in file.tensors}
    assert {info.type for info in file.tensors} == {"f32"}
    assert shapes["blk.1.ffn_gate_exps.weight.in_sum2"] == (64, 8)
    assert shapes["blk.1.ffn_gate_exps.weight.counts"] == (1, 8)
    assert shapes["blk.0.ffn_down.weight.in_sum2"] == (160, 1)
    assert shapes["blk.3.nextn.eh_proj.weight.in_sum2"] == (128, 1)
    model = hy3core.Model(str(tiny))
    with model.collect_importance() as collector:
        session = model.session(ctx=64, mtp=True)
        for at in range(0, len(ids), 64):
            session.reset()
            session.score(ids[at : at + 64])
        got = sums(out)
        for name in collector.names:
            assert got[name + ".in_sum2"].tobytes() == collector.sums(name).astype(np.float32).tobytes()
            assert got[name + ".counts"].ravel().tolist() == collector.counts(name).tolist()
    assert f"{chunks} chunks of up to 64 tokens" in result.stderr
    assert f"chunk {chunks} of {chunks}, perplexity " in result.stderr
    assert not list(tmp_path.glob("*.partial"))
    assert hy3core.ImportanceMatrix(out).chunks == chunks


def test_several_texts_and_a_limit(tiny: Path, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("Something else. " * 20)
    both, one, two = (tmp_path / name for name in ("both.gguf", "one.gguf", "two.gguf"))
    for out, files in ((both, [text, other]), (one, [text]), (two, [other])):
        assert hy3("-m", tiny, *(arg for file in files for arg in ("-f", file)), "-o", out).exit_code == 0
    assert hy3core.ImportanceMatrix(both).datasets == ("text.txt", "other.txt")
    for name, values in sums(both).items():
        parts = [found[name] for found in (sums(one), sums(two)) if name in found]
        np.testing.assert_allclose(values, np.sum(parts, axis=0), rtol=1e-6)
    result = hy3("-m", tiny, "-f", text, "-o", tmp_path / "c.gguf", "-c", 16, "--chunks", 3)
    assert result.exit_code == 0
    assert sums(tmp_path / "c.gguf")["blk.0.attn_q.weight.counts"].tolist() == [[48.0]]


def test_special_tokens_and_begin_tokens(text: Path, tmp_path: Path) -> None:
    metadata, tensors = tiny_hy3_parts()
    bos = metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.bos_token_id"]]
    model = write_gguf(tmp_path / "m.gguf", metadata, tensors)
    text.write_text(bos * 3)

    def rows(name: str, *args: object, model: Path = model) -> float:
        out = tmp_path / name
        assert hy3("-m", model, "-f", text, "-o", out, *args).exit_code == 0
        return float(sums(out)["blk.0.attn_q.weight.counts"][0, 0])

    assert rows("a.gguf") == 3
    assert rows("b.gguf", "--plain") > 30
    adding = write_gguf(tmp_path / "bos.gguf", metadata | {"tokenizer.ggml.add_bos_token": True}, tensors)
    assert rows("c.gguf", "-c", 2, model=adding) == 6  # three chunks of the begin token and one of the text


def test_experts_that_were_never_chosen_are_told(tiny: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("a")
    result = hy3("-m", tiny, "-f", short, "-o", tmp_path / "i.gguf")
    assert result.exit_code == 0
    assert "perplexity nan" in result.stderr  # one token: nothing to predict
    assert "hy3: warning: no token was routed to 20 experts (blk.1: 6, blk.2: 6, blk.3: 8)." in result.stderr
    names = hy3core.ImportanceMatrix(tmp_path / "i.gguf").names
    assert "output.weight" not in names and not [name for name in names if name.startswith("blk.3.")]


def test_what_is_refused(tiny: Path, text: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.gguf"
    there.write_text("mine")
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    for args, message in [
        (["-f", text, "-o", there], f"hy3: error: {there} exists. --force overwrites it."),
        (["-f", text, "-o", tmp_path], "is a directory"),
        (["-f", text, "-o", tmp_path / "no" / "i.gguf"], "there is no such directory"),
        (["-f", text, "-o", text, "--force"], f"{text} is one of the files to read"),
        (["-f", text, "-o", tiny, "--force"], f"{tiny} is one of the files to read"),
        (["-f", empty, "-o", tmp_path / "i.gguf"], "empty.txt: there is no text in it"),
        (["-f", tmp_path / "none.txt", "-o", tmp_path / "i.gguf"], "none.txt: No such file"),
        (["-f", text, "-o", tmp_path / "i.gguf", "-c", "4k"], "-c 4096 is more than the 2048 tokens"),
    ]:
        result = hy3("-m", tiny, *args)
        assert (result.exit_code, message in result.stderr) == (1, True), result.stderr
    assert there.read_text() == "mine"
    assert not (tmp_path / "i.gguf").exists()
    assert hy3("-m", tiny, "-f", text, "-o", there, "--force").exit_code == 0
    for args in (
        ["-o", "x"],
        ["-f", "x"],
        ["-f", "x", "-o", "y", "-c", "1"],
        ["-f", "x", "-o", "y", "--chunks", "0"],
    ):
        assert hy3(*args).exit_code == 2


def test_it_is_saved_now_and_then(
    tiny: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SAVE_SECONDS", 0.0)
    out, seen = tmp_path / "i.gguf", []
    line = command.progress_line

    def interrupted(chunk: Any, total: int, seconds: float) -> str:
        seen.append(hy3core.ImportanceMatrix(out).chunks if out.exists() else 0)
        if chunk.number == 4:
            raise KeyboardInterrupt
        return line(chunk, total, seconds)

    monkeypatch.setattr(command, "progress_line", interrupted)
    monkeypatch.setattr(command, "LINE_SECONDS", 0.0)
    result = hy3("-m", tiny, "-f", text, "-o", out, "-c", 16)
    assert result.exit_code == 130
    assert seen == [0, 1, 2, 3]
    assert f"hy3: {out} has the first 3 of " in result.stderr
    assert sums(out)["blk.0.attn_q.weight.counts"].tolist() == [[48.0]]


def test_ctrl_c(tiny: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.txt"
    long.write_text(TEXT * 500)
    out = tmp_path / "i.gguf"
    process = subprocess.Popen(
        [sys.executable, "-m", "hy3", "imatrix", "-m", tiny, "-f", long, "-o", out, "--backend", "reference"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "chunks of up to 512" in process.stderr.readline()
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert time.monotonic() - began < 5
    assert (process.returncode, stderr) == (130, "hy3: Nothing was written.\n\nhy3: interrupted\n")
    assert not out.exists()
