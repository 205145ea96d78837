"""Tool calls as a model writes them, parsed while they stream.

    <tool_calls>
    <tool_call>NAME<tool_sep>
    <arg_key>K</arg_key>
    <arg_value>V</arg_value>
    ...
    </tool_call>
    </tool_calls>

Every tag may carry `:opensource` (Hy3) or not (Hy3-preview, Hy-MT2). Text goes in as it comes; what is
certain comes out: text, the name of a call, fragments of its arguments. The fragments of a call always make
up one JSON object, also when the model breaks the format or is cut off, and nothing comes between them. What
cannot be read as a call is returned as text, never dropped; text inside a call follows the call. How the
text was cut into chunks changes nothing in what comes out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from hy3.chat.arguments import is_string, quoted, value_of
from hy3.chat.reply import unfinished

NAMES = ("tool_calls", "tool_call", "tool_sep", "arg_key", "arg_value")
TAG = re.compile(r"<(/?(?:" + "|".join(NAMES) + r"))(?::opensource)?>")
TAGS = [f"<{slash}{name}{suffix}>" for name in NAMES for slash in ("", "/") for suffix in ("", ":opensource")]
FUNCTION = re.compile(r"[^\s<>{}\"']{1,256}")
NO_PARAMETERS: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class CallStart:
    index: int
    name: str


@dataclass(frozen=True)
class Arguments:
    index: int
    fragment: str  # of a JSON object


Event = Text | CallStart | Arguments


class State(Enum):
    OUTSIDE = auto()  # in text
    BLOCK = auto()  # before a call
    NAME = auto()
    CLOSED = auto()  # after NAME</tool_call>: the end of the call, or arguments follow all the same
    CALL = auto()  # before an argument
    KEY = auto()
    BETWEEN = auto()  # after a key
    VALUE = auto()
    DOUBT = auto()  # after </tool_call> inside a value: its end, or part of it


class ToolCallParser:
    """`tools`: the JSON schema of each function's parameters, by name. A function that is not among them can
    be called all the same: whoever runs the calls knows best what to answer."""

    def __init__(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        self._tools = tools
        self._state = State.OUTSIDE
        self._in_block = False  # a call of this <tool_calls> was read
        self._held = ""  # the beginning of a tag, perhaps
        self._raw = ""  # since the last certain thing: text, should this not be what it looks like
        self._name = self._key = self._value = ""
        self._calls = 0
        self._written = 0  # arguments of this call
        self._aside: str | None = None  # while a call is open: the text found in it
        self._events: list[Event] = []

    def push(self, text: str) -> list[Event]:
        self._held += text
        at = 0
        for tag in TAG.finditer(self._held):
            self._take_text(self._held[at : tag.start()])
            self._take_tag(tag.group(1), tag.group(0))
            at = tag.end()
        self._held = self._held[at:]
        safe = len(self._held) - unfinished(self._held, TAGS)
        self._take_text(self._held[:safe])
        self._held = self._held[safe:]
        return self._flush()

    def finish(self) -> list[Event]:
        """The rest, when nothing follows."""
        self._take_text(self._held)
        self._held = ""
        if self._state is State.NAME and self._name.strip() in self._tools:
            self._start_call()
            self._end_call()
        elif self._state in (State.BLOCK, State.NAME):
            self._give_up("")
        elif self._state is not State.OUTSIDE:
            self._leave_argument()
            self._end_call()
        self._state = State.OUTSIDE
        return self._flush()

    def _take_text(self, text: str) -> None:
        if not text:
            return
        if self._state is State.DOUBT and text.strip():
            self._back_to_value()
        if self._state is State.CLOSED and text.strip():
            self._end_call()
        if self._state is State.OUTSIDE:
            self._say(text)
        elif self._state is State.VALUE:
            self._extend_value(text)
        elif self._state in (State.BLOCK, State.CALL):
            self._pass_between_tags(text)
        else:
            self._raw += text
            if self._state is State.NAME:
                self._name += text
                if self._name.strip() and not FUNCTION.fullmatch(self._name.strip()):
                    self._give_up("")
            elif self._state is State.KEY:
                self._key += text
            elif self._state is State.BETWEEN:
                self._value += text

    def _pass_between_tags(self, text: str) -> None:
        """White space between tags is dropped. Anything else is text; a block without calls is then none."""
        if self._state is State.BLOCK and text.strip():
            self._give_up(text)
            return
        pending = self._raw + text
        words = pending.rstrip() if self._state is State.CALL else ""
        if words:
            self._say(words)
        self._raw = pending[len(words) :]

    def _take_tag(self, tag: str, spelled: str) -> None:
        """Each state's tags; one that ends more than its own state is taken again by the next."""
        handlers = {
            State.OUTSIDE: self._tag_outside,
            State.BLOCK: self._tag_in_block,
            State.NAME: self._tag_in_name,
            State.CLOSED: self._tag_after_close,
            State.CALL: self._tag_in_call,
            State.KEY: self._tag_in_key,
            State.BETWEEN: self._tag_between,
            State.VALUE: self._tag_in_value,
            State.DOUBT: self._tag_in_doubt,
        }
        handlers[self._state](tag, spelled)

    def _tag_outside(self, tag: str, spelled: str) -> None:
        if tag == "tool_calls":
            self._in_block = False
            self._begin(State.BLOCK, spelled)
        elif tag == "tool_call":
            self._begin_name(spelled)
        elif tag == "/tool_calls" and self._in_block:
            self._in_block = False
        else:
            self._say(spelled)

    def _tag_in_block(self, tag: str, spelled: str) -> None:
        if tag == "tool_call":
            self._begin_name(self._raw + spelled)
        elif tag == "/tool_calls" and self._in_block:
            self._in_block = False
            self._begin(State.OUTSIDE, "")
        elif tag == "tool_calls":
            self._give_up("")
            self._take_tag(tag, spelled)
        else:
            self._give_up(spelled)

    def _tag_in_name(self, tag: str, spelled: str) -> None:
        known = ("tool_sep", "/arg_value", "arg_key", "/tool_call", "tool_call", "/tool_calls")
        if tag not in known:
            self._give_up(spelled)
        elif not self._name.strip():
            self._give_up("" if tag == "tool_call" else spelled)
            if tag == "tool_call":
                self._take_tag(tag, spelled)
        else:
            self._start_call()
            if tag == "/tool_call":
                self._begin(State.CLOSED, "")
            elif tag not in ("tool_sep", "/arg_value"):
                self._take_tag(tag, spelled)

    def _tag_after_close(self, tag: str, spelled: str) -> None:
        if tag == "arg_key":
            self._begin(State.CALL, "")
        else:
            self._end_call()
        self._take_tag(tag, spelled)

    def _tag_in_call(self, tag: str, spelled: str) -> None:
        if tag == "arg_key":
            self._key = ""
            self._begin(State.KEY, spelled)
        elif tag == "/tool_call":
            self._end_call()
        elif tag in ("tool_call", "/tool_calls"):
            self._end_call()
            self._take_tag(tag, spelled)
        else:
            self._say(spelled)
            self._raw = ""

    def _tag_in_key(self, tag: str, spelled: str) -> None:
        self._raw += spelled
        if tag == "/arg_key":
            self._value = ""
            self._state = State.BETWEEN
        elif tag == "arg_value":
            self._begin_value()
        else:
            self._raw = self._raw.removesuffix(spelled)
            self._leave_argument()
            self._take_tag(tag, spelled)

    def _tag_between(self, tag: str, spelled: str) -> None:
        if tag == "arg_value":
            if self._value.strip():
                self._say(self._value.strip())
            self._begin_value()
        elif tag == "/arg_value":
            self._write_argument(value_of(self._parameters, self._key.strip(), self._value.strip()))
        elif tag in ("arg_key", "/tool_call", "tool_call", "/tool_calls"):
            self._leave_argument()
            self._take_tag(tag, spelled)
        else:
            self._raw += spelled
            self._value += spelled

    def _tag_in_value(self, tag: str, spelled: str) -> None:
        if tag == "/arg_value":
            self._end_value()
        elif tag == "/tool_call":
            self._begin(State.DOUBT, spelled)
        else:
            self._extend_value(spelled)

    def _tag_in_doubt(self, tag: str, spelled: str) -> None:
        if tag in ("tool_call", "/tool_calls"):
            self._end_value()
            self._end_call()
        else:
            self._back_to_value()
        self._take_tag(tag, spelled)

    def _begin(self, state: State, raw: str) -> None:
        self._state, self._raw = state, raw

    def _begin_name(self, raw: str) -> None:
        self._name = ""
        self._begin(State.NAME, raw)

    def _give_up(self, text: str) -> None:
        """What looked like a call is text."""
        if self._raw.strip() or text.strip():
            self._say(self._raw + text)
        self._begin(State.OUTSIDE, "")

    @property
    def _parameters(self) -> Mapping[str, Any]:
        return self._tools.get(self._name.strip(), NO_PARAMETERS)

    def _start_call(self) -> None:
        self._events.append(CallStart(self._calls, self._name.strip()))
        self._written = 0
        self._aside = ""
        self._in_block = True
        self._begin(State.CALL, "")

    def _end_call(self) -> None:
        self._write("}" if self._written else "{}")
        self._calls += 1
        aside, self._aside = self._aside, None
        if aside:
            self._say(aside)
        self._begin(State.BLOCK, self._raw if self._state is State.CLOSED else "")

    def _begin_value(self) -> None:
        self._value = ""
        self._begin(State.VALUE, "")
        if self._streams:
            self._write(self._label() + '"')

    @property
    def _streams(self) -> bool:
        return is_string(self._parameters, self._key.strip())

    def _extend_value(self, text: str) -> None:
        if self._streams:
            self._write(quoted(text)[1:-1])
        else:
            self._value += text

    def _end_value(self) -> None:
        if self._streams:
            self._write('"')
            self._written += 1
            self._begin(State.CALL, "")
        else:
            self._write_argument(value_of(self._parameters, self._key.strip(), self._value))

    def _back_to_value(self) -> None:
        raw = self._raw
        self._begin(State.VALUE, "")
        self._extend_value(raw)

    def _leave_argument(self) -> None:
        """The call or the text ends here: what there is of an argument is kept."""
        if self._state in (State.VALUE, State.DOUBT):
            self._end_value()
        elif self._state is State.BETWEEN and self._value.strip():
            self._write_argument(value_of(self._parameters, self._key.strip(), self._value.strip()))
        elif self._state in (State.KEY, State.BETWEEN):
            self._say(self._raw)
            self._begin(State.CALL, "")

    def _write_argument(self, value: str) -> None:
        self._write(self._label() + value)
        self._written += 1
        self._begin(State.CALL, "")

    def _label(self) -> str:
        return ("{" if self._written == 0 else ", ") + quoted(self._key.strip()) + ": "

    def _say(self, text: str) -> None:
        """Text comes out at once, or after the call that it was found in."""
        if self._aside is None:
            self._events.append(Text(text))
        else:
            self._aside += text

    def _write(self, fragment: str) -> None:
        self._events.append(Arguments(self._calls, fragment))

    def _flush(self) -> list[Event]:
        events, self._events = self._events, []
        return events
