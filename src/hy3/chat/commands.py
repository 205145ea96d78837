"""The slash commands of a chat. Each is a method of `Commands` that returns what to tell the user."""

from collections.abc import Callable
from pathlib import Path

from hy3.chat.conversation import EFFORT, Conversation
from hy3.chat.generate import Generator, speeds
from hy3.errors import Hy3Error

HELP = """\
/help                this list
/reset               forget the conversation; the system prompt and the thinking mode stay
/system TEXT         set the system prompt; without TEXT, remove it
/think off|low|high  how much the model may think
/stats               speeds of the last answer, and how full the context is
/save FILE           write the conversation to a file
/load FILE           go on with a saved one
/exit                leave; so does Ctrl-D
Ctrl-C stops an answer and keeps what was written. A line that ends in \\ goes on in the next one (on a
terminal Alt-Enter does the same). To send a message that begins with /, begin it with //."""


class Exit(Exception):
    """The user wants to leave."""


class Commands:
    def __init__(self, conversation: Conversation, generator: Generator) -> None:
        self._conversation = conversation
        self._generator = generator
        self._table: dict[str, Callable[[str], str]] = {
            "help": self.help,
            "reset": self.reset,
            "system": self.system,
            "think": self.think,
            "stats": self.stats,
            "save": self.save,
            "load": self.load,
            "exit": self.exit,
        }

    @property
    def names(self) -> list[str]:
        return [f"/{name}" for name in self._table]

    def execute(self, line: str) -> str:
        """Runs `/name argument`. Hy3Error for an unknown command or a wrong argument; Exit for /exit."""
        name, _, argument = line[1:].partition(" ")
        if name not in self._table:
            raise Hy3Error(
                f"There is no command /{name}", "/help lists them; a message that begins with / is written //"
            )
        return self._table[name](argument.strip())

    def help(self, _argument: str) -> str:
        return HELP

    def reset(self, _argument: str) -> str:
        self._conversation.reset()
        return "The conversation is forgotten."

    def system(self, argument: str) -> str:
        self._conversation.system = argument or None
        return "The system prompt is set." if argument else "The system prompt is removed."

    def think(self, argument: str) -> str:
        if argument not in EFFORT:
            raise Hy3Error(
                f"/think {argument}".rstrip() + " is not a mode", f"There are: {', '.join(EFFORT)}"
            )
        self._conversation.think = argument
        return f"Thinking is {argument}."

    def stats(self, _argument: str) -> str:
        session = self._generator.session
        used = f"context: {session.position} of {self._generator.ctx} tokens"
        return f"{speeds(session.stats)}\n{used}" if session.position else used

    def save(self, argument: str) -> str:
        path = file_argument(argument, "/save")
        try:
            path.write_text(self._conversation.to_json(), encoding="utf-8")
        except OSError as error:
            raise Hy3Error(f"Cannot write {path}: {error.strerror}", "Give another file") from None
        return f"Saved {len(self._conversation.turns)} messages to {path}."

    def load(self, argument: str) -> str:
        path = file_argument(argument, "/load")
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise Hy3Error(f"Cannot read {path}: {error.strerror}", "Check the path") from None
        except UnicodeDecodeError:
            raise Hy3Error(f"{path} is not a saved conversation", "Give a file that /save wrote") from None
        self._conversation.take_json(text, str(path))
        return f"Loaded {len(self._conversation.turns)} messages from {path}."

    def exit(self, _argument: str) -> str:
        raise Exit


def file_argument(argument: str, command: str) -> Path:
    if not argument:
        raise Hy3Error(f"{command} needs a file", f"Write {command} FILE")
    return Path(argument).expanduser()
