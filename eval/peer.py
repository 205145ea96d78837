"""hy3 and llama.cpp behind the same few methods, each in a process of its own: neither's threads disturb the
other, and each may run under the interpreter that has its package.

    with Remote("Hy3", path, threads=2, ctx=600) as hy3: ...    # Remote("Llama", ...) alike

llama.cpp is driven through the C functions of `llama-cpp-python` 0.3.36.
"""

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# Where llama-cpp-python is not installed beside the rest: the interpreter that has it.
PEER_PYTHON = os.environ.get("HY3_PEER_PYTHON", sys.executable)


class Hy3:
    def __init__(self, path: str, threads: int, ctx: int, backend: str = "cpu", kv: str = "f16") -> None:
        import hy3core

        self.ctx, self.kv = ctx, kv
        self.model = hy3core.Model(path, backend=backend, threads=threads)
        self.session = self.model.session(ctx=ctx, kv=kv)  # type: ignore[arg-type]
        self.scheduler: Any = None  # made when first used

    def vocab_size(self) -> int:
        return int(self.model.config.vocab_size)

    def encode(self, text: str) -> list[int]:
        return list(self.model.tokenizer.encode(text))

    def eos_ids(self) -> list[int]:
        return list(self.model.tokenizer.eos_ids)

    def logits(self, tokens: list[int]) -> np.ndarray:
        """float32[n, vocab] of a text from an empty context."""
        self.session.reset()
        return np.asarray(self.session.eval(tokens, logits="all"))

    def greedy(self, tokens: list[int], n: int, stop_ids: list[int]) -> list[int]:
        self.session.reset()
        return list(self.session.generate(tokens, max_tokens=n, stop_ids=stop_ids))

    def fill(self, tokens: list[int]) -> None:
        """Leaves exactly these in the context; what it holds already must be their beginning."""
        if len(tokens) > self.session.position:
            self.session.eval(tokens[self.session.position :], logits="none")
        self.session.truncate(len(tokens))

    def prefill(self, tokens: list[int]) -> float:
        """Seconds of the tokens from an empty context, logits of the last."""
        self.session.reset()
        begin = time.perf_counter()
        self.session.eval(tokens)
        return time.perf_counter() - begin

    def decode(self, tokens: list[int]) -> float:
        """Seconds of one step for each token, which the context then forgets again."""
        at = self.session.position
        begin = time.perf_counter()
        for token in tokens:
            self.session.eval([token])
        seconds = time.perf_counter() - begin
        self.session.truncate(at)
        return seconds

    def streams(self, starts: list[int], n: int) -> tuple[float, list[list[int]]]:
        """Seconds of n tokens after each of the starts, side by side, and what was drawn. A start is a prompt
        of one token, so that all steps are of decoding.
        """
        import hy3core

        if self.scheduler is None:
            self.scheduler = hy3core.Scheduler(self.model, ctx=self.ctx, kv=self.kv)
        begin = time.perf_counter()
        texts: dict[int, list[int]] = {}
        for seed, start in enumerate(starts):
            sampling = hy3core.Sampling(temperature=1.0, seed=seed)
            number = self.scheduler.submit([start], max_tokens=n, sampling=sampling, stop_ids=[])
            texts[number] = []
        running = len(texts)
        while running:
            for event in self.scheduler.step():
                if event.error:
                    raise RuntimeError(event.error)
                if event.token is not None:
                    texts[event.request].append(event.token)
                running -= event.finish is not None
        return time.perf_counter() - begin, list(texts.values())

    def private_bytes(self) -> int:
        """Memory of this process that is not the mapped file."""
        status = Path("/proc/self/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
        return int(line.split()[1]) * 1024

    def machine(self, threads: int, span: int) -> tuple[float, float]:
        import hy3core

        return tuple(hy3core.measure_machine(threads, span))  # type: ignore[return-value]


class Llama:
    """`repack`: bring the weights into the layouts of its fastest kernels at load, its own default. `flash`:
    flash attention on or off. `sequences`: how many have room for `ctx` tokens each.
    """

    BATCH = 512  # its default for both the logical and the physical batch

    def __init__(
        self,
        path: str,
        threads: int,
        ctx: int,
        flash: bool = False,
        repack: bool = False,
        kv: str = "f16",
        sequences: int = 1,
    ) -> None:
        import llama_cpp

        self.lib: Any = llama_cpp
        self.path, self.threads, self.ctx, self.kv, self.sequences = path, threads, ctx, kv, sequences
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, None)
        llama_cpp.llama_backend_init()
        loading = llama_cpp.llama_model_default_params()
        loading.use_extra_bufts = repack
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), loading)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(self.BATCH, 0, 1)
        self.contexts: dict[bool, Any] = {}  # by flash
        self.held: dict[bool, int] = {}  # tokens in each
        self.use(flash)

    def use(self, flash: bool) -> None:
        """The context with flash attention on or off, made when first used."""
        if flash not in self.contexts:
            self.contexts[flash] = self.new_context(flash)
            self.held[flash] = 0
        self.flash = flash
        self.context = self.contexts[flash]

    def new_context(self, flash: bool) -> Any:
        lib = self.lib
        params = lib.llama_context_default_params()
        params.n_ctx = self.ctx * self.sequences
        params.n_seq_max = self.sequences
        params.n_batch = params.n_ubatch = self.BATCH
        params.n_threads = params.n_threads_batch = self.threads
        params.type_k = params.type_v = {"f16": lib.GGML_TYPE_F16, "q8": lib.GGML_TYPE_Q8_0}[self.kv]
        params.flash_attn_type = (
            lib.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        context = lib.llama_init_from_model(self.model, params)
        if not context:
            raise RuntimeError(f"llama.cpp makes no context of {self.ctx} tokens for {self.path}")
        return context

    def drop(self, at: int) -> None:
        """Forgets what follows the first `at` tokens."""
        memory = self.lib.llama_get_memory(self.context)
        if not self.lib.llama_memory_seq_rm(memory, 0, at, -1):
            raise RuntimeError(f"llama.cpp does not shorten its context to {at} tokens")
        self.held[self.flash] = at

    def compute(self, rows: Sequence[tuple[int, int, int, bool]]) -> None:
        """A step of rows (token, position, sequence, whether its logits are wanted)."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        status = self.lib.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")

    def step(self, tokens: Sequence[int], every: bool) -> np.ndarray:
        """Appends up to BATCH tokens; logits of every row, or of the last alone."""
        n, at = len(tokens), self.held[self.flash]
        self.compute([(token, at + i, 0, every or i == n - 1) for i, token in enumerate(tokens)])
        self.held[self.flash] += n
        rows = range(n) if every else [n - 1]
        return np.stack(
            [
                np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, i), (self.vocab,)).copy()
                for i in rows
            ]
        )

    def append(self, tokens: list[int], every: bool = False) -> list[np.ndarray]:
        cuts = range(0, len(tokens), self.BATCH)
        return [self.step(tokens[at : at + self.BATCH], every) for at in cuts]

    def logits(self, tokens: list[int]) -> np.ndarray:
        self.drop(0)
        return np.concatenate(self.append(tokens, every=True))

    def greedy(self, tokens: list[int], n: int, stop_ids: list[int]) -> list[int]:
        self.drop(0)
        out: list[int] = []
        row = self.append(tokens)[-1]
        while len(out) < n and (token := int(row.argmax())) not in stop_ids:
            out.append(token)
            row = self.step([token], every=False)
        return out

    def fill(self, tokens: list[int]) -> None:
        self.append(tokens[self.held[self.flash] :])
        self.drop(len(tokens))

    def save(self, path: str) -> None:
        """What the context holds, for restore() of another process with the same file and flash attention."""
        if not self.lib.llama_state_seq_save_file(self.context, path.encode(), 0, (ctypes.c_int32 * 1)(), 0):
            raise RuntimeError(f"llama.cpp does not save its context to {path}")

    def restore(self, path: str, n: int) -> None:
        """What save() wrote, of n tokens."""
        self.drop(0)
        room, count = (ctypes.c_int32 * 1)(), ctypes.c_size_t()
        if not self.lib.llama_state_seq_load_file(
            self.context, path.encode(), 0, room, len(room), ctypes.byref(count)
        ):
            raise RuntimeError(f"llama.cpp does not load its context from {path}")
        self.held[self.flash] = n

    def prefill(self, tokens: list[int]) -> float:
        self.drop(0)
        begin = time.perf_counter()
        self.append(tokens)
        return time.perf_counter() - begin

    def decode(self, tokens: list[int]) -> float:
        at = self.held[self.flash]
        begin = time.perf_counter()
        for token in tokens:
            self.step([token], every=False)
        seconds = time.perf_counter() - begin
        self.drop(at)
        return seconds

    def streams(self, texts: list[list[int]]) -> float:
        """Seconds of the texts side by side, a token of each in a step. Nothing is drawn from the logits."""
        memory = self.lib.llama_get_memory(self.context)
        self.lib.llama_memory_clear(memory, False)
        begin = time.perf_counter()
        for position, tokens in enumerate(zip(*texts, strict=True)):
            self.compute([(token, position, sequence, True) for sequence, token in enumerate(tokens)])
            self.lib.llama_synchronize(self.context)
        seconds = time.perf_counter() - begin
        self.lib.llama_memory_clear(memory, False)
        self.held[self.flash] = 0
        return seconds


def serve(connection: Connection) -> None:
    """The other process: makes its engine, then answers (method, arguments) with (result, error)."""
    engine: Any = None

    def make(name: str, *args: Any, **options: Any) -> None:
        nonlocal engine
        engine = {"Hy3": Hy3, "Llama": Llama}[name](*args, **options)

    with contextlib.suppress(EOFError):
        while True:
            method, args, options = connection.recv()
            call = make if engine is None else getattr(engine, method)
            try:
                connection.send((call(*args, **options), ""))
            except Exception as error:
                connection.send((None, f"{type(error).__name__}: {error}"))


class Remote:
    """An engine, "Hy3" or "Llama", in its own process: remote.logits(tokens) and so on."""

    def __init__(self, name: str, path: str, *args: Any, python: str | None = None, **options: Any) -> None:
        ours, theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        interpreter = python or (PEER_PYTHON if name == "Llama" else sys.executable)
        with theirs:
            fd = theirs.fileno()
            argv = [interpreter, "-m", "eval.peer", str(fd)]
            self.process = subprocess.Popen(argv, cwd=ROOT, pass_fds=[fd])
        try:
            self.call("make", name, str(Path(path).resolve()), *args, **options)
        except BaseException:
            self.close()
            raise

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        try:
            self.connection.send((method, args, options))
            result, error = self.connection.recv()
        except (EOFError, ConnectionError):
            status = self.process.wait()
            raise RuntimeError(f"the engine's process ended with status {status}") from None
        if error:
            raise RuntimeError(error)
        return result

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *args, **options: self.call(method, *args, **options)

    def close(self) -> None:
        self.connection.close()
        self.process.wait()

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
