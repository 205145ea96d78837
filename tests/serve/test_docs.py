"""The examples of docs/server.md and docs/evaluation.md: they run, and print what is printed below them.

The `sh` and `python` blocks of a section run in order, and later ones may use what earlier ones define. One
that starts `hy3 serve` starts a server for the rest of its section; before, 127.0.0.1:8000 is the bundled
model's. A block after a comment `<!-- not run: REASON -->` is left out, and counted.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eval.server.process import Server as Process

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+) -->\n+)?```(?P<language>\w+)\n(?P<text>.*?)^```\n", re.M | re.S
)
EXAMPLES = ("sh", "python")
ADDRESS = "127.0.0.1:8000"
SERVE = re.compile(r"^hy3 serve\b(?P<options>.*)", re.S)
MODEL_NAMES = ("hy3.gguf",)  # in examples
PATIENCE_S = 200


def sections() -> Iterator[Any]:
    for page in ("server.md", "evaluation.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for section in re.split(r"^##? ", text, flags=re.M)[1:]:
            blocks = [match.groupdict() for match in BLOCK.finditer(section)]
            if any(block["language"] in EXAMPLES for block in blocks):
                yield pytest.param(blocks, id=f"{page}, {section.partition(chr(10))[0]}")


class Examples:
    """Runs the blocks of a section."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.names: dict[str, Any] = {}  # of the python blocks
        self.server = contextlib.ExitStack()

    def run(self, language: str, text: str) -> str:
        """What it prints."""
        served = SERVE.match(text)
        if served:
            self.serve(served["options"])
            return ""
        text = text.replace(ADDRESS, self.address)
        return run_shell(text) if language == "sh" else self.run_python(text)

    def serve(self, options: str) -> None:
        self.server.close()
        process = self.server.enter_context(Process(None, *shlex.split(options)))
        self.address = process.url.removeprefix("http://")

    def run_python(self, text: str) -> str:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(text, self.names)
        return output.getvalue()


def run_shell(text: str) -> str:
    command = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(command, text=True, capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    return done.stdout


def put_commands(tools: Path) -> None:
    """`hy3` and `python` are those of this test."""
    tools.mkdir()
    python = shlex.quote(sys.executable)
    for name, command in {"hy3": f"{python} -m hy3", "python": python}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tools / name).chmod(0o755)


@pytest.fixture
def examples(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Examples]:
    """In a directory with the files that they name."""
    put_commands(tmp_path / "bin")
    for name in MODEL_NAMES:
        (tmp_path / name).symlink_to(ROOT / "src/hy3/models/hy3-tiny.gguf")
    shutil.copy(ROOT / "README.md", tmp_path)
    (tmp_path / ".curlrc").write_text("fail\n")  # or an error of the server would be a success
    monkeypatch.setenv("CURL_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(os.path.abspath(path) for path in sys.path if path))
    monkeypatch.chdir(tmp_path)
    found = Examples(server.url.removeprefix("http://"))
    with found.server:
        yield found


@pytest.mark.parametrize("blocks", sections())
def test_the_examples_of_a_section(
    blocks: list[dict[str, str]], examples: Examples, report: Callable[[str], None]
) -> None:
    printed = None  # by the example before
    for block in blocks:
        if block["language"] in EXAMPLES:
            if block["reason"]:
                report(f"an example is not run: {block['reason']}: {block['text'].splitlines()[0]}")
            printed = None if block["reason"] else examples.run(block["language"], block["text"])
        elif block["language"] == "text" and printed is not None:
            assert printed == block["text"]


def test_a_failing_example_is_noticed(examples: Examples) -> None:
    for language, text in [("sh", "false\n"), ("sh", "false | true\n"), ("python", "assert False\n")]:
        with pytest.raises(AssertionError):
            examples.run(language, text)
    with pytest.raises(RuntimeError, match="no-such-option"):
        examples.run("sh", "hy3 serve --no-such-option\n")


def test_blocks_are_found_with_their_reasons() -> None:
    text = "```sh\na\n```\n<!-- not run: it is long -->\n\n```python\nb\n```\n```text\nc\n```\n"
    found = [(match["language"], match["text"], match["reason"]) for match in BLOCK.finditer(text)]
    assert found == [("sh", "a\n", None), ("python", "b\n", "it is long"), ("text", "c\n", None)]
