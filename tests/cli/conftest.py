"""The command line run inside the test process, on the scripted engine."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hy3.cli import main
from tests.cli import fake_hy3core


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hy3core` is the scripted engine."""
    monkeypatch.setitem(sys.modules, "hy3core", fake_hy3core)


@pytest.fixture
def hy3(scripted: None) -> Callable[..., Result]:
    """hy3("run", "-p", "x", input=..., env=...): the result, with stdout and stderr apart."""

    def invoke(*args: object, **options: Any) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args], **options)

    return invoke


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    """model(answers=[...], metadata={...}, ...): a file for the scripted engine."""

    def write(**content: Any) -> Path:
        file = tmp_path / "model.gguf"
        file.write_text(json.dumps({"metadata": {"general.architecture": "hy_v3"}, **content}))
        return file

    return write
