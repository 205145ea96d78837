"""The tokenizer against the `tokenizers` library, on vocabularies made here and texts in many scripts."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from support.tokenizer_peer import CONTROL, SPLITS, USER_DEFINED, neighbours, train, write_gguf
from support.tokenizer_texts import corpus, texts
from tokenizers import Tokenizer

import hy3core

pytestmark = pytest.mark.live

TEXTS = 20_000  # for each vocabulary, with and without special tokens


class Pair(NamedTuple):
    name: str
    theirs: Tokenizer
    ours: "hy3core.Tokenizer"


def pair_of(theirs: Tokenizer, pre: str, directory: Path) -> Pair:
    path = directory / "tokenizer.gguf"
    write_gguf(theirs, pre, path)
    return Pair(pre, theirs, hy3core.Tokenizer(str(path)))


# For each pre-tokenizer a vocabulary trained within its splits, as real ones are, and one across them.
@pytest.fixture(scope="module", params=[f"{pre}, {how}" for pre in SPLITS for how in ("within", "across")])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    pre, how = request.param.split(", ")
    theirs = train(pre, 4000, corpus(3000, seed=11), across_splits=how == "across")
    pair = pair_of(theirs, pre, tmp_path_factory.mktemp("tokenizer"))
    return pair._replace(name=f"{pre}, trained {how} splits")


@pytest.mark.parametrize("special", [True, False], ids=["special", "plain"])
def test_ids_are_equal_on_random_texts(trained: Pair, special: bool, report: Callable[[str], None]) -> None:
    trained.theirs.encode_special_tokens = not special
    tokens = 0
    for text in texts(TEXTS, seed=1 + special, special=CONTROL + USER_DEFINED):
        expected = trained.theirs.encode(text, add_special_tokens=False).ids
        assert trained.ours.encode(text, special=special) == expected, ascii(text)
        tokens += len(expected)
    how = "" if special else ", special tokens as plain text"
    report(f"tokenizer {trained.name}{how}: {TEXTS} random texts, {tokens} ids, all equal to tokenizers'")


def test_decoded_text_is_equal(trained: Pair) -> None:
    """Also where ids are in no sensible order, so that characters are broken."""
    trained.theirs.encode_special_tokens = False
    for text in texts(2000, seed=5, special=CONTROL + USER_DEFINED):
        ids = trained.theirs.encode(text, add_special_tokens=False).ids
        for order in (ids, ids[::-1], ids[::2]):
            expected = trained.theirs.decode(order, skip_special_tokens=True)
            assert trained.ours.decode(order) == expected, ascii(text)


@pytest.mark.parametrize("pre", list(SPLITS))
def test_every_code_point_is_classed_alike(pre: str, tmp_path: Path, report: Callable[[str], None]) -> None:
    """The ids show what each code point shares a piece with: a letter before or after it, or a space. Letters
    and marks share with both letters, numbers and signs with none; of these and the rest, spaces tell."""
    _, theirs, ours = pair_of(neighbours(pre, "ab "), pre, tmp_path)
    compared = 0
    for start in range(0, 0x110000, 512):
        characters = [chr(c) for c in range(start, start + 512) if not 0xD800 <= c <= 0xDFFF]
        for between in ("ba", " "):
            text = between.join(characters)
            expected = theirs.encode(text, add_special_tokens=False).ids
            assert ours.encode(text) == expected, f"U+{start:04X} or one of the 511 that follow"
        compared += len(characters)
    assert compared == 0x110000 - 0x800
    report(
        f"tokenizer {pre}: all {compared} code points between letters and spaces, ids equal to tokenizers'"
    )


@pytest.mark.parametrize("pre", list(SPLITS))
def test_expressions_match_alike_in_every_context(
    pre: str, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """A few code points of every category, in every pair of contexts that an alternative looks at."""
    _, theirs, ours = pair_of(neighbours(pre, "a1! \n'中s"), pre, tmp_path)
    characters = (
        "aZ0!'\"-_ \t\n\r\v\x00\x7f\x85\xa0\xad\xaa²½«´é\u0301ſʰǅ\u0903\u20dd٣Ⅷ৴\u1680\u200b\u200d\u2028"
    )
    characters += "\u2029\u3000\ufeff一龥龦぀ゟ゠ヿ・ー〆〇€∑😀\U0001f3fd\ue000\U000e0100\U0010ffff\u0378"
    around = "_ _a a_ a_a _1 1_ 11_ 1_1 _! !_ !_! !_a _中 中_ '_ '_s _'s"
    spaced = ["_ ", " _", "  _", "_  a", " _ ", " _a", " _!", "_\n", "\n_", "!_\n", " _\n ", "\n _", "_\r\na"]
    contexts = around.split() + spaced
    separator = CONTROL[0]  # a text ends at a special token
    compared = 0
    for first in characters:
        pairs = [first + second for second in ["", *characters]]
        texts_of_first = [context.replace("_", pair) for pair in pairs for context in contexts]
        text = separator.join(texts_of_first)
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, ascii(first)
        compared += len(texts_of_first)
    report(
        f"tokenizer {pre}: {compared} short texts of all categories in all contexts, ids equal to tokenizers'"
    )
