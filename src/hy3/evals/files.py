"""Where the suites' questions are: installed beside the package, or in the source tree."""

import json
from pathlib import Path
from typing import Any

from hy3.errors import Hy3Error

PACKAGE = Path(__file__).parents[1]
PLACES = (PACKAGE / "suites", PACKAGE.parents[1] / "eval" / "suites")
TINY = (PACKAGE / "suites" / "tiny", PACKAGE.parents[1] / "eval" / "tiny")


def find(name: str, places: tuple[Path, ...] = PLACES) -> Path:
    for place in places:
        if (place / name).exists():
            return place / name
    raise Hy3Error(f"The suite's file {name} is not installed", "Install hy3 again")


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tools(path: Path) -> dict[str, dict[str, Any]]:
    """Tool definitions by name."""
    return {tool["function"]["name"]: tool for tool in json.loads(path.read_text(encoding="utf-8"))}
