"""lm-evaluation-harness against a server of the bundled model, by the commands of docs/evaluation.md."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.harness

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (lm_eval .*?(?:\\\n.*?)*)$", PAGE, re.MULTILINE)


def test_both_kinds_of_endpoint_are_in_the_page() -> None:
    assert len(COMMANDS) == 2
    assert "local-completions" in COMMANDS[0] and "local-chat-completions" in COMMANDS[1]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: shlex.split(command)[2])
def test_the_bundled_model_solves_its_sums(server: Any, tmp_path: Path, command: str) -> None:
    arguments = shlex.split(command.replace("\\\n", " ").replace("http://127.0.0.1:8000", server.url))[1:]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", *arguments, "--output_path", str(tmp_path / "results")],
        cwd=ROOT,
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    [path] = (tmp_path / "results").rglob("results_*.json")
    [scores] = json.loads(path.read_text())["results"].values()
    [score] = [value for name, value in scores.items() if name.startswith(("acc,", "exact_match,"))]
    assert score == 1.0
