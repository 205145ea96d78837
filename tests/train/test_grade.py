"""The grader by itself: intervals against published values, and what counts as an accepted draft."""

import pytest

from eval.tiny.grade import Question, Tally, table
from eval.tiny.score import Verdict, tally
from hy3.evals.interval import wilson

END, TAG, LINE_END = 0, 1, 2
TEXTS = {END: "<end>", TAG: "<tag>", LINE_END: "\n", 3: "6", 4: "7"}


class Scripted:
    """A runner whose answer and drafts are given."""

    end_ids = frozenset([END])
    tag_ids = frozenset([END, TAG])

    def __init__(self, ids: list[int], verdicts: list[Verdict | None]) -> None:
        self.ids, self.verdicts = ids, verdicts

    def prompt(self, question: Question) -> list[int]:
        return []

    def answer(self, prompt: list[int]) -> tuple[list[int], list[Verdict | None]]:
        return self.ids, self.verdicts

    def text(self, ids: list[int]) -> str:
        return "".join(TEXTS[i] for i in ids)


def graded(ids: list[int], verdicts: list[Verdict | None], expected: str) -> Tally:
    return tally(Scripted(ids, verdicts), Question("sum2", [], "no_think", None, expected, None))


def test_the_end_token_is_not_part_of_the_text() -> None:
    assert graded([3, 3, END], [None] * 3, "66").exact == 1
    assert graded([3, 3], [None] * 2, "66").exact == 1  # cut off by the token limit
    assert graded([3, 4, END], [None] * 3, "66").exact == 0
    assert graded([END], [None], "66").exact == 0


def test_only_content_drafts_count() -> None:
    right, wrong, second = (1, True), (1, False), (2, True)
    ids = [TAG, LINE_END, 3, 4, LINE_END, 3, 3, END]
    out = graded(ids, [None, right, right, wrong, right, second, None, right], "")
    # The tag, the line end after it and the end do not count.
    assert (out.drafts, out.accepted) == ([3, 1], [2, 1])


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    # Newcombe 1998, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson(right: int, count: int, low: float, high: float) -> None:
    assert wilson(right, count) == pytest.approx((low, high), abs=5e-5)


def test_the_table_has_a_line_for_every_row() -> None:
    lines = table({"sum2": Tally(10, 9, [10, 4], [8, 3]), "talk": Tally(4, 4)}).splitlines()
    assert len(lines) == 3
    assert all(share in lines[1] for share in ("90.0%", "80.0%", "75.0%"))
    assert lines[2].rstrip().endswith("-")
