"""Saved sessions with something changed and the checksum made right again, through hy3core.Session: loaded or
refused, and nothing else.
"""

import random
import struct
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz.campaign import Program
from fuzz.mutate import NUMBERS
from support.gguf_files import tiny_hy3
from support.xxh64 import xxh64

TARGET = str(Path(__file__).with_name("load_session.py"))
CASES = 1000
# (offset, struct's letter) of the header's numbers (native/core/session_file.h)
FIELDS = [(at, "I") for at in range(8, 40, 4)] + [(at, "Q") for at in range(56, 96, 8)]
BODY = 96


def sealed(data: bytes) -> bytes:
    return data[:-8] + struct.pack("<Q", xxh64(data[:-8]))


def change_header(data: bytearray, rng: random.Random) -> None:
    for at, letter in rng.sample(FIELDS, rng.choice([1, 1, 2, 3])):
        size = struct.calcsize(letter)
        old = int.from_bytes(data[at : at + size], "little")
        number = rng.choice([*NUMBERS, old + 1, max(old, 1) - 1, old * 2])
        data[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")


def change_size(data: bytearray, rng: random.Random) -> None:
    """Cut or lengthened, perhaps with the number of tokens, jumps or bytes beside them to match."""
    if rng.random() < 0.5:
        del data[rng.randrange(len(data)) :]
    else:
        at = rng.randrange(BODY, len(data))
        data[at:at] = bytes(rng.choice([1, 4, 8, 16, 100]))
        if rng.random() < 0.5:
            change_header(data, rng)


def change_body(data: bytearray, rng: random.Random) -> None:
    """Jumps and tokens are in the first bytes, keys and values in the others."""
    for _ in range(rng.choice([1, 2, 8])):
        at = rng.randrange(BODY, min(len(data), BODY + rng.choice([16, 64, 100_000, 100_000])) - 8)
        data[at : at + 8] = rng.choice([rng.randbytes(8), struct.pack("<Q", rng.choice(NUMBERS))])


CHANGES: list[Callable[[bytearray, random.Random], None]] = [change_header, change_size, change_body]


def make_case(base: bytes, number: int) -> bytes:
    rng = random.Random(number)
    data = bytearray(base)
    CHANGES[number % len(CHANGES)](data, rng)
    return sealed(bytes(data)) if len(data) > 8 and rng.random() < 0.9 else bytes(data)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    shape = {"hidden_size": 32, "head_dim": 16, "intermediate_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 270}  # fmt: skip
    model = tiny_hy3(tmp_path / "model.gguf", num_nextn_predict_layers=1, **shape)
    return Program([sys.executable, TARGET, str(model), str(tmp_path)])


def test_a_changed_session_is_loaded_or_refused(
    program: Program, tmp_path: Path, report: Callable[[str], None]
) -> None:
    assert program.run(b"no session").stage == "refused"  # by now the target has written its own
    base = (tmp_path / "base").read_bytes()
    assert program.run(base).stage == "ok"
    ends: Counter[str] = Counter()
    for number in range(CASES):
        outcome = program.run(make_case(base, number))
        assert outcome.stage in ("ok", "refused"), (number, outcome)
        ends[outcome.stage] += 1
    program.stop()
    report(f"session fuzz: {CASES} cases, {dict(ends)}")
    assert min(ends["ok"], ends["refused"]) > 0.05 * CASES
