"""docs/cli.md says what --help says."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_not_stale() -> None:
    generator = runpy.run_path(str(ROOT / "tools/gen_cli_docs.py"))
    written = generator["FILE"].read_text(encoding="utf-8")
    # Line breaks are the business of click's version.
    assert written.split() == generator["document"]().split(), "run `make docs`"
