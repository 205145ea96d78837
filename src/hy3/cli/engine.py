"""From options to a running engine: which file, whether it fits into memory, its own sampling settings."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hy3.chat.conversation import Conversation
from hy3.chat.generate import Generator
from hy3.cli import say
from hy3.cli.options import DEFAULT_CTX, EngineOptions, PromptOptions, SamplingOptions
from hy3.errors import Hy3Error
from hy3.memory import available, gib
from hy3.modelfile import ModelFile
from hy3.sampling import settings
from hy3.template import for_model

if TYPE_CHECKING:
    from hy3core import GGUF, Model, Sampling, Session

BUNDLED = "models/hy3-tiny.gguf"
DRAFTS_THAT_PAY = -1  # of hy3core's generate
HEADROOM = 64 << 20  # bytes, for the program itself and its work space


@dataclass(frozen=True)
class Engine:
    model: "Model"
    session: "Session"
    ctx: int
    mtp: int  # as hy3core's generate takes it

    def generator(self, options: SamplingOptions, pos_jump: int = 0) -> Generator:
        sampling = sampling_for(self.model.metadata, options)
        return Generator(
            session=self.session,
            tokenizer=self.model.tokenizer,
            sampling=sampling,
            ctx=self.ctx,
            model_ctx=self.model.config.ctx,
            max_tokens=options.max_tokens,
            stops=options.stop,
            mtp=self.mtp,
            pos_jump=pos_jump,
        )

    def conversation(self, options: PromptOptions) -> Conversation:
        return Conversation(
            for_model(self.model),
            self.model.tokenizer,
            system=options.system,
            think=options.think,
            add_bos=self.adds_bos,
        )

    @property
    def adds_bos(self) -> bool:
        return bool(self.model.metadata.get("tokenizer.ggml.add_bos_token", False))


def open_engine(path: str | None, options: EngineOptions) -> Engine:
    file = model_path(path)
    described = describe(file)
    ctx = options.ctx or min(DEFAULT_CTX, described.shapes.ctx or DEFAULT_CTX)
    warn_of_memory(file, described, ctx, options.kv)
    model = load_model(file, options)
    mtp = DRAFTS_THAT_PAY if options.mtp is None else options.mtp
    drafts = mtp != 0 and model.config.n_mtp_layers > 0
    session = model.session(ctx=ctx, kv=options.kv, chunk=options.chunk, mtp=drafts)
    return Engine(model, session, ctx, mtp)


def load_model(file: Path, options: EngineOptions) -> "Model":
    import hy3core

    model = hy3core.Model(
        str(file),
        backend=options.backend,
        threads=options.threads or 0,
        experts=options.experts or 0,
        rope_factor=options.rope_factor or 0.0,
        rope_ctx=options.rope_ctx or 0,
        rope_attention_factor=options.rope_attention_factor or 0.0,
        rope_beta_fast=options.rope_beta_fast or 0.0,
        rope_beta_slow=options.rope_beta_slow or 0.0,
        use_mmap=not options.no_mmap,
        mlock=options.mlock,
        mtp_model=options.mtp_model,
    )
    if options.mtp and not model.config.n_mtp_layers:
        raise Hy3Error(
            f"--mtp {options.mtp}, and {file} has no MTP layer",
            "Leave --mtp out, or give the layer's file with --mtp-model",
        )
    return model


def model_path(path: str | None) -> Path:
    """The file to open. A problem that a person can see at once is told before the engine looks."""
    if path is None:
        file = Path(str(resources.files("hy3").joinpath(BUNDLED)))
        if not file.exists():
            raise Hy3Error(f"The bundled model is not installed ({file})", "Give a model with -m FILE.gguf")
        return file
    file = Path(path)
    if file.is_dir():
        raise Hy3Error(
            f"{path} is a directory",
            f"Give a GGUF file; a checkpoint is converted to one first: hy3 convert {path} -o OUT.gguf",
        )
    if not file.exists():
        raise Hy3Error(f"There is no file {path}", "Check the path, or leave out -m to run the bundled model")
    with file.open("rb"):  # PermissionError and the like
        return file


def describe(file: Path) -> ModelFile:
    """What the file says about itself; an error when it is one that cannot be run."""
    described = ModelFile(open_gguf(file))
    if described.dialect == "original":
        raise Hy3Error(
            f"{file} is in the original hy3 engine's format",
            f"Convert it first: hy3 convert {file} -o NEW.gguf",
        )
    return described


def open_gguf(file: Path) -> "GGUF":
    import hy3core

    return hy3core.GGUF(str(file))


def warn_of_memory(file: Path, described: ModelFile, ctx: int, kv: str) -> None:
    free = available()
    weights, cache = described.weights_bytes, described.kv_bytes(ctx, kv) or 0
    if free is None or weights + cache + HEADROOM <= free:
        return
    say(
        f"warning: {file} needs {gib(weights + cache)} ({gib(weights)} weights, {gib(cache)} KV cache at "
        f"-c {ctx}), and {gib(free)} are free. It may be very slow or be killed. Close other programs, or "
        "use a smaller file (hy3 convert -t q4_k) or context (-c)."
    )


def sampling_for(metadata: Mapping[str, Any], options: SamplingOptions) -> "Sampling":
    """The options; for what they leave open the file's `general.sampling.*`, else the engine's defaults."""
    import hy3core

    chosen = settings(metadata, options)
    seed = options.seed
    if seed is None and chosen.get("temperature", 0.0) > 0.0:
        seed = random.SystemRandom().randrange(1 << 32)
        say(f"seed {seed}")
    return hy3core.Sampling(**chosen, seed=seed or 0)
