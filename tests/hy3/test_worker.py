"""The process apart, with scripts that do what they should not."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hy3.worker import Worker, WorkerError

SCRIPT = """
import json, sys, time
print("{}", flush=True)
for line in sys.stdin:
    asked = json.loads(line)["do"]
    if asked == "die":
        sys.exit(1)
    if asked == "sleep":
        time.sleep(60)
    print(json.dumps({"did": asked * 100_000 if asked == "talk" else asked}), flush=True)
"""


@pytest.fixture
def started(tmp_path: Path) -> Callable[[str], Worker]:
    def start(script: str = SCRIPT) -> Worker:
        path = tmp_path / "script.py"
        path.write_text(script)
        return Worker(str(path), 0.5, 10_000, "it has died")

    return start


@pytest.mark.parametrize(
    ("order", "reason"),
    [("die", "it has died"), ("sleep", "longer than 0.5 seconds"), ("talk", "longer than 10000 bytes")],
)
def test_a_process_that_does_not_answer_is_replaced(
    started: Callable[..., Worker], order: str, reason: str
) -> None:
    worker = started()
    assert worker.ask({"do": "work"}) == {"did": "work"}
    begun = time.monotonic()
    with pytest.raises(WorkerError, match=reason):
        worker.ask({"do": order})
    assert time.monotonic() - begun < 5
    assert worker.ask({"do": "work"}) == {"did": "work"}
    worker.close()


def test_a_process_killed_meanwhile_is_started_again(started: Callable[..., Worker]) -> None:
    worker = started()
    worker.ask({"do": "work"})
    assert worker._process is not None
    worker._process.kill()
    worker._process.wait()
    assert worker.ask({"do": "more"}) == {"did": "more"}
    worker.close()


def test_a_process_that_does_not_start(started: Callable[..., Worker]) -> None:
    with pytest.raises(WorkerError, match="does not start"):
        started("raise SystemExit").ask({"do": "work"})


def test_a_request_that_is_no_json(started: Callable[..., Worker]) -> None:
    with pytest.raises(WorkerError, match="not JSON"):
        started().ask({"do": object()})
