"""What is held out: a fixed share of all contents, chosen by the hash of the content itself.

A content is whatever makes a question the same question: the sorted operands of a sum, a passcode, the value
of a tool argument, a wording. Training never draws a held-out content and the scores are measured on nothing
else, so the two can be generated independently, in any order and number, without sharing an example.
"""

import hashlib
from collections.abc import Sequence

# The README's example; its operands are held out in every order.
README_SUM = (11, 22, 33)


def held_out(kind: str, content: str, percent: int) -> bool:
    """True for about `percent` in 100 of all contents of a kind, always the same ones."""
    digest = hashlib.sha256(f"{kind}:{content}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < percent


def sum_held_out(operands: Sequence[int]) -> bool:
    key = tuple(sorted(operands))
    return key == README_SUM or held_out("sum", ",".join(map(str, key)), 5)


def steps_held_out(operands: Sequence[int]) -> bool:
    """Whether working the sum from left to right would spell out a held-out sum of two numbers."""
    total = operands[0]
    for operand in operands[1:]:
        if sum_held_out((total, operand)):
            return True
        total += operand
    return False


def passcode_held_out(code: str) -> bool:
    return held_out("passcode", code, 10)


def argument_held_out(value: str) -> bool:
    return held_out("argument", value.lower(), 20)


def wording_held_out(wording: str) -> bool:
    return held_out("wording", wording, 15)
