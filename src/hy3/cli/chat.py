"""`hy3 chat`: a conversation at the terminal, or line by line through a pipe."""

import sys

import click

from hy3.chat.lines import Lines, Pipe, Terminal
from hy3.chat.loop import Chat
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
@prompt_options
@sampling_options
@engine_options
def chat(
    model: str | None, prompting: PromptOptions, sampling: SamplingOptions, engine: EngineOptions
) -> None:
    """Talk with a model; /help lists the commands.

    The KV cache is kept: a turn computes only what is new. Without a terminal, each line of stdin is a
    message.
    """
    opened = open_engine(model, engine)
    session = Chat(opened.conversation(prompting), opened.generator(sampling), tell)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    lines: Lines = Terminal(session.commands.names, say) if interactive else Pipe()
    if interactive:
        tell("/help lists the commands, Ctrl-D leaves.")
    session.run(lines, interactive)


def tell(text: str) -> None:
    """The program's own words, set apart from the model's by their colour on a terminal, and on stderr."""
    click.echo(click.style(text, fg="cyan"), err=True)
