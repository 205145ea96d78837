"""20,000 sound models with one thing changed, through hy3core.Model: loaded or refused, and nothing else.

The same cases run under the sanitizers, with every allocation counted: tests/native/fuzz_gguf.cpp (`ctest`).
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fuzz.campaign import CASES, Program, run_campaign, run_extremes
from fuzz.mutate import CHANGES, bases, make_case

TARGET = [sys.executable, str(Path(__file__).with_name("load_model.py"))]


def test_one_field_changed(report: Callable[[str], None]) -> None:
    tally = run_campaign(TARGET, partial(make_case, 0), workers=os.cpu_count() or 1)
    report(f"gguf fuzz through Model: {tally.summary()}; {tally.past_metadata:.0%} past the metadata")
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.count == CASES
    assert tally.past_metadata >= 0.5
    assert set(tally.stages) == set(CHANGES)
    # Each kind of change must be able to do harm: some case of it is refused. Weights may be any bytes.
    unnoticed = {label for label, counts in tally.stages.items() if set(counts) == {"ok"}}
    assert unnoticed <= {"tensor data"}


def test_the_bases_load() -> None:
    """Else nothing above would mean anything."""
    program = Program(TARGET)
    outcomes = [program.run(bytes(base.image.data)) for base in bases()]
    program.stop()
    assert [outcome.stage for outcome in outcomes] == ["ok"] * len(bases()), outcomes


def test_files_made_to_exhaust_memory(report: Callable[[str], None]) -> None:
    tally = run_extremes(TARGET)
    report(
        "gguf extremes through Model: "
        + ", ".join(f"{name}: {next(iter(n))}" for name, n in tally.stages.items())
    )
    assert not tally.failures, "\n".join(tally.failures)


def test_cases_are_made_from_their_number() -> None:
    """What a failure reports can be made again."""
    assert make_case(0, 1234) == make_case(0, 1234)
    assert make_case(0, 1234) != make_case(1, 1234)


def test_a_crash_is_noticed(tmp_path: Path) -> None:
    """The campaign survives a target that dies on one case, and says which."""
    target = tmp_path / "target.py"
    target.write_text(
        "import struct, sys, os\n"
        "count = 0\n"
        "while head := sys.stdin.buffer.read(8):\n"
        "    data = sys.stdin.buffer.read(struct.unpack('<Q', head)[0])\n"
        "    if data[4:8] != b'\\3\\0\\0\\0': os.abort()\n"
        "    print('ok', 10**9 if data[:4] != b'GGUF' else 0, 0, '', flush=True)\n"
    )
    tally = run_campaign(
        [sys.executable, str(target)], partial(make_case, 0), numbers=range(2 * len(CHANGES))
    )
    labels = sorted(failure.split("(")[1].split(",")[0] for failure in tally.failures)
    assert "header magic" in labels and "header version" in labels
