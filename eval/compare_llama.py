"""hy3 beside llama.cpp on one GGUF: do the logits agree, and how do the speeds compare.

    python eval/compare_llama.py MODEL.gguf              teacher-forced logits over 300 tokens
    python eval/compare_llama.py MODEL.gguf --speed      prefill and decode as ratios, alternating A B A B

Needs `llama-cpp-python` 0.3.36 in the same environment. Each engine runs in a process of its own, so that
neither's threads disturb the other; llama.cpp is driven through its C functions, with flash attention both on
and off, and the better of the two counts. Both keep their KV cache in float16 and use the same number of
threads.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np

MAX_KL = 5e-3


class Engine(Protocol):
    def logits(self, tokens: list[int]) -> np.ndarray:
        """float32[n, vocab] of a text from an empty context."""

    def greedy(self, tokens: list[int], n: int, stop_ids: list[int]) -> list[int]: ...

    def speeds(self, prompt: list[int], n: int) -> tuple[float, float]:
        """Tokens per second of the prompt, from an empty context, and of n single steps after it."""


class Hy3:
    def __init__(self, path: str, threads: int, ctx: int, backend: str = "cpu") -> None:
        import hy3core

        self.model = hy3core.Model(path, backend=backend, threads=threads)
        self.session = self.model.session(ctx=ctx, kv="f16")

    def vocab_size(self) -> int:
        return int(self.model.config.vocab_size)

    def encode(self, text: str) -> list[int]:
        return list(self.model.tokenizer.encode(text))

    def eos_ids(self) -> list[int]:
        return list(self.model.tokenizer.eos_ids)

    def logits(self, tokens: list[int]) -> np.ndarray:
        self.session.reset()
        return np.asarray(self.session.eval(tokens, logits="all"))

    def greedy(self, tokens: list[int], n: int, stop_ids: list[int]) -> list[int]:
        self.session.reset()
        return list(self.session.generate(tokens, max_tokens=n, stop_ids=stop_ids))

    def speeds(self, prompt: list[int], n: int) -> tuple[float, float]:
        self.session.reset()
        begin = time.perf_counter()
        token = int(self.session.eval(prompt).argmax())
        middle = time.perf_counter()
        for _ in range(n):
            token = int(self.session.eval([token]).argmax())
        return len(prompt) / (middle - begin), n / (time.perf_counter() - middle)


class Llama:
    """llama.cpp's C functions. `flash`: flash attention on or off. `repack`: bring the weights into the
    layouts of its fastest kernels at load, its own default.
    """

    BATCH = 512  # its default for both the logical and the physical batch

    def __init__(self, path: str, threads: int, ctx: int, flash: bool = False, repack: bool = False) -> None:
        import llama_cpp

        self.lib: Any = llama_cpp
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, None)
        llama_cpp.llama_backend_init()
        loading = llama_cpp.llama_model_default_params()
        loading.use_extra_bufts = repack
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), loading)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = ctx
        params.n_batch = params.n_ubatch = self.BATCH
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = (
            llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no context of {ctx} tokens for {path}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(self.BATCH, 0, 1)

    def clear(self) -> None:
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def decode(self, tokens: Sequence[int], at: int, every: bool) -> np.ndarray:
        """Evaluates up to BATCH tokens from position `at` on; logits of every row, or of the last alone."""
        batch, n = self.batch, len(tokens)
        batch.n_tokens = n
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = at + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = every or i == n - 1
        status = self.lib.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        rows = range(n) if every else [n - 1]
        return np.stack(
            [
                np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, i), (self.vocab,)).copy()
                for i in rows
            ]
        )

    def logits(self, tokens: list[int]) -> np.ndarray:
        self.clear()
        cuts = range(0, len(tokens), self.BATCH)
        return np.concatenate([self.decode(tokens[at : at + self.BATCH], at, every=True) for at in cuts])

    def last(self, tokens: list[int], at: int) -> int:
        """The top token after all these."""
        for cut in range(0, len(tokens), self.BATCH):
            row = self.decode(tokens[cut : cut + self.BATCH], at + cut, every=False)
        return int(row[0].argmax())

    def greedy(self, tokens: list[int], n: int, stop_ids: list[int]) -> list[int]:
        self.clear()
        out: list[int] = []
        token = self.last(tokens, 0)
        while len(out) < n and token not in stop_ids:
            out.append(token)
            token = self.last([token], len(tokens) + len(out) - 1)
        return out

    def speeds(self, prompt: list[int], n: int) -> tuple[float, float]:
        self.clear()
        begin = time.perf_counter()
        token = self.last(prompt, 0)
        middle = time.perf_counter()
        for i in range(n):
            token = self.last([token], len(prompt) + i)
        return len(prompt) / (middle - begin), n / (time.perf_counter() - middle)


def serve(connection: Connection, make: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """A worker process: makes its engine, then answers (method, arguments) with (result, error)."""
    engine: Any = None
    try:
        engine = make(*args)
        connection.send((None, ""))
    except Exception as error:
        connection.send((None, f"{type(error).__name__}: {error}"))
        return
    while (request := connection.recv()) is not None:
        method, arguments = request
        try:
            connection.send((getattr(engine, method)(*arguments), ""))
        except Exception as error:
            connection.send((None, f"{type(error).__name__}: {error}"))


class Remote:
    """An engine in its own process: remote.logits(tokens) and so on."""

    def __init__(self, make: Callable[..., Any], *args: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, make, args), daemon=True)
        self.process.start()
        theirs.close()
        self.receive()

    def receive(self) -> Any:
        try:
            result, error = self.connection.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"the engine's process ended with status {self.process.exitcode}") from None
        if error:
            raise RuntimeError(error)
        return result

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.connection.send((method, arguments))
            return self.receive()

        return call

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.is_alive():
            self.connection.send(None)
        self.process.join()


@dataclass
class Agreement:
    """Of hy3's logits with llama.cpp's, over the positions of some text. KL(llama.cpp || hy3), in nats."""

    positions: int
    mean_kl: float
    largest_kl: float
    mean_error: float  # the largest difference of two logits in a row, averaged over the rows
    largest_error: float
    largest_logit: float
    disagreements: int  # rows whose top tokens differ
    # Among them: how far llama.cpp has its own top token above hy3's, as a part of twice the logit error of
    # the row. That error is the largest difference in the rest of the row: with the two tokens themselves it
    # would bound their gap by arithmetic alone.
    largest_gap: float

    @property
    def holds(self) -> bool:
        return self.mean_kl < MAX_KL and self.largest_gap <= 1

    def __str__(self) -> str:
        return (
            f"{self.positions} positions: mean KL {self.mean_kl:.1e} (limit {MAX_KL:.0e}), largest "
            f"{self.largest_kl:.1e}; logits up to {self.largest_logit:.1f} differ by "
            f"{self.mean_error:.1e} in a row, {self.largest_error:.1e} at most; "
            f"{self.disagreements} top tokens differ, with a gap of {self.largest_gap:.2f} of twice the "
            "row's error at most (limit 1)"
        )


def log_softmax(row: np.ndarray) -> np.ndarray:
    row = row.astype(np.float64) - row.max()
    return np.asarray(row - np.log(np.exp(row).sum()))


def agreement(hy3: np.ndarray, llama: np.ndarray) -> Agreement:
    if hy3.shape != llama.shape:
        raise ValueError(f"hy3 gave logits of shape {hy3.shape}, llama.cpp {llama.shape}")
    kls, errors, gaps = [], [], []
    # Row by row: 300 x 120,832 doubles are a quarter of a GiB.
    for ours, theirs in zip(hy3, llama, strict=True):
        p, q = log_softmax(theirs), log_softmax(ours)
        kls.append(float((np.exp(p) * (p - q)).sum()))
        difference = np.abs(ours - theirs)
        errors.append(float(difference.max()))
        top, other = int(theirs.argmax()), int(ours.argmax())
        if top != other:
            difference[[top, other]] = 0
            gaps.append(float((theirs[top] - theirs[other]) / (2 * difference.max())))
    return Agreement(
        positions=len(hy3),
        mean_kl=statistics.fmean(kls),
        largest_kl=max(kls),
        mean_error=statistics.fmean(errors),
        largest_error=max(errors),
        largest_logit=float(np.abs(llama).max()),
        disagreements=len(gaps),
        largest_gap=max(gaps, default=0.0),
    )


def compare_logits(path: str, texts: list[list[int]], threads: int) -> Agreement:
    """Over all positions of the texts, each from an empty context."""
    ctx = max(len(tokens) for tokens in texts)
    with Remote(Hy3, path, threads, ctx) as remote:
        ours = [remote.logits(tokens) for tokens in texts]
    with Remote(Llama, path, threads, ctx) as remote:
        theirs = [remote.logits(tokens) for tokens in texts]
    return agreement(np.concatenate(ours), np.concatenate(theirs))


def fast_llama(path: str, threads: int, ctx: int, flash: bool) -> tuple[Remote, str]:
    """With repacked weights, if that works: on a machine that announces AMX but does not grant it to
    programs, a llama.cpp built for it dies of its first such instruction.
    """
    name = "llama.cpp, flash attention" if flash else "llama.cpp"
    try:
        remote = Remote(Llama, path, threads, ctx, flash, True)
        remote.logits([0])
        return remote, name
    except RuntimeError as error:
        print(f"{name} with repacked weights: {error}; going on without", file=sys.stderr)
    return Remote(Llama, path, threads, ctx, flash, False), name + ", not repacked"


@dataclass
class Speeds:
    """Tokens per second, by round."""

    prefill: list[float]
    decode: list[float]


def compare_speed(path: str, prompt: list[int], n: int, rounds: int, threads: int) -> dict[str, Speeds]:
    """One uncounted round, then `rounds`; in each, hy3 and both llama.cpp contexts take turns."""
    ctx = len(prompt) + n + 1
    engines = {"hy3": Remote(Hy3, path, threads, ctx)}
    for flash in (False, True):
        remote, name = fast_llama(path, threads, ctx, flash)
        engines[name] = remote
    out = {name: Speeds([], []) for name in engines}
    try:
        for number in range(rounds + 1):
            for name, engine in engines.items():
                prefill, decode = engine.speeds(prompt, n)
                if number > 0:
                    out[name].prefill.append(prefill)
                    out[name].decode.append(decode)
    finally:
        for engine in engines.values():
            engine.__exit__()
    return out


def describe_speed(speeds: dict[str, Speeds]) -> list[str]:
    """The rates, then hy3's as ratios to the better llama.cpp: of the medians, and the range by rounds."""
    lines = []
    for what in ("prefill", "decode"):
        rates: dict[str, list[float]] = {name: getattr(s, what) for name, s in speeds.items()}
        for name, values in rates.items():
            median = statistics.median(values)
            lines.append(
                f"{what} {name}: {median:.2f} tokens/s (from {min(values):.2f} to {max(values):.2f})"
            )
        ours = rates.pop("hy3")
        theirs = max(rates.values(), key=statistics.median)
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        lines.append(
            f"{what} hy3 / llama.cpp: {statistics.median(ours) / statistics.median(theirs):.2f} "
            f"(from {min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds)"
        )
    return lines


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare hy3 with llama.cpp on one GGUF.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, help="a text to go over instead of random tokens")
    parser.add_argument("--tokens", type=int, default=300, help="how many tokens of it (default 300)")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--speed", action="store_true", help="also compare the speeds")
    parser.add_argument("-p", "--prompt", type=int, default=512, help="prompt length of the speed test")
    parser.add_argument("-n", "--decode", type=int, default=64, help="single steps after it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    return parser.parse_args()


def main() -> int:
    args = read_arguments()
    path = str(args.model)
    with Remote(Hy3, path, args.threads, 1) as remote:
        vocab = remote.vocab_size()
        text = remote.encode(args.text.read_text(encoding="utf-8"))[: args.tokens] if args.text else None
    rng = np.random.default_rng(0)
    tokens = text or rng.integers(0, vocab, args.tokens).tolist()
    result = compare_logits(path, [tokens], args.threads)
    print(f"logits: {result}")
    print("agreement holds" if result.holds else "agreement does NOT hold")
    measured: dict[str, Any] = {
        "model": args.model.name,
        "threads": args.threads,
        "agreement": asdict(result),
    }
    if args.speed:
        prompt = rng.integers(0, vocab, args.prompt).tolist()
        speeds = compare_speed(path, prompt, args.decode, args.rounds, args.threads)
        print("\n".join(describe_speed(speeds)))
        measured["speed"] = {name: asdict(s) for name, s in speeds.items()}
    if args.json:
        args.json.write_text(json.dumps(measured, indent=1) + "\n")
    return 0 if result.holds else 1


if __name__ == "__main__":
    sys.exit(main())
