"""`hy3 tokenize`: the ids a text becomes, and the piece of text each stands for."""

import json

import click

from hy3.cli.engine import model_path
from hy3.cli.options import model_option
from hy3.cli.run import read_prompt


@click.command()
@model_option
@click.argument("text", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the text from a file; `-` is stdin.")
@click.option("--plain", is_flag=True, help="Take the names of special tokens as plain text.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: ids, pieces, count.")
def tokenize(model: str | None, text: str | None, file: str | None, plain: bool, as_json: bool) -> None:
    """Show the token ids of TEXT, of a file or of stdin, and their pieces.

    A piece that begins or ends inside a character is shown as bytes: b'\\xe4' in the list, {"hex": "e4"} in
    JSON.
    """
    import hy3core

    if text is not None and file is not None:
        raise click.UsageError("Both TEXT and -f give a text. Give one of them")
    text = read_prompt(text, file)
    tokenizer = hy3core.Tokenizer(str(model_path(model)))
    ids = tokenizer.encode(text, special=not plain)
    pieces = [tokenizer.piece(token) for token in ids]
    if as_json:
        shown = [text_of(piece) if text_of(piece) is not None else {"hex": piece.hex()} for piece in pieces]
        click.echo(json.dumps({"count": len(ids), "ids": ids, "pieces": shown}, ensure_ascii=False))
        return
    for token, piece in zip(ids, pieces, strict=True):
        text = text_of(piece)
        click.echo(f"{token:>6}  {piece if text is None else text!r}")
    click.echo(f"{len(ids)} tokens", err=True)


def text_of(piece: bytes) -> str | None:
    """None for a piece that begins or ends inside a character."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return None
