"""A conversion that is killed, interrupted or changed under way: what can be continued ends in the same
bytes."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.checkpoints import write_checkpoint
from support.convert_files import command, listing, run

from hy3.convert import Options, convert, output, plan
from hy3.convert.journal import Journal
from hy3.convert.progress import Progress
from hy3.errors import Hy3Error

KILLS = 20
SIZE = {"hidden_size": 256, "moe_intermediate_size": 256, "num_experts": 16, "vocab_size": 4000}


class Stopped(BaseException):
    pass


class StopAfter(Progress):
    """Ends the conversion, as a kill would, when so many blocks are written."""

    def __init__(self, blocks: int, error: Callable[[], BaseException] = Stopped) -> None:
        self.left = blocks
        self.error = error

    def advance(self, nbytes: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks and many records for a model of a few MB."""
    monkeypatch.setattr(plan, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(output, "SYNC_BYTES", 50_000)


@pytest.fixture
def m(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "m", shards=3, num_nextn_predict_layers=1, vocab_size=2000)
    return tmp_path / "m"


def stop(m: Path, out: Path, blocks: int = 60, options: Options | None = None) -> None:
    with pytest.raises(Stopped):
        convert(m, out, options or Options(type="q8_0"), progress=StopAfter(blocks))
    assert not out.exists()
    assert {out.name + ".partial", out.name + ".partial.journal"} <= listing(out.parent)


def command_in_small_steps(*arguments: str | Path) -> list[str]:
    """`hy3 convert` that records every 256 KiB, so that a model of a few MB has many points to continue
    from."""
    argv = command(*arguments)
    argv[2] = "import hy3.convert.output as o; o.SYNC_BYTES = 1 << 18; " + argv[2]
    return argv


def test_killed_at_random_points(tmp_path: Path, report: Callable[[str], None]) -> None:
    """kill -9, and --resume after each, until it is done; then anew, until there were enough kills."""
    write_checkpoint(tmp_path / "m", shards=3, dtype="bf16", **SIZE, num_nextn_predict_layers=1)
    whole, out, journal = tmp_path / "whole.gguf", tmp_path / "x.gguf", tmp_path / "x.gguf.partial.journal"
    arguments = ["-t", "q4_k", "--threads", "1", "--quiet"]
    assert run(tmp_path / "m", "-o", whole, *arguments).returncode == 0

    def records() -> int:
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    rng = random.Random(7)
    kills = continued = results = 0
    while kills < KILLS:
        before = records()
        process = subprocess.Popen(command_in_small_steps(tmp_path / "m", "-o", out, "--resume", *arguments))
        wanted = before + rng.randint(0, 6)
        while process.poll() is None and records() <= wanted:
            time.sleep(0.001)
        try:
            process.wait(rng.uniform(0, 0.05))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            continued += before > 1
            if not out.exists() or journal.exists():
                continue
            # Killed on its way out, with everything done.
        else:
            assert process.returncode == 0
        assert out.read_bytes() == whole.read_bytes()
        assert not [name for name in listing(tmp_path) if "partial" in name]
        results += 1
        out.unlink()
    assert run(tmp_path / "m", "-o", out, "--resume", *arguments).returncode == 0
    assert out.read_bytes() == whole.read_bytes()
    report(
        f"convert: killed {kills} times, {continued} of them in a continued run; {results + 1} complete "
        f"results, all byte-identical to that of an uninterrupted run"
    )
    assert continued >= KILLS // 2


def test_stopped_at_every_kind_of_point(small: None, m: Path, tmp_path: Path) -> None:
    """Deterministically at many block counts, each continued from what the journal had."""
    whole, out = tmp_path / "whole.gguf", tmp_path / "x.gguf"
    convert(m, whole, Options(type="q8_0"))
    for blocks in (1, 2, 3, 5, 8, 13, 40, 41, 42, 43, 44, 90, 150):
        stop(m, out, blocks)
        convert(m, out, Options(type="q8_0"), resume=True)
        assert out.read_bytes() == whole.read_bytes(), blocks
        out.unlink()
    assert not [name for name in listing(tmp_path) if "partial" in name]


def test_resuming_does_not_start_over(small: None, m: Path, tmp_path: Path) -> None:
    stop(m, tmp_path / "x.gguf", blocks=100)

    class Watch(Progress):
        def start(self, total: int, done: int) -> None:
            self.share = done / total

    watch = Watch()
    convert(m, tmp_path / "x.gguf", Options(type="q8_0"), resume=True, progress=watch)
    assert watch.share > 0.3


def test_split_conversions_resume(small: None, m: Path, tmp_path: Path) -> None:
    options = Options(type="q8_0", split_max_size=200_000)
    whole = convert(m, tmp_path / "whole.gguf", options)
    with pytest.raises(Stopped):
        convert(m, tmp_path / "x.gguf", options, progress=StopAfter(100))
    files = convert(m, tmp_path / "x.gguf", options, resume=True)
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in whole]
    assert not [name for name in listing(tmp_path) if "partial" in name]


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", dtype="bf16", **SIZE, num_hidden_layers=5)
    arguments = ["-t", "q4_k", "--threads", "1"]
    assert run(tmp_path / "m", "-o", tmp_path / "whole.gguf", *arguments).returncode == 0
    out, journal = tmp_path / "x.gguf", tmp_path / "x.gguf.partial.journal"
    process = subprocess.Popen(
        command(tmp_path / "m", "-o", out, *arguments), stderr=subprocess.PIPE, text=True
    )
    while not journal.exists() or b"\n" not in journal.read_bytes():
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert (
        "interrupted. The unfinished output is kept: the same command with --resume continues it." in stderr
    )
    assert not out.exists()
    assert run(tmp_path / "m", "-o", out, "--resume", *arguments).returncode == 0
    assert out.read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_interruption_records_all_that_was_written(small: None, m: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match="--resume"):
        convert(m, tmp_path / "x.gguf", Options(type="q8_0"), progress=StopAfter(30, KeyboardInterrupt))


def test_without_resume_an_unfinished_output_is_kept(small: None, m: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.gguf"
    stop(m, out)
    before = (tmp_path / "x.gguf.partial").read_bytes()
    with pytest.raises(Hy3Error, match=r"left from an interrupted conversion.*--resume.*--force"):
        convert(m, out, Options(type="q8_0"))
    assert (tmp_path / "x.gguf.partial").read_bytes() == before
    convert(m, out, Options(type="q8_0"), force=True)
    assert not [name for name in listing(tmp_path) if "partial" in name]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (Options(type="q4_k"), "type was q8_0, is q4_k"),
        (Options(type="q8_0", no_mtp=True), "no_mtp was False, is True"),
        (Options(type="q8_0", split_max_size=100_000), "split_max_size was 0, is 100000"),
    ],
)
def test_other_options_are_refused(
    small: None, m: Path, tmp_path: Path, options: Options, wanted: str
) -> None:
    stop(m, tmp_path / "x.gguf")
    before = listing(tmp_path)
    with pytest.raises(Hy3Error) as raised:
        convert(m, tmp_path / "x.gguf", options, resume=True)
    assert wanted in str(raised.value)
    assert listing(tmp_path) == before
    convert(m, tmp_path / "x.gguf", options, force=True)
    assert not [name for name in listing(tmp_path) if "partial" in name]


def test_a_changed_source_is_refused(small: None, m: Path, tmp_path: Path) -> None:
    stop(m, tmp_path / "x.gguf")
    shard = m / "model-00002-of-00003.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(Hy3Error, match=r"source has changed \(model-00002-of-00003.safetensors\)"):
        convert(m, tmp_path / "x.gguf", Options(type="q8_0"), resume=True)


def test_a_changed_config_is_refused(small: None, m: Path, tmp_path: Path) -> None:
    stop(m, tmp_path / "x.gguf")
    path = m / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"router_scaling_factor": 1.0}))
    with pytest.raises(Hy3Error, match=r"source has changed \(config.json\)"):
        convert(m, tmp_path / "x.gguf", Options(type="q8_0"), resume=True)


@pytest.mark.parametrize("where", [0.05, 0.3, 0.5])
def test_a_damaged_partial_is_repaired(small: None, m: Path, tmp_path: Path, where: float) -> None:
    whole, out = tmp_path / "whole.gguf", tmp_path / "x.gguf"
    convert(m, whole, Options(type="q8_0"))
    stop(m, out, blocks=120)
    partial = tmp_path / "x.gguf.partial"
    data = bytearray(partial.read_bytes())
    at = int(where * len(data))
    data[at : at + 5] = bytes(byte ^ 255 for byte in data[at : at + 5])
    partial.write_bytes(data)
    convert(m, out, Options(type="q8_0"), resume=True)
    assert out.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("cut", [1, 10, 1000])
def test_a_torn_journal_loses_only_its_end(small: None, m: Path, tmp_path: Path, cut: int) -> None:
    whole, out = tmp_path / "whole.gguf", tmp_path / "x.gguf"
    convert(m, whole, Options(type="q8_0"))
    stop(m, out, blocks=120)
    journal = tmp_path / "x.gguf.partial.journal"
    journal.write_bytes(journal.read_bytes()[:-cut])
    convert(m, out, Options(type="q8_0"), resume=True)
    assert out.read_bytes() == whole.read_bytes()


def test_killed_while_renaming(small: None, m: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(type="q8_0", split_max_size=200_000)
    whole = convert(m, tmp_path / "whole.gguf", options)
    real, calls = os.replace, 0

    def failing(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Stopped
        real(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(Stopped):
        convert(m, tmp_path / "x.gguf", options)
    monkeypatch.undo()
    files = convert(m, tmp_path / "x.gguf", options, resume=True)
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in whole]
    assert not [name for name in listing(tmp_path) if "partial" in name]


def test_two_at_once(small: None, m: Path, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x.gguf.partial.journal")
    with pytest.raises(Hy3Error, match="another conversion is writing"):
        convert(m, tmp_path / "x.gguf", Options(type="q8_0"))
    journal.close()


def test_resume_without_anything_to_continue(m: Path, tmp_path: Path) -> None:
    convert(m, tmp_path / "x.gguf", Options(type="q8_0"), resume=True)
    with pytest.raises(Hy3Error, match="exists"):
        convert(m, tmp_path / "x.gguf", Options(type="q8_0"), resume=True)
