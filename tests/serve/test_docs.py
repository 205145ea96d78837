"""The examples of docs/server.md: they run, and print what is printed below them."""

import contextlib
import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs/server.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
SECTIONS = {
    section.partition("\n")[0]: section
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    if "```python" in section or "```sh" in section
}


@pytest.mark.parametrize("name", SECTIONS)
def test_the_examples_of_a_section(server: Any, name: str) -> None:
    """One after the other: a later one may use what an earlier one defines."""
    names: dict[str, Any] = {}
    printed = ""
    for language, text in BLOCK.findall(SECTIONS[name]):
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(text.replace("http://127.0.0.1:8000", server.url), names)
            printed = output.getvalue()
            assert printed
        elif language == "sh":
            run(text.replace("http://127.0.0.1:8000", server.url))
        elif language == "text":
            assert printed == text


def run(commands: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    script = "set -e\n" + commands.replace("curl -", "curl --fail -")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout
