"""The arithmetic of eval/server/throughput.py and gap.py."""

import pytest

from eval.server.gap import Beside, Result, longest_gap
from eval.server.throughput import LLAMA, SCHEDULER, Rates, Report


def test_ratios_are_of_medians() -> None:
    rates = [
        Rates(SCHEDULER, 1, [10.0, 11.0, 9.0]),
        Rates(SCHEDULER, 8, [30.0, 22.0, 36.0]),
        Rates(LLAMA, 1, [8.0, 8.0, 8.0]),
        Rates(LLAMA, 8, [15.0, 20.0, 12.0]),
    ]
    report = Report("x.gguf", 2, 64, rates, "1 streams with flash attention on")
    assert report.gains() == {
        "Scheduler, 8 streams to one": (3.0, 2.0, 4.0),
        "llama.cpp, 8 streams to one": (15 / 8, 1.5, 2.5),
        "Scheduler to llama.cpp, 8 streams": (2.0, 1.1, 3.0),
    }
    assert "Scheduler, 8 streams: 30.00 tokens/s (22.00 to 36.00 in 3 rounds)" in str(report)


def test_gaps_reach_over_the_ends_of_the_prompt() -> None:
    times = [0.0, 1.0, 1.5, 3.0, 3.1, 9.0]
    assert longest_gap(times, begin=1.2, end=3.05) == 1.5
    assert longest_gap(times, begin=1.2, end=4.0) == pytest.approx(5.9)
    assert longest_gap(times, begin=3.05, end=3.2) == pytest.approx(5.9)


@pytest.mark.parametrize(
    ("gaps", "prompts", "holds"),
    [
        ([0.2, 0.9, 0.2], [4.0, 5.0, 4.0], True),  # one bad round of three
        ([0.2, 0.3, 0.3], [4.0, 5.0, 4.0], False),
        ([0.2, 0.2, 0.2], [6.0, 5.0, 6.0], False),
    ],
)
def test_what_is_asked_of_medians(gaps: list[float], prompts: list[float], holds: bool) -> None:
    beside = [Beside(prompt_s, gap_s) for prompt_s, gap_s in zip(prompts, gaps, strict=True)]
    assert Result("x", 100, 0.25, [3.0, 3.0, 3.0], beside).holds is holds
