"""`hy3 serve`: an OpenAI-compatible HTTP server."""

import asyncio
import importlib.util
import ipaddress
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hy3.cli import say
from hy3.cli.engine import DRAFTS_THAT_PAY, describe, load_model, model_path, warn_of_memory
from hy3.cli.options import (
    DEFAULT_CTX,
    LARGE,
    EngineOptions,
    Real,
    SamplingOptions,
    Whole,
    default_seed_option,
    engine_options,
    model_option,
    sampling_options,
    seed_option,
    stop_option,
)
from hy3.errors import Hy3Error
from hy3.sampling import settings as sampling_settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from hy3.serve.engine import Engine
    from hy3.serve.service import Service, Settings

EXTRA = ("fastapi", "uvicorn", "prometheus_client")


@click.command()
@model_option
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen at."
)
@click.option(
    "--port",
    type=Whole(0, 65535, "Give 0 (any free one) to 65535"),
    default=8000,
    show_default=True,
    metavar="N",
    help="Port to listen at.",
)
@click.option(
    "--alias",
    multiple=True,
    metavar="NAME",
    help="The model's name for clients; may be given several times. Left out: the file's.",
)
@click.option(
    "--parallel",
    type=Whole(1, 256, "Give 1 to 256"),
    default=8,
    show_default=True,
    metavar="N",
    help="Requests computed at a time.",
)
@click.option(
    "--queue",
    type=Whole(0, 1 << 20, "Give 0 or more"),
    default=64,
    show_default=True,
    metavar="N",
    help="More requests that may wait; what comes then is refused (429).",
)
@click.option(
    "--kv-budget",
    type=Whole(1, LARGE, "Give a number of tokens, such as 64k", units=True),
    metavar="N",
    help="Tokens of KV cache in all, finished conversations included. Left out: what --parallel requests of "
    "--ctx take, if there is memory for it.",
)
@click.option(
    "--max-gap",
    type=Real(0.01, 60, "Give 0.01 to 60 seconds"),
    default=0.25,
    show_default=True,
    metavar="SECONDS",
    help="Most time between the tokens of a stream while other prompts come in.",
)
@click.option(
    "--api-key",
    metavar="KEY",
    help="Only answer requests with this key. HY3_SERVE_API_KEY gives it out of others' sight.",
)
@click.option(
    "--body-limit",
    type=Whole(1, LARGE, "Give a number of bytes, such as 4m", units=True),
    default=4 << 20,
    show_default="4m",
    metavar="N",
    help="Most bytes of a request.",
)
@click.option(
    "--cors",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of this origin (https://example.org) use the server; may be given several times.",
)
@click.option(
    "--grace",
    type=Real(0, 86400, "Give 0 or more seconds"),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="Time that running requests have when the server is told to stop.",
)
@click.option(
    "--think",
    type=click.Choice(["off", "low", "high"]),
    default="off",
    show_default=True,
    help="How much the model may think where a request does not say.",
)
@click.option(
    "--think-budget",
    type=Whole(0, LARGE, "Give a number of tokens"),
    metavar="N",
    help="Most tokens of thinking where a request does not say.",
)
@sampling_options.without(default_seed_option, stop_option)
@seed_option("Seed for requests that give none. Left out: another one each time.")
@engine_options
def serve(
    model: str | None,
    host: str,
    port: int,
    alias: Sequence[str],
    parallel: int,
    queue: int,
    kv_budget: int | None,
    max_gap: float,
    api_key: str | None,
    body_limit: int,
    cors: Sequence[str],
    grace: float,
    think: str,
    think_budget: int | None,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Serve a model over HTTP, to OpenAI's clients and others.

    A signal (Ctrl-C, SIGTERM) ends the server once what runs is done, or after --grace; a second one at once.
    """
    require_extra()
    from hy3.serve.app import create_app
    from hy3.serve.run import listen
    from hy3.serve.run import serve as run
    from hy3.serve.service import Settings

    file = model_path(model)
    described = describe(file)
    ctx = engine.ctx or min(DEFAULT_CTX, described.shapes.ctx or DEFAULT_CTX)
    warn_of_memory(file, described, kv_budget or parallel * ctx, engine.kv)
    settings = Settings(
        names=alias or (file.stem,),
        ctx=ctx,
        slots=parallel,
        queue=queue,
        max_tokens=sampling.max_tokens,
        think=think,
        think_budget=think_budget,
        sampling=sampling_settings(described.metadata, sampling),
        seed=sampling.seed,
        api_key=api_key,
        body_limit=body_limit,
        cors=cors,
    )
    if api_key is None and not is_loopback(host):
        say(f"warning: anyone who reaches {host} can use this server. Give --api-key, or leave out --host.")

    def load() -> tuple["Engine", "FastAPI"]:
        service = open_service(file, settings, engine, kv_budget or 0, max_gap)
        return service.engine, create_app(service)

    listening = listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    say(f"{settings.names[0]} at http://{shown}:{listening.getsockname()[1]}")
    asyncio.run(run(listening, load, lambda: say("ready"), grace))


def open_service(
    file: Path, settings: "Settings", options: EngineOptions, kv_budget: int, max_gap: float
) -> "Service":
    import hy3core
    from hy3.serve.engine import Engine
    from hy3.serve.service import Service

    model = load_model(file, options)
    mtp = DRAFTS_THAT_PAY if options.mtp is None else options.mtp
    drafts = mtp != 0 and model.config.n_mtp_layers > 0
    scheduler = hy3core.Scheduler(
        model,
        ctx=settings.ctx,
        kv=options.kv,
        chunk=options.chunk,
        kv_budget=kv_budget,
        max_running=settings.slots,
        max_gap=max_gap,
        mtp=drafts,
    )
    settings = replace(settings, mtp=mtp if drafts else 0)
    return Service(model, Engine(scheduler, settings.slots, settings.queue), settings)


def require_extra() -> None:
    missing = [name for name in EXTRA if not is_installed(name)]
    if missing:
        raise Hy3Error(
            f"The server needs {', '.join(missing)}, not installed here",
            f"Install {'it' if len(missing) == 1 else 'them'}: pip install 'hy3[serve]'",
        )


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # hidden on purpose: None among sys.modules
        return False


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
