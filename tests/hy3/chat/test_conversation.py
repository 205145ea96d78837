"""Which ids a turn sends to the session: what was sampled stays, what is new is tokenized."""

import json

import pytest

from hy3 import template
from hy3.chat.conversation import Conversation
from hy3.chat.reply import Reply
from hy3.errors import Hy3Error
from hy3.template import ChatTemplate
from tests.cli.fake_hy3core import ASSISTANT, BOS, END_THINK, EOS, MODE, THINK, USER, Tokenizer

TOKENIZER = Tokenizer()


def conversation(source: ChatTemplate | None = None, **options: str) -> Conversation:
    return Conversation(source or template.own(), TOKENIZER, **options)  # type: ignore[arg-type]


def replied(text: str, thinking: bool = False) -> Reply:
    """An answer spelled in bytes, as `encode` would not do it."""
    reply = Reply(TOKENIZER, thinking=thinking)
    for token in TOKENIZER.spell(text):
        reply.push(token)
    reply.finish()
    return reply


def test_first_prompt_is_the_rendered_template() -> None:
    prompt = conversation(system="Be brief.").prompt("hello world")
    text = f"{BOS}Be brief.{MODE}reasoning_effort:no_think{USER}hello world{ASSISTANT}{THINK}{END_THINK}"
    assert prompt.ids == TOKENIZER.encode(text)
    assert not prompt.thinking


def test_a_turn_goes_on_from_the_sampled_ids() -> None:
    chat = conversation()
    first = chat.prompt("q1").ids
    sampled = TOKENIZER.spell("12")
    assert sampled != TOKENIZER.encode("12")
    chat.add("q1", replied("12"))
    second = chat.prompt("q2").ids
    assert second[: len(first) + len(sampled)] == first + sampled
    assert second[len(first) + len(sampled) :] == TOKENIZER.encode(
        f"{EOS}{USER}q2{ASSISTANT}{THINK}{END_THINK}"
    )
    chat.add("q2", replied("hello"))
    third = chat.prompt("q3").ids
    assert third[: len(second)] == second
    assert third[len(second) :][:5] == TOKENIZER.spell("hello")


def test_dropped_reasoning_leaves_the_answers_ids() -> None:
    chat = conversation(think="high")
    first = chat.prompt("q1")
    assert first.thinking
    chat.add("q1", replied(f"12 and 12{END_THINK}hello 12", thinking=True))
    second = chat.prompt("q2").ids
    rest = [TOKENIZER.token_id(END_THINK), *TOKENIZER.spell("hello 12")]
    assert second[: len(first.ids) + len(rest)] == first.ids + rest


def test_kept_reasoning_keeps_its_ids() -> None:
    keeps = ChatTemplate(
        template.own().source.replace("tools or preserved_thinking", "true"), from_file=False
    )
    chat = conversation(keeps, think="high")
    first = chat.prompt("q1").ids
    answer = f"12 and 12{END_THINK}hello 12"
    chat.add("q1", replied(answer, thinking=True))
    sampled = TOKENIZER.spell(answer)
    assert chat.prompt("q2").ids[: len(first) + len(sampled)] == first + sampled


STRIPS = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{% endfor %}[assistant]"
LOOKS_INSIDE = "{% for m in messages %}[{{ m.role }}]{{ m.content.split('|')[-1] }}{% endfor %}[assistant]"
REFUSES = (
    "{% for m in messages %}{{ m.content if m.content | length > 3 else raise_exception('?') }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "answer", "rendered"),
    [
        (STRIPS, " 12 ", "[user]ask1[assistant]12[user]ask2[assistant]"),
        (LOOKS_INSIDE, "no|12", "[user]ask1[assistant]12[user]ask2[assistant]"),
        (REFUSES, "12 12 12", "ask112 12 12ask2"),
    ],
)
def test_a_template_that_changes_an_answer_gets_it_tokenized_again(
    source: str, answer: str, rendered: str
) -> None:
    chat = conversation(ChatTemplate(source, from_file=False))
    chat.add("ask1", replied(answer))
    ids = chat.prompt("ask2").ids
    assert TOKENIZER.decode(ids, special=True) == rendered
    assert ids == TOKENIZER.encode(rendered)


def test_a_template_that_repeats_an_answer_gets_the_ids_twice() -> None:
    chat = conversation(
        ChatTemplate("{% for m in messages %}{{ m.content }}|{{ m.content }};{% endfor %}", False)
    )
    chat.add("q", replied("12"))
    assert chat.prompt("r").ids == [
        *TOKENIZER.encode("q|q;"), *TOKENIZER.spell("12"), *TOKENIZER.encode("|"), *TOKENIZER.spell("12"),
        *TOKENIZER.encode(";r|r;"),
    ]  # fmt: skip


def test_marks_in_the_users_text_do_no_harm() -> None:
    chat = conversation()
    chat.add("\ue0000\ue001", replied("12 \ue0000\ue001"))
    ids = chat.prompt("\ue0000\ue001").ids
    assert TOKENIZER.decode(ids, special=True) == chat._render(
        [*chat.turns, *conversation_turn("\ue0000\ue001")]
    )


def conversation_turn(text: str) -> list:
    chat = conversation()
    chat.add(text, replied("x"))
    return chat.turns[:1]


def test_an_answer_stopped_in_thought_is_kept_as_far_as_it_went() -> None:
    chat = conversation(think="high")
    chat.add("q1", replied("hmm 12", thinking=True))
    assert chat.messages[-1] == {"role": "assistant", "content": "", "reasoning_content": "hmm 12"}
    assert TOKENIZER.decode(chat.prompt("q2").ids, special=True).endswith(
        f"{USER}q1{ASSISTANT}{THINK}{END_THINK}{EOS}{USER}q2{ASSISTANT}{THINK}"
    )


def test_bos_is_added_where_the_file_wants_it_and_the_template_forgets_it() -> None:
    without = ChatTemplate("{{ messages[-1].content }}", from_file=False)
    assert Conversation(without, TOKENIZER, add_bos=True).prompt("q").ids == [0, *TOKENIZER.encode("q")]
    assert Conversation(without, TOKENIZER, add_bos=False).prompt("q").ids == TOKENIZER.encode("q")
    assert Conversation(template.own(), TOKENIZER, add_bos=True).prompt("q").ids[:2] != [0, 0]


def test_save_and_load_give_the_same_next_prompt() -> None:
    chat = conversation(system="Be brief.", think="low")
    chat.add("q1", replied(f"12{END_THINK}hello", thinking=True))
    again = conversation()
    again.take_json(chat.to_json(), "chat.json")
    assert (again.system, again.think, again.messages) == (chat.system, chat.think, chat.messages)
    assert again.prompt("q2") == chat.prompt("q2")
    assert again.prompt("q2").ids != TOKENIZER.encode(TOKENIZER.decode(again.prompt("q2").ids, special=True))


@pytest.mark.parametrize("ids", [[3, 4], [10**6], [-1]])
def test_ids_of_another_vocabulary_are_dropped(ids: list[int]) -> None:
    chat = conversation()
    chat.add("q1", replied("12"))
    saved = json.loads(chat.to_json())
    saved["turns"][1]["ids"]["content"] = ids
    chat.take_json(json.dumps(saved), "chat.json")
    assert chat.turns[1].ids == {}
    assert chat.turns[1].message["content"] == "12"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "chat.json is not a saved conversation: Expecting"),
        ("[" * 100_000, "chat.json is not a saved conversation: "),
        (
            "[]",
            "chat.json is not a saved conversation: its format is not hy3-chat-1. Give a file that /save",
        ),
        (
            '{"format": "hy3-chat-1", "turns": [], "think": "a lot"}',
            "chat.json has a wrong system, think or turns entry",
        ),
        ('{"format": "hy3-chat-1", "turns": [3], "think": "low"}', "chat.json has a wrong turn number 1"),
        (
            '{"format": "hy3-chat-1", "think": "low", "turns": [{"message": {"role": "user", "content": "x"},'
            ' "ids": {"content": ["1"]}}]}',
            "chat.json has a wrong turn number 1",
        ),
    ],
)
def test_a_broken_save_is_refused_and_changes_nothing(text: str, message: str) -> None:
    chat = conversation(system="Be brief.")
    chat.add("q1", replied("12"))
    before = chat.to_json()
    with pytest.raises(Hy3Error) as failure:
        chat.take_json(text, "chat.json")
    assert str(failure.value).startswith(message)
    assert chat.to_json() == before
