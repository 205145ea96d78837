"""What drafting with the MTP layer costs on this machine, how often drafts are right, and how often they
would have to be.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hy3.bench import synthetic_tokens

if TYPE_CHECKING:
    from hy3core import Session

PROMPT = 16  # synthetic tokens that the text measured follows


@dataclass(frozen=True)
class Drafting:
    """Costs are relative to a step of one row, the cost of a token without drafts."""

    step_seconds: float
    steps: tuple[float, ...]  # verifying one draft, two, ...
    draft: float  # making one draft
    drafts: tuple[tuple[int, int], ...]  # by depth: those that came to the test, and of them those right
    tokens: int

    def cost(self, depth: int) -> float:
        """Of `depth` drafts and the step that verifies them."""
        return self.steps[depth - 1] + depth * self.draft

    def right(self, depth: int) -> float | None:
        """The share of right drafts, all before them being right; None when none came so far."""
        judged, right = self.drafts[depth - 1]
        return right / judged if judged else None

    def break_even(self, depth: int) -> float | None:
        """The share, the same at every depth, from which `depth` drafts each time are no loss; None: not even
        if all were right."""
        cost = self.cost(depth)
        if cost > depth + 1:
            return None
        low, high = 0.0, 1.0
        for _ in range(40):
            share = (low + high) / 2
            tokens = sum(share**i for i in range(depth + 1))
            low, high = (share, high) if tokens < cost else (low, share)
        return high

    def to_json(self) -> dict[str, Any]:
        depths = range(1, len(self.steps) + 1)
        return asdict(self) | {"break_even": [self.break_even(depth) for depth in depths]}


def context(depth: int, tokens: int) -> int:
    """Positions that measure_drafts takes."""
    return PROMPT + tokens + depth + 1


def measure_drafts(session: "Session", plain: "Session", depth: int, tokens: int, rounds: int) -> Drafting:
    """On the text of `tokens` tokens that the model writes after a few synthetic ones, drafting `depth` each
    time. `session` keeps the MTP layer's cache; `plain`, of the same model, does not, as in a step that
    verifies."""
    prompt = synthetic_tokens(PROMPT, session.model.config.vocab_size, seed=2)
    text = prompt + list(session.generate(prompt, tokens, stop_ids=[], mtp=depth, mtp_always=True))
    drafts = tuple(session.stats["drafts"])
    costs: list[list[float]] = [[] for _ in range(depth + 2)]
    for counted in (False, *[True] * rounds):
        for one in (plain, session):
            one.truncate(0)
            one.eval(prompt, logits="none")
        for at in range(PROMPT, len(text) - depth):
            for of_kind, seconds in zip(costs, one_position(plain, session, text, at, depth), strict=True):
                of_kind += [seconds] * counted
    draft, one_row, *more = (statistics.median(of_kind) for of_kind in costs)
    return Drafting(one_row, tuple(each / one_row for each in more), draft / one_row, drafts, tokens)


def one_position(
    plain: "Session", session: "Session", text: list[int], at: int, depth: int
) -> Iterator[float]:
    """Seconds of a draft and of steps of 1, 2, ... rows after `at` tokens; both sessions go on by one."""
    session.eval(text[at : at + 1], logits="none")
    yield timed(lambda: session.mtp_logits(text[at + 1]))
    for rows in range(1, depth + 2):
        yield timed(lambda rows=rows: plain.eval(text[at : at + rows], "all"))  # type: ignore[misc]
        plain.truncate(at)
    plain.eval(text[at : at + 1], logits="none")


def timed(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
