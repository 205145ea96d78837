"""Shared by all tests: the `report` fixture, whose lines end up in pytest's terminal summary."""

from collections.abc import Callable

import pytest

PROPERTY = "report"


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
