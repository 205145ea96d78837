"""`hy3 run`: one prompt, one answer."""

import sys
from pathlib import Path

import click

from hy3.chat.conversation import Conversation
from hy3.chat.display import Display
from hy3.chat.generate import Generator, speeds
from hy3.chat.reply import Reply, opens_thinking
from hy3.cli import say
from hy3.cli.engine import open_engine
from hy3.cli.options import (
    EngineOptions,
    PromptOptions,
    SamplingOptions,
    Whole,
    engine_options,
    model_option,
    prompt_options,
    sampling_options,
)
from hy3.errors import Hy3Error


@click.command()
@model_option
@click.option("-p", "--prompt", metavar="TEXT", help="The prompt. Left out, with no -f: stdin.")
@click.option("-f", "--file", metavar="FILE", help="Read the prompt from a file; `-` is stdin.")
@click.option("--raw", is_flag=True, help="Give the model the prompt as it is, without the chat template.")
@click.option(
    "--convo",
    metavar="FILE",
    help="Ask each line of a file, as the turns of one conversation; `-` is stdin.",
)
@click.option(
    "--pos-jump",
    type=Whole(0, (1 << 24) - 1, "Give a number of positions, such as 65536 or 64k", units=True),
    default=0,
    metavar="N",
    help="For probing: the answer's positions begin N after the prompt's end, with nothing in between.",
)
@prompt_options
@sampling_options
@engine_options
def run(
    model: str | None,
    prompt: str | None,
    file: str | None,
    raw: bool,
    convo: str | None,
    pos_jump: int,
    prompting: PromptOptions,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Answer one prompt, or with --convo a list of them, then exit.

    The answer goes to stdout, speeds and warnings go to stderr. A line end at the end of a file or of stdin
    is dropped.
    """
    check_sources(prompt, file, convo, raw)
    if raw and prompting.system is not None:
        raise click.UsageError(
            "--raw has no place for a system prompt. Leave out --system, or write it in the prompt"
        )
    text = read_prompt(prompt, convo if file is None else file)
    if not (text if raw else text.strip()):
        raise Hy3Error("The prompt is empty", "Give some text with -p TEXT, -f FILE or on stdin")
    opened = open_engine(model, engine)
    generator = opened.generator(sampling, pos_jump)
    if convo is not None:
        converse(generator, opened.conversation(prompting), text)
    elif raw:
        tokenizer = opened.model.tokenizer
        ids = tokenizer.encode(text, special=True, bos=opened.adds_bos)
        answer(generator, ids, opens_thinking(text, tokenizer))
    else:
        asked = opened.conversation(prompting).prompt(text)
        answer(generator, asked.ids, asked.thinking)


def check_sources(prompt: str | None, file: str | None, convo: str | None, raw: bool) -> None:
    given = [name for name, value in (("-p", prompt), ("-f", file), ("--convo", convo)) if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"Both {' and '.join(given)} give a prompt. Give one of them")
    if raw and convo is not None:
        raise click.UsageError("--raw has no turns. Leave out --raw, or give the prompt with -f")


def converse(generator: Generator, conversation: Conversation, text: str) -> None:
    """Each line that is not blank is a turn. The session keeps what it has computed from turn to turn."""
    questions = [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
    for number, question in enumerate(questions, 1):
        asked = conversation.prompt(question)
        reply = answer(generator, asked.ids, asked.thinking, f"turn {number} of {len(questions)}: ")
        conversation.add(question, reply)


def answer(generator: Generator, ids: list[int], thinking: bool, label: str = "") -> Reply:
    generator.room(ids)  # an error before anything is written
    reply = generator.new_reply(thinking)
    display = Display(thinking)
    try:
        for chunk in generator.stream(ids, reply):
            display.show(chunk)
    except KeyboardInterrupt:
        for chunk in reply.finish():
            display.show(chunk)
        raise
    finally:
        display.end()
    if reply.end == "context":
        say(
            f"warning: the context of {generator.ctx} tokens is full, the answer is cut off. Use a larger -c."
        )
    say(label + speeds(generator.session.stats))
    return reply


def read_prompt(prompt: str | None, file: str | None) -> str:
    if prompt is not None:
        # Bytes of the command line that are no UTF-8 arrive as lone surrogates.
        return decoded(prompt.encode("utf-8", "surrogateescape"), "-p")
    if file is not None and file != "-":
        return without_line_end(decoded(Path(file).read_bytes(), file))
    if file is None and sys.stdin.isatty():
        raise click.UsageError("There is no prompt. Give -p TEXT or -f FILE, or pipe text in")
    return without_line_end(decoded(sys.stdin.buffer.read(), "stdin"))


def decoded(data: bytes, name: str) -> str:
    text = data.decode("utf-8", "replace")
    if text.encode() != data:
        wrong = text.count("\ufffd") - data.count("\ufffd".encode())
        say(f"warning: {name} is not valid UTF-8. U+FFFD takes the place of what is not ({wrong} times).")
    return text


def without_line_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")
