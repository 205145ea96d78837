"""The `hy3` command. Each subcommand has its module, imported when first used, so `hy3 --version` is quick.

Errors become one line and an exit status here and nowhere else: `Program.main`.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from hy3.errors import Hy3Error, sentences

# Name on the command line -> module and attribute of the click command.
COMMANDS = {
    "run": "hy3.cli.run:run",
    "chat": "hy3.cli.chat:chat",
    "convert": "hy3.cli.convert:convert",
    "inspect": "hy3.cli.inspect:inspect",
    "tokenize": "hy3.cli.tokenize:tokenize",
    "imatrix": "hy3.cli.imatrix:imatrix",
    "bench": "hy3.cli.bench:bench",
    "eval": "hy3.cli.eval:evaluate",
    "serve": "hy3.cli.serve:serve",
}

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


class Program(click.Group):
    """A group that imports its commands late and ends every failure in `hy3: error: WHAT. HINT.`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(f"There is no command '{args[0]}'. There are: {', '.join(COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "hy3",
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        def run() -> Any:
            return super(Program, self).main(args, prog_name, complete_var, standalone_mode=False, **extra)

        if not standalone_mode:
            return run()
        replace_closed_streams()
        try:
            run()
            sys.stdout.flush()
            status = 0
        except BaseException as error:  # what `report` does not know it raises again
            status = report(error)
            drop_unwritten()
        sys.exit(status)


def replace_closed_streams() -> None:
    """Python has no stdout or stderr where the caller closed them (`>&-`): then what is written is lost."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until exit


def drop_unwritten() -> None:
    """Forgets what stdout holds back and does not take: Python would complain of it once more at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report(error: BaseException) -> int:
    """Says on stderr what stopped the program and returns the exit status; a bug of ours is raised again."""
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        say("interrupted")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):  # the reader (`| head`) has seen enough
        return FAILED
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "hy3"
        say("error: " + sentences(error.format_message(), f"See `{command} --help`"))
        return WRONG_USAGE
    if isinstance(error, click.ClickException):
        say("error: " + sentences(error.format_message()))
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, Hy3Error) or is_engine_error(error):
        say(f"error: {error}")
        return FAILED
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename is not None else ""
        say("error: " + sentences(name + error.strerror, hint_for(error)))
        return FAILED
    if isinstance(error, MemoryError):
        say("error: Not enough memory. Close other programs, or use a smaller model or context (-c).")
        return FAILED
    raise error


def is_engine_error(error: BaseException) -> bool:
    engine = sys.modules.get("hy3core")  # not imported: then the error cannot be its
    return engine is not None and isinstance(error, engine.Error)


def hint_for(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "Check the path"
    if isinstance(error, PermissionError):
        return "Check the file's permissions (ls -l)"
    if isinstance(error, IsADirectoryError):
        return "Give a file"
    if error.errno == 28:  # ENOSPC
        return "Free some space, or write to another disk"
    return ""


def say(text: str) -> None:
    click.echo(f"hy3: {text}", err=True)


def print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    import hy3core

    info = hy3core.build_info()
    click.echo(f"hy3 {hy3core.version}")
    click.echo(f"backends: {', '.join(info['backends'])}")
    click.echo(f"instruction set: {info['isa']} (this build and machine have: {', '.join(info['isas'])})")
    ctx.exit()


@click.group(
    "hy3",
    cls=Program,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "HY3",
        "max_content_width": 100,
    },
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=print_version,
    help="Version, backends and instruction set, then exit.",
)
def main() -> None:
    """Run Hy3 models (Tencent's hy_v3) on this machine.

    Without -m, the small demonstration model that comes with the program runs.
    Every option can also be set by an environment variable: HY3_RUN_THREADS=4 is `hy3 run --threads 4`.
    """
