"""Renders a chat template of a model file, for which nobody has vouched, in a process of its own.

Jinja2's sandbox keeps a template away from Python's insides; it does not bound what a template costs. A
doubling list, a comparison of two such lists, a width in a format string: each is a line of template that
would hold a thread for hours or fill the memory, inside C code that nothing in the same process can
interrupt. A process can be limited (RLIMIT_AS, a timer) and killed, so templates from files run in one. It is
started once and kept.

This file is run by path as that process (`python -I sandbox.py`), so it imports Jinja2 and the standard
library only. Protocol: one line of JSON in, {"source", "args"}, one line out, {"text"} or {"error", "line"};
the first line out, an empty object, says that the process is ready.
"""

import json
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from types import FrameType, TracebackType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

SECONDS = 2.0  # for one rendering
MAX_OUTPUT = 16 << 20  # characters; the longest context, 262,144 tokens, is about 1.5 million of them
MAX_SOURCE = 1 << 20  # characters; published templates have 20,000 at most
MAX_MEMORY = 512 << 20  # bytes of address space, of which Python and Jinja2 take about 50 million


class OutOfTime(BaseException):
    """Not an Exception: filters such as `int` catch those."""


class RenderError(Exception):
    """What is wrong with the template or its arguments, and on which line of it, where that is known."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        self.reason, self.line = reason, line
        super().__init__(reason)


class Generation(Extension):
    """`{% generation %}` marks what `transformers` trains on; to render, it is only a scope."""

    tags = {"generation"}  # noqa: RUF012  (as the base class declares it)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class PublicNamespace(Namespace):
    """`namespace()` without underscore names, which could reach what the sandbox hides."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(
                f"a namespace cannot hold {name!r}: it begins with an underscore"
            )
        super().__setitem__(name, value)


def raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As `transformers` has it: no escapes for HTML, and letters stay letters."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def environment() -> ImmutableSandboxedEnvironment:
    """The environment in which `transformers` renders chat templates, to the same text.

    Not optimized: Jinja2 would compute constant expressions, bombs among them, while it compiles and once
    more later.
    """
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        extensions=[Generation, "jinja2.ext.loopcontrols"],
    )
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, namespace=PublicNamespace)
    return env


@lru_cache(maxsize=8)
def compiled(source: str) -> jinja2.Template:
    return environment().from_string(source)


def render(source: str, args: Mapping[str, Any]) -> str:
    """The text, or RenderError. Bounded in output here, in time and memory only by `serve`."""
    if len(source) > MAX_SOURCE:
        raise RenderError(f"it is {len(source)} characters long, and {MAX_SOURCE} are allowed")
    pieces: list[str] = []
    length = 0
    try:
        for piece in compiled(source).generate(**args):
            length += len(piece)
            if length > MAX_OUTPUT:
                raise RenderError(f"its text is longer than {MAX_OUTPUT} characters")
            pieces.append(piece)
    except jinja2.TemplateSyntaxError as error:
        raise RenderError(str(error.message), error.lineno) from None
    except MemoryError as error:
        raise RenderError("it needs too much memory", template_line(error.__traceback__)) from None
    except RecursionError as error:
        raise RenderError("it is nested too deeply", template_line(error.__traceback__)) from None
    except OutOfTime as error:
        raise RenderError(
            f"it took longer than {SECONDS:g} seconds", template_line(error.__traceback__)
        ) from None
    except RenderError:
        raise
    except jinja2.TemplateError as error:
        raise RenderError(str(error.message or error), template_line(error.__traceback__)) from None
    except Exception as error:
        # Anything at all can go wrong in a template's expressions: 1/0, none.x, a missing key.
        raise RenderError(f"{type(error).__name__}: {error}", template_line(error.__traceback__)) from None
    return "".join(pieces)


def template_line(trace: TracebackType | None) -> int | None:
    """The innermost line of the template in a traceback, most of which Jinja2 has rewritten to its lines."""
    line = None
    while trace is not None:
        module = trace.tb_frame.f_globals
        if "__jinja_exception__" in module:
            line = trace.tb_lineno
        elif isinstance(template := module.get("__jinja_template__"), jinja2.Template):
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def out_of_time(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTime


def serve() -> None:
    """The process: answers requests until its input ends, which it does when the parent is gone."""
    signal.signal(signal.SIGALRM, out_of_time)
    with suppress(
        ValueError, OSError
    ):  # macOS has no such limit; the clock bounds memory there, more loosely
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    compiled("")  # imports the rest of Jinja2 before the clock runs
    reply({})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                answer: dict[str, Any] = {"text": render(request["source"], request["args"])}
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except RenderError as error:
            answer = {"error": error.reason, "line": error.line}
        except OutOfTime:  # between two statements of ours, once the rendering was over
            answer = {"error": f"it took longer than {SECONDS:g} seconds", "line": None}
        reply(answer)


def reply(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()
