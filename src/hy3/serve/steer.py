"""Which tokens may come next: a mask for the scheduler, that thinks up to a budget and then answers in form.

A mask is a function of the ids generated so far (drafts included) and returns the allowed tokens as bits,
least significant first, in bytes. It runs in the engine's thread, once for each token: keep it quick.
"""

from collections.abc import Callable, Sequence

Mask = Callable[[Sequence[int]], bytes]


def all_tokens(vocab_size: int) -> bytes:
    return b"\xff" * (-(-vocab_size // 32) * 4)  # whole words of 32 bits


def only(token: int, vocab_size: int) -> bytes:
    bits = bytearray(len(all_tokens(vocab_size)))
    bits[token // 8] |= 1 << token % 8
    return bytes(bits)


def without(tokens: Sequence[int], vocab_size: int) -> bytes:
    bits = bytearray(all_tokens(vocab_size))
    for token in tokens:
        bits[token // 8] &= ~(1 << token % 8)
    return bytes(bits)


class ThinkingMask:
    """For a prompt that ends inside a think block. The block is closed after `budget` tokens (None: when the
    model likes), and `answer` is the mask of what follows it (None: anything). An end token cannot come
    before the block is closed."""

    def __init__(
        self,
        closing: int,  # the tag
        ends: Sequence[int],
        vocab_size: int,
        budget: int | None = None,
        answer: Mask | None = None,
    ) -> None:
        self._closing, self._budget, self._answer = closing, budget, answer
        self._thinking = without(ends, vocab_size)
        self._close = only(closing, vocab_size)
        self._anything = all_tokens(vocab_size)

    def __call__(self, ids: Sequence[int]) -> bytes:
        try:
            closed = ids.index(self._closing)
        except ValueError:
            over = self._budget is not None and len(ids) >= self._budget
            return self._close if over else self._thinking
        return self._anything if self._answer is None else self._answer(ids[closed + 1 :])
