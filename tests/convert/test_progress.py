"""What a conversion shows: a bar on a terminal, lines elsewhere, nothing when asked for nothing."""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from support.checkpoints import write_checkpoint
from support.convert_files import command

from hy3.convert import progress


def test_bar_on_a_terminal(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", moe_intermediate_size=80)
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    argv = command(tmp_path / "m", "-o", tmp_path / "x.gguf")
    process = subprocess.Popen(argv, stderr=slave, stdout=subprocess.PIPE, env=environment)
    os.close(slave)
    shown = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # EIO: the other side is closed
            break
        if not chunk:
            break
        shown += chunk
    stdout, _ = process.communicate(timeout=60)
    os.close(master)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert stdout == b""
    assert "hy3: warning: blk.1.ffn_down_exps.weight and 1 more: rows of 80" in text
    assert re.search(r"converting .* (\d+(\.\d+)?)/\1 .B .*/s \d+:\d\d:\d\d", text), text
    assert shown.count(b"\x1b[?25l") == shown.count(b"\x1b[?25h")  # the cursor is back


def test_lines_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    lines = progress.Lines()
    lines.start(total=4_000_000_000, done=1_000_000_000)
    for _ in range(30):
        now += 2.0
        lines.advance(100_000_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "hy3: 2.50 of 4.00 GB, 62%, 50 MB/s, 0:30 left",
        "hy3: 4.00 of 4.00 GB, 100%, 50 MB/s, 0:00 left",
    ]
    assert progress.clock(3723) == "1:02:03"
