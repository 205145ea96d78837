"""Shared by all tests: the `report` fixture, whose lines end up in pytest's terminal summary.

The folders `live` and `peer` import packages that the other tests do without, so they are not even looked
into unless their marker is asked for: `pytest -m live`.
"""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

PROPERTY = "report"
OPTIONAL = ("live", "peer")  # folders, and the markers of what is in them

# A shell starts what it puts into the background with Ctrl-C ignored, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True where the marker expression leaves the folder's tests out; else pytest decides."""
    name, expression = collection_path.name, config.option.markexpr
    if name not in OPTIONAL or collection_path.parent != Path(__file__).parent or not expression:
        return None
    return True if name not in expression.replace(f"not {name}", "") else None


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """report(text): one line `report: text` in the summary, whether the test passes or fails.

    For measured errors and speeds, which a green dot would hide. The lines travel as the item's user
    properties, so they also arrive from the processes of pytest-xdist.
    """

    def add(text: str) -> None:
        request.node.user_properties.append((PROPERTY, text))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = [
        text
        for outcome in ("passed", "failed")
        for result in terminalreporter.getreports(outcome)
        if result.when == "call"
        for name, text in result.user_properties
        if name == PROPERTY
    ]
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(f"report: {line}")
