"""Feeds cases to a program, one after the other, and survives what they do to it.

The program reads, for each case, a u64 length and that many bytes, and answers with a line
`STAGE PEAK LARGEST MESSAGE` (tests/native/fuzz_cases.h says what they are). When it ends instead, or takes
too long, that case is the culprit: it is noted and the program started again for the next.

    python tests/fuzz/campaign.py PROGRAM [ARGUMENT...]       20,000 cases; exit 1 on a crash, hang or excess
"""

import collections
import os
import selectors
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.extremes import EXTREMES
from fuzz.mutate import Case, make_case

PATIENCE = 20.0  # seconds for one case
ALLOWANCE = 2**20  # bytes above twice the file's size
CASES = 20_000


class Outcome(NamedTuple):
    stage: str  # how far it came, as the target calls it, or "crash", "hang", "excess" of memory
    peak: int  # bytes
    largest: int
    message: str


class Program:
    """A running target that is fed one case at a time."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.selector = selectors.DefaultSelector()
        assert self.process.stdout
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.pending = b""

    def stop(self) -> str:
        """Ends the process; what it wrote to stderr."""
        self.process.kill()
        _, errors = self.process.communicate()
        self.selector.close()
        return errors.decode(errors="replace")

    def read_line(self) -> bytes | None:
        """A line without its end; None at the end of output. TimeoutError when none comes."""
        assert self.process.stdout
        while b"\n" not in self.pending:
            if not self.selector.select(PATIENCE):
                raise TimeoutError
            chunk = self.process.stdout.read(65536)
            if not chunk:
                return None
            self.pending += chunk
        line, self.pending = self.pending.split(b"\n", 1)
        return line

    def run(self, data: bytes) -> Outcome:
        assert self.process.stdin
        try:
            message = memoryview(struct.pack("<Q", len(data)) + data)
            while message:
                message = message[self.process.stdin.write(message) :]
            line = self.read_line()
        except BrokenPipeError:
            line = None
        except TimeoutError:
            self.stop()
            self.start()
            return Outcome("hang", 0, 0, f"no answer in {PATIENCE} s")
        if line is None:
            errors = self.stop()
            outcome = Outcome("crash", 0, 0, f"exit {self.process.returncode}: {errors[:1500]}")
            self.start()
            return outcome
        stage, peak, largest, text = line.decode(errors="replace").split(" ", 3)
        return Outcome(stage, int(peak), int(largest), text)


@dataclass
class Tally:
    """What became of the cases, by kind of change."""

    stages: dict[str, collections.Counter[str]] = field(
        default_factory=lambda: collections.defaultdict(collections.Counter)
    )
    failures: list[str] = field(default_factory=list)
    peak: int = 0  # bytes; 0 when the program does not count
    excess: int = -(2**62)  # largest (peak - twice the file), bytes
    count: int = 0
    seconds: float = 0.0

    def add(self, number: int, case: Case, outcome: Outcome) -> None:
        self.count += 1
        self.stages[case.label][outcome.stage] += 1
        self.peak = max(self.peak, outcome.peak)
        self.excess = max(self.excess, outcome.peak - 2 * len(case.data))
        if outcome.stage in ("crash", "hang", "excess") or outcome.peak > 2 * len(case.data) + ALLOWANCE:
            self.failures.append(f"case {number} ({case.label}, {len(case.data)} bytes): {outcome}")

    @property
    def past_metadata(self) -> float:
        """The part of the cases whose metadata were read to the end."""
        stopped = sum(counts["metadata"] for counts in self.stages.values())
        return 1 - stopped / self.count

    def summary(self) -> str:
        total: collections.Counter[str] = sum(self.stages.values(), collections.Counter())
        ends = ", ".join(f"{stage} {n}" for stage, n in sorted(total.items()))
        counted = (
            f"; peak allocation at most {self.excess:+d} bytes beside twice the file" if self.peak else ""
        )
        return (
            f"{self.count} cases in {self.seconds:.0f} s, {len(self.stages)} kinds of change; "
            f"ended at {ends}{counted}"
        )

    def table(self) -> str:
        return "\n".join(
            f"{label:24} {dict(sorted(counts.items()))}" for label, counts in sorted(self.stages.items())
        )


def run_campaign(
    command: list[str],
    make: Callable[[int], Case],
    numbers: Sequence[int] = range(CASES),
    workers: int = 1,
) -> Tally:
    """Spreads the cases over `workers` copies of the program; stops early after 20 failures."""
    tally = Tally()
    started = time.monotonic()

    def work(share: Sequence[int]) -> None:
        program = Program(command)
        for number in share:
            case = make(number)
            outcome = program.run(case.data)
            with lock:
                tally.add(number, case, outcome)
                if len(tally.failures) >= 20:
                    break
        program.stop()

    lock = threading.Lock()
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work, numbers[i::workers]) for i in range(workers)]:
            done.result()
    tally.seconds = time.monotonic() - started
    return tally


def run_extremes(command: list[str]) -> Tally:
    tally = Tally()
    program = Program(command)
    for number, (name, make) in enumerate(EXTREMES.items()):
        case = Case(name, make())
        tally.add(number, case, program.run(case.data))
    program.stop()
    return tally


def main() -> int:
    tally = run_campaign(sys.argv[1:], partial(make_case, 0), workers=os.cpu_count() or 1)
    extremes = run_extremes(sys.argv[1:])
    print(tally.table())
    print(extremes.table())
    print(f"report: gguf fuzz: {tally.summary()}; {tally.past_metadata:.0%} past the metadata")
    print(f"report: gguf extremes: {extremes.summary()}")
    for failure in tally.failures + extremes.failures:
        print(failure)
    return 1 if tally.failures or extremes.failures or tally.past_metadata < 0.5 else 0


if __name__ == "__main__":
    sys.exit(main())
