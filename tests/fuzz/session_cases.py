"""Saved sessions with something changed and the checksum made right again, for the two targets that load
them: load_session.py, through hy3core.Session, and tests/native/fuzz_session.cpp, under the sanitizers.

    python tests/fuzz/session_cases.py PROGRAM       5,000 cases; exit 1 on a crash, hang, excess or trace

Both are started as PROGRAM MODEL FOLDER and write the sessions to begin from to FOLDER/base-KV; then they
take cases in the way of campaign.py. A case is refused, and leaves the session as it was, or loaded.
"""

import os
import random
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.campaign import Program, Tally, run_campaign
from fuzz.mutate import NUMBERS, Case
from support.gguf_files import tiny_hy3
from support.session_files import HEADER, PAGE, Saved, sealed

CASES = 5000
KV_TYPES = ("f32", "f16", "q8", "q4")
# (offset, struct's letter) of the header's numbers
FIELDS = [(at, "I") for at in range(8, 40, 4)] + [(at, "Q") for at in range(56, 96, 8)]
HIDDEN = 32
VOCAB = 270
SHAPE = {
    "hidden_size": HIDDEN, "head_dim": 32, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": VOCAB,
}  # fmt: skip


def number(rng: random.Random, bits: int, near: int) -> int:
    return rng.choice([*NUMBERS, near + 1, max(near, 1) - 1, near * 2]) % (1 << bits)


def change_header(data: bytearray, rng: random.Random) -> None:
    for at, letter in rng.sample(FIELDS, rng.choice([1, 1, 2, 3])):
        size = struct.calcsize(letter)
        old = int.from_bytes(data[at : at + size], "little")
        data[at : at + size] = number(rng, 8 * size, old).to_bytes(size, "little")


def change_size(data: bytearray, rng: random.Random) -> None:
    """Cut or lengthened, perhaps with a number in the header changed as well."""
    if rng.random() < 0.5:
        del data[rng.randrange(len(data)) :]
        return
    at = rng.randrange(HEADER.size, len(data))
    data[at:at] = bytes(rng.choice([1, 4, 8, 16, 100]))
    if rng.random() < 0.5:
        change_header(data, rng)


def change_body(data: bytearray, rng: random.Random) -> None:
    """Jumps and tokens are in the first bytes, keys and values in the others."""
    for _ in range(rng.choice([1, 2, 8])):
        end = min(len(data), HEADER.size + rng.choice([16, 64, 100_000, 100_000]))
        at = rng.randrange(HEADER.size, end - 8)
        data[at : at + 8] = rng.choice([rng.randbytes(8), struct.pack("<Q", rng.choice(NUMBERS))])


def change_tokens(saved: Saved, rng: random.Random) -> None:
    """More or fewer, with as many pages as they take, or one more or less."""
    n = rng.choice([0, 1, 63, 64, 65, 127, 128, 129, 300, 512, 513, rng.randrange(600)])
    strange = [-1, VOCAB, 2**31 - 1, -(2**31)] if rng.random() < 0.1 else [VOCAB - 1]
    saved.tokens = [rng.choice([*strange, *range(8)]) for _ in range(n)]
    saved.set_pages(max(-(-n // PAGE) + rng.choice([0, 0, 0, 0, 1, -1]), 0))


def change_jumps(saved: Saved, rng: random.Random) -> None:
    places = range(len(saved.tokens) + 2)
    jumps = [
        (rng.choice(places), rng.choice([*NUMBERS, 5, 6, 1 << 24])) for _ in range(rng.choice([0, 1, 2, 9]))
    ]
    saved.jumps = sorted(jumps) if rng.random() < 0.7 else jumps


def change_states(saved: Saved, rng: random.Random) -> None:
    n = rng.choice([0, 1, 2, 5, len(saved.tokens) - 1, len(saved.tokens), len(saved.tokens) + 1])
    saved.states = rng.randbytes(4 * HIDDEN * n)


def change_extra(saved: Saved, rng: random.Random) -> None:
    saved.extra = rng.randbytes(rng.choice([0, 1, 7, 1000, 5000]))


BYTES: dict[str, Callable[[bytearray, random.Random], None]] = {
    "header": change_header, "size": change_size, "body": change_body,
}  # fmt: skip
PARTS: dict[str, Callable[[Saved, random.Random], None]] = {
    "tokens": change_tokens, "jumps": change_jumps, "states": change_states, "extra": change_extra,
}  # fmt: skip
CHANGES = (*BYTES, *PARTS)


def make_case(bases: dict[str, bytes], number: int) -> Case:
    """Follows from the bases and the number alone."""
    rng = random.Random(number)
    change, kv = CHANGES[number % len(CHANGES)], rng.choice(list(bases))
    saved = Saved.parse(bases[kv], HIDDEN)
    if change in PARTS:
        PARTS[change](saved, rng)
    data = bytearray(saved.unsealed())
    if change in BYTES:
        BYTES[change](data, rng)
    return Case(
        f"{change}, {kv}", sealed(bytes(data)) if rng.random() < 0.9 else bytes(data) + rng.randbytes(8)
    )


def prepare(program: list[str], folder: Path) -> tuple[list[str], dict[str, bytes]]:
    """The whole command, and what it wrote to begin from."""
    model = tiny_hy3(folder / "model.gguf", num_nextn_predict_layers=1, **SHAPE)
    command = [*program, str(model), str(folder)]
    running = Program(command)
    assert running.run(b"no session").stage == "refused"  # by now the bases are there
    bases = {kv: (folder / f"base-{kv}").read_bytes() for kv in KV_TYPES}
    for kv, base in bases.items():
        assert Saved.parse(base, HIDDEN).sealed() == base, kv
        assert running.run(base).stage == "ok", kv
    running.stop()
    return command, bases


def run(program: list[str], folder: Path, cases: int, workers: int = 1) -> Tally:
    command, bases = prepare(program, folder)
    return run_campaign(command, lambda number: make_case(bases, number), range(cases), workers)


def judge(tally: Tally) -> list[str]:
    """What is wrong: the failures, and kinds of change that are never noticed, or never do no harm."""
    wrong = list(tally.failures)
    for label, stages in tally.stages.items():
        if not set(stages) <= {"ok", "refused"}:
            wrong.append(f"{label}: {dict(stages)}")
    for change in CHANGES:
        ends = sum((stages for label, stages in tally.stages.items() if label.startswith(change)), Counter())
        if (change != "extra" and not ends["refused"]) or (change in PARTS and not ends["ok"]):
            wrong.append(f"{change}: all cases end as {dict(ends)}")
    return wrong


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        tally = run(sys.argv[1:], Path(folder), CASES, os.cpu_count() or 1)
    print(tally.table())
    print(f"report: session fuzz: {tally.summary()}")
    wrong = judge(tally)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
