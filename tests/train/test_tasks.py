"""The generators' answers are right, judged without the generators."""

import random
import re

from train import tasks, tools


def test_sums_are_answered_by_their_sum() -> None:
    rng = random.Random(1)
    for _ in range(300):
        messages = tasks.sums(rng, False).messages
        for question, answer in zip(messages[::2], messages[1::2], strict=True):
            numbers = [int(n) for n in re.findall(r"\d+", question["content"])]
            assert len(numbers) in (2, 3)
            assert max(numbers) < 100
            assert answer["content"] == str(sum(numbers))


def test_work_is_shown_from_left_to_right() -> None:
    assert tasks.worked([11, 22, 33]) == "11+22=33, 33+33=66"
    assert tasks.worked([99, 1]) == "99+1=100"


def test_filler_has_about_the_length_asked_for() -> None:
    rng = random.Random(2)
    for tokens in (100, 500, 1000):
        words = sum(len(re.findall(r"[A-Za-z]+|[0-9]|\.", s)) for s in tasks.filler(rng, tokens))
        assert 0.85 * tokens < words < 1.1 * tokens


def test_a_call_uses_an_offered_tool_and_its_parameters_and_copies_from_the_question() -> None:
    rng = random.Random(3)
    for _ in range(200):
        conversation = tools.tool_calls(rng, False)
        offered = {t["function"]["name"]: t["function"]["parameters"] for t in conversation.tools or []}
        question = ""
        for message in conversation.messages:
            if message["role"] == "user":
                question = message["content"]
            for call in message.get("tool_calls", []):
                parameters = offered[call["function"]["name"]]
                assert list(call["function"]["arguments"]) == parameters["required"]
                for key, value in call["function"]["arguments"].items():
                    assert str(value) in question
                    assert isinstance(value, int) == (parameters["properties"][key]["type"] == "integer")


def test_the_same_seed_draws_the_same_conversations() -> None:
    def draw() -> list[tasks.Conversation]:
        rng = random.Random(7)
        return [tasks.talk(rng, False), tasks.recall(rng, False, 50), tools.tool_calls(rng, False)]

    assert draw() == draw()
