"""How fast a session computes: prompts and single tokens at given depths, and what the speed amounts to
beside the limits of the machine.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hy3.memory import available
from hy3.modelfile import ModelFile

if TYPE_CHECKING:
    from hy3core import MachineSpeed, Session

SPAN = 4 << 30  # bytes read to measure the bandwidth, where there is room: far more than caches hold
LEAST_SPAN = 64 << 20


@dataclass(frozen=True)
class Measurement:
    """One kind of work at one depth."""

    what: str  # "prefill": `tokens` at once; "decode": one after the other
    tokens: int
    depth: int  # tokens in the context before
    experts: int | None  # used for each token; None in a model without experts
    seconds: tuple[float, ...]  # by round
    token_bytes: int  # that decoding one token must read, each byte once
    token_ops: int  # multiplications and additions of one token's products with the weights

    @property
    def rates(self) -> list[float]:
        """Tokens per second by round."""
        return [self.tokens / seconds for seconds in self.seconds]

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def read_bytes(self) -> float | None:
        """Bytes a second that the speed amounts to. A prompt reads the weights once for many tokens."""
        return self.rate * self.token_bytes if self.what == "decode" else None

    @property
    def ops(self) -> float:
        """Multiplications and additions a second."""
        return self.rate * self.token_ops

    def share(self, machine: "MachineSpeed") -> float:
        """Of the limit that this kind of work meets: reading memory, or int8 products."""
        read = self.read_bytes
        return self.ops / machine.int8_ops if read is None else read / machine.read_bytes

    def to_json(self, machine: "MachineSpeed") -> dict[str, Any]:
        derived = {"tokens_per_s": self.rate, "read_bytes_per_s": self.read_bytes, "ops_per_s": self.ops}
        return asdict(self) | derived | {"share": self.share(machine)}


@dataclass(frozen=True)
class Work:
    """What to measure: a prompt of `prompt` tokens and `decode` single ones (0: not), at each depth."""

    prompt: int
    decode: int
    depths: tuple[int, ...]
    rounds: int

    @property
    def ctx(self) -> int:
        """Positions that it takes."""
        return max(self.depths) + max(self.prompt, self.decode)


def synthetic_tokens(n: int, vocab: int, seed: int) -> list[int]:
    """The same in every run. They spread over the experts more evenly than a text does: the slower case."""
    rng = random.Random(seed)
    return [rng.randrange(vocab) for _ in range(n)]


def measure(session: "Session", file: ModelFile, work: Work, experts: int | None) -> Iterator[Measurement]:
    """At rising depths, so that the context is filled once; the first round of everything is not counted."""
    vocab = session.model.config.vocab_size
    text = synthetic_tokens(max(work.depths), vocab, seed=1)
    prompt, single = (synthetic_tokens(n, vocab, seed=2) for n in (work.prompt, work.decode))

    def decode() -> None:
        for token in single:
            session.eval([token])

    for depth in sorted(set(work.depths)):
        if depth > session.position:
            session.eval(text[session.position : depth], logits="none")
        for what, tokens, run in (
            ("prefill", prompt, lambda: session.eval(prompt)),
            ("decode", single, decode),
        ):
            if tokens:
                yield Measurement(
                    what=what,
                    tokens=len(tokens),
                    depth=depth,
                    experts=experts or file.shapes.experts_used,
                    seconds=timed(session, depth, run, work.rounds),
                    token_bytes=file.token_bytes(depth + len(tokens) // 2, session.kv, experts),
                    token_ops=file.token_ops(experts),
                )


def timed(session: "Session", depth: int, run: Callable[[], Any], rounds: int) -> tuple[float, ...]:
    seconds = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
        session.truncate(depth)
    return tuple(seconds[1:])


def machine_span(file_bytes: int) -> int:
    """As much as can be had without pushing the model's own pages out of memory."""
    free = available()
    return SPAN if free is None else max(LEAST_SPAN, min(SPAN, (free - file_bytes) // 2))


def spread(values: Sequence[float]) -> float:
    """Half the range, relative to the median."""
    return (max(values) - min(values)) / 2 / statistics.median(values)
