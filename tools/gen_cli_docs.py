"""Writes docs/cli.md from the commands' --help pages. tests/cli/test_docs.py fails when the file is stale.

python tools/gen_cli_docs.py          writes the file
"""

from pathlib import Path

import click

from hy3.cli import COMMANDS, main

FILE = Path(__file__).parents[1] / "docs/cli.md"
WIDTH = 100
HEAD = """\
# The command line

Generated from `--help` by tools/gen_cli_docs.py; change the help, then run `make docs`.

Generated text goes to stdout, everything else to stderr. Exit status: 0 done, 1 failed (one line
`hy3: error: WHAT. HINT.`), 2 wrong usage, 130 interrupted. Each option has an environment variable, `HY3_` +
command + option: `HY3_RUN_THREADS=4` is `hy3 run --threads 4`.
"""


def help_page(name: str, command: click.Command, parent: click.Context | None) -> str:
    settings = {"terminal_width": WIDTH, "max_content_width": WIDTH, "help_option_names": ["-h", "--help"]}
    with click.Context(command, info_name=name, parent=parent, **settings) as context:  # type: ignore[arg-type]
        return command.get_help(context)


def document() -> str:
    root = click.Context(main, info_name="hy3")
    pages = [("hy3", help_page("hy3", main, None))]
    for name in COMMANDS:
        command = main.get_command(root, name)
        assert command is not None
        pages.append((f"hy3 {name}", help_page(name, command, root)))
    return HEAD + "".join(f"\n## {title}\n\n```text\n{page}\n```\n" for title, page in pages)


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
