"""Turns and commands of a chat, on answers written down beforehand."""

import sys
from pathlib import Path

import pytest

from hy3 import template
from hy3.chat.commands import Exit
from hy3.chat.conversation import Conversation
from hy3.chat.generate import Generator
from hy3.chat.loop import Chat
from tests.cli import fake_hy3core as fake

TOKENIZER = fake.Tokenizer()


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hy3core", fake)


class Script:
    """Lines to type; an exception is raised where it stands. Ends with Exit."""

    def __init__(self, *lines: str | BaseException) -> None:
        self._lines = list(lines)

    def read(self) -> str:
        line = self._lines.pop(0) if self._lines else Exit()
        if isinstance(line, BaseException):
            raise line
        return line


class Setup:
    def __init__(self, *answers: str | list, ctx: int = 4096, think: str = "off") -> None:
        script = [TOKENIZER.spell(answer) if isinstance(answer, str) else answer for answer in answers]
        self.session = fake.Session(ctx=ctx, script=script)
        self.told: list[str] = []
        self.conversation = Conversation(template.own(), TOKENIZER, think=think)  # type: ignore[arg-type]
        generator = Generator(self.session, TOKENIZER, fake.Sampling(), ctx, model_ctx=1024)  # type: ignore
        self.chat = Chat(self.conversation, generator, self.told.append)

    def type(self, *lines: str | BaseException, interactive: bool = True) -> "Setup":
        self.chat.run(Script(*lines), interactive)
        return self


def spelled(text: str) -> list[int]:
    return TOKENIZER.encode(text)


def test_each_turn_computes_only_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    setup = Setup(f"12{fake.EOS}", f"hello{fake.EOS}", f"x{fake.EOS}").type("q1", "q2", "q3")
    assert capsys.readouterr().out == "12\nhello\nx\n"
    # The end token was sampled and never computed: it is the first thing a turn adds.
    next_turn = f"{fake.EOS}{fake.USER}%s{fake.ASSISTANT}{fake.THINK}{fake.END_THINK}"
    assert setup.session.prefilled[1:] == [spelled(next_turn % "q2"), spelled(next_turn % "q3")]


def test_dropped_reasoning_costs_the_answer_but_no_more() -> None:
    setup = Setup(f"hmm{fake.END_THINK}12{fake.EOS}", f"{fake.END_THINK}x{fake.EOS}", think="high").type(
        "q1", "q2"
    )
    new = TOKENIZER.encode(fake.END_THINK) + TOKENIZER.spell("12")
    assert setup.session.prefilled[1] == new + spelled(f"{fake.EOS}{fake.USER}q2{fake.ASSISTANT}{fake.THINK}")


def test_ctrl_c_stops_the_answer_and_keeps_it(capsys: pytest.CaptureFixture[str]) -> None:
    setup = Setup([*TOKENIZER.spell("12"), KeyboardInterrupt()], f"x{fake.EOS}").type("q1", "q2")
    assert capsys.readouterr().out == "12\nx\n"
    assert setup.told == ["The answer was stopped; what there is of it stays in the conversation."]
    assert setup.conversation.messages[1] == {"role": "assistant", "content": "12"}
    assert setup.session.prefilled[1][0] == TOKENIZER.token_id(fake.EOS)


def test_ctrl_c_in_an_answer_through_a_pipe_ends_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    setup = Setup([*TOKENIZER.spell("12"), KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        setup.type("q1", "q2", interactive=False)
    assert capsys.readouterr().out == "12\n"


def test_ctrl_c_before_the_answer_forgets_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup()

    def interrupted(_question: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(setup.conversation, "prompt", interrupted)
    setup.type("q1")
    assert (setup.told, setup.conversation.messages) == (["Stopped."], [])


def test_ctrl_c_inside_a_character(capsys: pytest.CaptureFixture[str]) -> None:
    setup = Setup([*TOKENIZER.spell("a好")[:-1], KeyboardInterrupt()], f"x{fake.EOS}").type("q1", "q2")
    assert setup.conversation.messages[1]["content"] == "a"
    assert "�" not in capsys.readouterr().out
    assert setup.session.prefilled[1][0] == TOKENIZER.token_id(fake.EOS)


def test_ctrl_c_at_the_prompt_of_a_terminal_only_says_how_to_leave() -> None:
    setup = Setup(f"x{fake.EOS}").type(KeyboardInterrupt(), "q1")
    assert setup.told == ["Ctrl-D or /exit leaves."]
    assert len(setup.conversation.messages) == 2


def test_ctrl_c_between_the_lines_of_a_pipe_ends_the_program() -> None:
    with pytest.raises(KeyboardInterrupt):
        Setup().type(KeyboardInterrupt(), interactive=False)


def test_an_answer_that_fills_the_context_says_so_and_then_asks_for_a_reset() -> None:
    first = spelled(
        f"{fake.BOS}{fake.MODE}reasoning_effort:no_think{fake.USER}q1{fake.ASSISTANT}{fake.THINK}{fake.END_THINK}"
    )
    ctx = len(first) + 3
    setup = Setup("abcdef", f"ok{fake.EOS}", ctx=ctx).type("q1", "q2", "/reset", "q3")
    assert setup.told == [
        f"The context of {ctx} tokens is full and the answer is cut off. "
        "/reset begins a new conversation; hy3 chat -c N has a larger context.",
        f"error: The conversation would have {ctx + 7} tokens, and the context of {ctx} is full. "
        "/reset begins a new one, /save FILE keeps this one; hy3 chat -c N has a larger context.",
        "The conversation is forgotten.",
    ]
    assert [message["content"] for message in setup.conversation.messages] == ["q3", "ok"]


def test_a_first_message_that_is_too_long_is_to_be_shortened() -> None:
    setup = Setup(ctx=20).type("q" * 100)
    assert setup.told[0].startswith(
        "error: The prompt has 131 tokens, and a context of 20 has no room for it and an answer"
    )
    assert "Shorten the prompt, or use -c 512 or more (the model was trained for 1024)." in setup.told[0]
    assert setup.conversation.messages == []


def test_an_engine_error_is_told_and_the_chat_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    setup = Setup([fake.Error("The weights are NaN. Convert again.")], f"x{fake.EOS}").type("q1", "q2")
    assert setup.told == ["error: The weights are NaN. Convert again."]
    assert [message["content"] for message in setup.conversation.messages] == ["q2", "x"]


def test_thinking_goes_to_a_pipe_between_tags(capsys: pytest.CaptureFixture[str]) -> None:
    Setup(f"hmm{fake.END_THINK}12{fake.EOS}", think="low").type("q1")
    assert capsys.readouterr().out == "<think>hmm</think>12\n"


def test_empty_lines_are_not_messages() -> None:
    assert Setup().type("", "   ").session.prefilled == []


def test_two_slashes_send_one() -> None:
    setup = Setup(f"x{fake.EOS}").type("//etc is a directory")
    assert setup.conversation.messages[0]["content"] == "/etc is a directory"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "/frobnicate",
            "error: There is no command /frobnicate. "
            "/help lists them; a message that begins with / is written //.",
        ),
        ("/think", "error: /think is not a mode. There are: off, low, high."),
        ("/think hard", "error: /think hard is not a mode. There are: off, low, high."),
        ("/save", "error: /save needs a file. Write /save FILE."),
        ("/load", "error: /load needs a file. Write /load FILE."),
        ("/load /nowhere/x", "error: Cannot read /nowhere/x: No such file or directory. Check the path."),
        ("/save /nowhere/x", "error: Cannot write /nowhere/x: No such file or directory. Give another file."),
        (
            "/load /proc/self/exe",
            "error: /proc/self/exe is not a saved conversation. Give a file that /save wrote.",
        ),
        ("/stats", "context: 0 of 4096 tokens"),
    ],
)
def test_commands_that_fail_or_only_answer(line: str, told: str) -> None:
    assert Setup().type(line).told == [told]


def test_commands_that_change_the_conversation() -> None:
    setup = Setup().type("/system Be brief.", "/think low")
    assert (setup.conversation.system, setup.conversation.think) == ("Be brief.", "low")
    assert setup.type("/system").conversation.system is None
    assert setup.told == ["The system prompt is set.", "Thinking is low.", "The system prompt is removed."]


def test_help_names_every_command() -> None:
    setup = Setup().type("/help")
    assert [name for name in setup.chat.commands.names if name not in setup.told[0]] == []


def test_stats_after_a_turn() -> None:
    setup = Setup(f"12{fake.EOS}").type("q1", "/stats")
    assert setup.told == [
        "prompt 33 tokens, 66.0 tok/s; answer 2 tokens, 8.0 tok/s\ncontext: 35 of 4096 tokens"
    ]


def test_a_saved_conversation_goes_on_in_another_chat(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    first = Setup(f"12{fake.EOS}", f"x{fake.EOS}").type("q1", f"/save {file}", "q2")
    again = Setup(f"x{fake.EOS}").type(f"/load {file}", "q2")
    assert first.told == [f"Saved 2 messages to {file}."]
    assert again.told == [f"Loaded 2 messages from {file}."]
    assert again.session.tokens == first.session.tokens
