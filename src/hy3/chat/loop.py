"""The interactive loop: read a message, run a command or a turn, until the user leaves."""

from collections.abc import Callable

from hy3.chat.commands import Commands, Exit
from hy3.chat.conversation import Conversation
from hy3.chat.display import Display
from hy3.chat.generate import Generator, PromptTooLong
from hy3.chat.lines import Lines
from hy3.errors import Hy3Error

KEPT = "The answer was stopped; what there is of it stays in the conversation."


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of an answer, whose beginning is in the conversation now."""


class Chat:
    """`tell` gets everything that is not the model's text: answers of commands, warnings, errors."""

    def __init__(self, conversation: Conversation, generator: Generator, tell: Callable[[str], None]) -> None:
        self.commands = Commands(conversation, generator)
        self._conversation = conversation
        self._generator = generator
        self._tell = tell

    def run(self, lines: Lines, interactive: bool) -> None:
        """Until Exit. Ctrl-C only stops what is going on at a terminal, and ends the program in a pipe."""
        import hy3core

        while True:
            stopped = "Ctrl-D or /exit leaves."
            try:
                line = lines.read()
                stopped = "Stopped."
                self.message(line)
            except Exit:
                return
            except KeyboardInterrupt as interrupt:
                if not interactive:
                    raise
                self._tell(KEPT if isinstance(interrupt, Interrupted) else stopped)
            except (Hy3Error, hy3core.Error) as error:
                self._tell(f"error: {error}")

    def message(self, line: str) -> None:
        if not line.strip():
            return
        if line.startswith("/") and not line.startswith("//"):
            self._tell(self.commands.execute(line))
        else:
            self.turn(line.removeprefix("/") if line.startswith("//") else line)

    def turn(self, question: str) -> None:
        """One question and its answer, streamed to stdout. Ctrl-C ends the answer and keeps what there is."""
        asked = self._conversation.prompt(question)
        try:
            self._generator.room(asked.ids)
        except PromptTooLong as error:
            raise full(self._conversation, error) from None
        reply = self._generator.new_reply(asked.thinking)
        display = Display(asked.thinking)
        try:
            for chunk in self._generator.stream(asked.ids, reply):
                display.show(chunk)
        except KeyboardInterrupt:
            for chunk in reply.finish():
                display.show(chunk)
            self._conversation.add(question, reply)
            raise Interrupted from None
        finally:
            display.end()
        self._conversation.add(question, reply)
        if reply.end == "context":
            self._tell(
                f"The context of {self._generator.ctx} tokens is full and the answer is cut off. "
                "/reset begins a new conversation; hy3 chat -c N has a larger context."
            )


def full(conversation: Conversation, error: PromptTooLong) -> Hy3Error:
    """For a first message that is too long by itself the advice is to shorten it, later on to begin anew."""
    if not conversation.turns:
        return error
    return Hy3Error(
        f"The conversation would have {error.length} tokens, and the context of {error.ctx} is full",
        "/reset begins a new one, /save FILE keeps this one; hy3 chat -c N has a larger context",
    )
