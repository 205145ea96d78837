"""What holds for every text: nothing is lost, and a stream says the same as the whole."""

from functools import cache
from pathlib import Path
from time import process_time

from hypothesis import given, settings
from hypothesis import strategies as st

import hy3core

DATA = Path(__file__).parent.parent / "data" / "tokenizer"
PRE_TOKENIZERS = st.sampled_from(["hunyuan-dense", "hunyuan"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SPECIAL = st.sampled_from(
    ["<think:opensource>", "<｜hy_eos:opensource｜>", "<｜hy_", "｜>", "[UNIT]", "<tool_call"]
)
MIXED = st.lists(TEXTS | SPECIAL).map("".join)


@cache
def tokenizer(pre: str) -> "hy3core.Tokenizer":
    return hy3core.Tokenizer(str(DATA / f"{pre}.gguf"))


@settings(deadline=None)  # the first example loads the vocabulary
@given(PRE_TOKENIZERS, MIXED, st.booleans())
def test_text_survives_encoding_and_decoding(pre: str, text: str, special: bool) -> None:
    ids = tokenizer(pre).encode(text, special=special)
    assert tokenizer(pre).decode(ids, special=True) == text
    assert b"".join(tokenizer(pre).piece(i) for i in ids).decode() == text


@settings(deadline=None)
@given(PRE_TOKENIZERS, st.lists(st.integers(0, 900)), st.booleans())
def test_a_stream_says_the_same_as_the_whole(pre: str, ids: list[int], special: bool) -> None:
    """Ids in any order, so characters are broken off in every way."""
    decoder = tokenizer(pre).stream_decoder(special=special)
    parts = [decoder.push(i) for i in ids] + [decoder.finish()]
    assert "".join(parts) == tokenizer(pre).decode(ids, special=special)
    assert decoder.finish() == ""


@settings(deadline=None)
@given(PRE_TOKENIZERS, MIXED)
def test_a_stream_of_text_never_shows_a_broken_character(pre: str, text: str) -> None:
    decoder = tokenizer(pre).stream_decoder(special=True)
    shown = ""
    for i in tokenizer(pre).encode(text):
        shown += decoder.push(i)
        assert text.startswith(shown)
    assert decoder.finish() == ""
    assert shown == text


def test_time_does_not_grow_with_the_square_of_a_piece() -> None:
    """One piece of equal letters; a quadratic merge would take 100 times as long for ten times the length."""

    def seconds(length: int) -> float:
        best = float("inf")
        for _ in range(3):
            start = process_time()
            tokenizer("hunyuan-dense").encode("a" * length)
            best = min(best, process_time() - start)
        return best

    assert seconds(100_000) < 30 * max(seconds(10_000), 0.0005)
