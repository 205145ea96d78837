"""Training and scoring share no content: what the generators draw for the one never is what they draw for the
other.
"""

import random
import re
from itertools import permutations

import pytest

from train import split, tasks, tools

DRAWS = 300


def operands(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def test_the_readme_example_is_held_out_in_every_order() -> None:
    assert all(split.sum_held_out(order) for order in permutations((11, 22, 33)))


def test_the_hash_holds_out_about_the_share_it_is_asked_for() -> None:
    share = sum(split.held_out("test", str(i), 15) for i in range(20_000)) / 20_000
    assert 0.14 < share < 0.16


@pytest.mark.parametrize("held", [False, True])
def test_sums_stay_on_their_side(held: bool) -> None:
    rng = random.Random(1)
    for _ in range(DRAWS):
        for message in tasks.sums(rng, held).messages:
            if message["role"] == "user":
                assert split.sum_held_out(operands(message["content"])) == held


def test_worked_sums_spell_out_no_held_out_pair() -> None:
    rng = random.Random(2)
    for _ in range(DRAWS):
        conversation = tasks.worked_sums(rng, False)
        for step in conversation.messages[1]["reasoning_content"].split(", "):
            assert not split.sum_held_out(operands(step)[:2])


@pytest.mark.parametrize("held", [False, True])
def test_passcodes_stay_on_their_side(held: bool) -> None:
    rng = random.Random(3)
    for _ in range(DRAWS):
        conversation = tasks.recall(rng, held, 20)
        code = conversation.messages[1]["content"]
        assert split.passcode_held_out(code) == held
        assert conversation.messages[0]["content"].count(code) == 1


@pytest.mark.parametrize("held", [False, True])
def test_tool_arguments_stay_on_their_side(held: bool) -> None:
    rng = random.Random(4)
    for _ in range(DRAWS):
        for message in tools.tool_calls(rng, held).messages:
            for call in message.get("tool_calls", []):
                values = tools.open_values(call["function"]["arguments"])
                assert values
                assert all(split.argument_held_out(value) == held for value in values)
