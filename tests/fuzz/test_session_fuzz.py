"""Changed sessions through hy3core.Session: loaded or refused, and nothing else.

More of them run under the sanitizers, with every allocation counted: tests/native/fuzz_session.cpp (`ctest`).
"""

import sys
from collections.abc import Callable
from pathlib import Path

from fuzz.session_cases import judge, run

TARGET = [sys.executable, str(Path(__file__).with_name("load_session.py"))]


def test_a_changed_session_is_loaded_or_refused(tmp_path: Path, report: Callable[[str], None]) -> None:
    tally = run(TARGET, tmp_path, cases=1000)
    report(f"session fuzz through Session: {tally.summary()}")
    assert judge(tally) == []
