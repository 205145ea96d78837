"""The committed questions of eval/tiny: right, held out, and as many as the scores claim."""

import re

from eval.tiny.grade import SUITES, questions
from train import split, tools

COUNTS = {"sum2": 300, "sum3": 300, "worked": 200, "recall": 200, "tools": 250, "greeting": 40, "talk": 100}


def numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def test_counts_and_no_question_twice() -> None:
    assert set(COUNTS) == set(SUITES)
    for suite, count in COUNTS.items():
        texts = [q.messages[0]["content"] for q in questions(suite)]
        assert len(texts) == len(set(texts)) == count


def test_sums_are_right_and_held_out() -> None:
    for suite, count in (("sum2", 2), ("sum3", 3)):
        for question in questions(suite):
            operands = numbers(question.messages[0]["content"])
            assert len(operands) == count
            assert split.sum_held_out(operands)
            assert question.expected == str(sum(operands))
            assert question.reasoning_effort == "no_think"
    assert questions("sum3")[0].messages[0]["content"] == "11+22+33=?"


def test_worked_sums_end_in_the_sum_and_every_step_is_right() -> None:
    for question in questions("worked"):
        operands = numbers(question.messages[0]["content"])
        assert split.sum_held_out(operands)
        work, answer = question.expected.split("</think:opensource>")
        assert answer == str(sum(operands))
        for step in work.split(", "):
            a, b, total = numbers(step)
            assert a + b == total


def test_passcodes_are_held_out_and_in_the_text_once() -> None:
    lengths = set()
    for question in questions("recall"):
        assert split.passcode_held_out(question.expected)
        assert question.messages[0]["content"].count(f"passcode is {question.expected}.") == 1
        lengths.add(question.tokens)
    assert lengths == {50, 100, 250, 500, 1000}


def test_tool_calls_name_an_offered_tool_and_unseen_values() -> None:
    for question in questions("tools"):
        assert question.tools
        name = re.search(r"<tool_call:opensource>(\w+)<tool_sep:opensource>", question.expected)
        assert name and name[1] in {t["function"]["name"] for t in question.tools}
        pairs = re.findall(
            r"<arg_key:opensource>(\w+)</arg_key:opensource>\n<arg_value:opensource>(.*)</arg_value:opensource>",
            question.expected,
        )
        values = tools.open_values(dict(pairs))
        assert values and all(split.argument_held_out(value) for value in values)
