"""`hy3 chat`: a conversation at the terminal, or line by line through a pipe."""

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from hy3.chat.conversation import Conversation
from hy3.chat.lines import Lines, Pipe, Terminal
from hy3.chat.loop import Chat
from hy3.chat.state import KeptChat
from hy3.cli import say
from hy3.cli.engine import open_engine
from hy3.cli.options import (
    EngineOptions,
    PromptOptions,
    SamplingOptions,
    engine_options,
    model_option,
    prompt_options,
    sampling_options,
)


@click.command()
@model_option
@click.option(
    "--session",
    "kept_in",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Go on with the chat in this file, if there is one, and keep it there when you leave.",
)
@prompt_options
@sampling_options
@engine_options
def chat(
    model: str | None,
    kept_in: Path | None,
    prompting: PromptOptions,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Talk with a model; /help lists the commands.

    The KV cache is kept: a turn computes only what is new. Without a terminal, each line of stdin is a
    message.

    --session goes on where the file's chat ended, without computing it again; it takes the same model and
    options. What /save writes has the messages alone: smaller, and good for any model.
    """
    opened = open_engine(model, engine)
    conversation = opened.conversation(prompting)
    kept = None if kept_in is None else KeptChat(kept_in, opened.session, conversation)
    if kept is not None and (told := kept.restore()):
        apply_given(conversation, prompting)
        tell(told)
    session = Chat(conversation, opened.generator(sampling), tell)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    lines: Lines = Terminal(session.commands.names, say) if interactive else Pipe()
    if interactive:
        tell("/help lists the commands, Ctrl-D leaves.")
    try:
        session.run(lines, interactive)
    finally:
        if kept is not None:
            tell(kept.keep())


def apply_given(conversation: Conversation, prompting: PromptOptions) -> None:
    """A chat that is gone on with has a system prompt and a thinking mode of its own; what the user gives now
    takes their place.
    """
    source = click.get_current_context().get_parameter_source
    if source("system") is not ParameterSource.DEFAULT:
        conversation.system = prompting.system
    if source("think") is not ParameterSource.DEFAULT:
        conversation.think = prompting.think


def tell(text: str) -> None:
    """The program's own words, set apart from the model's by their colour on a terminal, and on stderr."""
    click.echo(click.style(text, fg="cyan"), err=True)
