"""The tokenizer against ids that the `tokenizers` library made; see tests/data/tokenizer/make.py."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import hy3core

DATA = Path(__file__).parent.parent / "data" / "tokenizer"
PRE_TOKENIZERS = ["hunyuan-dense", "hunyuan"]


def cases(pre: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / f"{pre}.jsonl").read_text().splitlines()]


@pytest.fixture(params=PRE_TOKENIZERS)
def pre(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def tokenizer(pre: str) -> "hy3core.Tokenizer":
    return hy3core.Tokenizer(str(DATA / f"{pre}.gguf"))


def test_ids_equal_those_of_the_library(
    pre: str, tokenizer: "hy3core.Tokenizer", report: Callable[[str], None]
) -> None:
    compared = 0
    for case in cases(pre):
        assert tokenizer.encode(case["text"]) == case["ids"], ascii(case["text"])
        assert tokenizer.encode(case["text"], special=False) == case.get("plain", case["ids"]), ascii(
            case["text"]
        )
        compared += 1
    assert compared > 250
    report(f"tokenizer {pre}: {compared} golden texts, ids equal with and without special tokens")


def test_decoding_gives_the_text_back(pre: str, tokenizer: "hy3core.Tokenizer") -> None:
    for case in cases(pre):
        assert tokenizer.decode(case["ids"], special=True) == case["text"]


def test_digits_split_in_threes_or_ones() -> None:
    longest = {}
    for pre in PRE_TOKENIZERS:
        tokenizer = hy3core.Tokenizer(str(DATA / f"{pre}.gguf"))
        runs = [f"{n:06d}" for n in range(0, 1_000_000, 7919)]
        longest[pre] = max(len(tokenizer.piece(i)) for run in runs for i in tokenizer.encode(run))
    assert longest == {"hunyuan-dense": 3, "hunyuan": 1}


def test_special_tokens(tokenizer: "hy3core.Tokenizer") -> None:
    bos = tokenizer.bos_id
    assert tokenizer.piece(bos).decode() == "<｜hy_begin_of_sentence:opensource｜>"
    assert tokenizer.encode("a", bos=True) == [bos, *tokenizer.encode("a")]
    assert tokenizer.token_id("<think:opensource>") == tokenizer.encode("<think:opensource>")[0]
    assert tokenizer.token_id("no such token") is None
    names = ["end_of_sentence:opensource", "EOT:opensource", "eos:opensource", "eod:opensource"]
    assert list(tokenizer.eos_ids) == sorted(tokenizer.token_id(f"<｜hy_{name}｜>") for name in names)
    text = "a<｜hy_eos:opensource｜>b"
    assert tokenizer.decode(tokenizer.encode(text)) == "ab"
    assert tokenizer.decode(tokenizer.encode(text), special=True) == text


def test_padding_rows_have_no_text(tokenizer: "hy3core.Tokenizer") -> None:
    padding = tokenizer.vocab_size - 1
    assert tokenizer.piece(padding) == b""
    assert padding not in tokenizer.encode(f"[PAD{padding}]")
    assert tokenizer.decode([padding], special=True) == ""


@pytest.mark.parametrize("bad", [-1, 100_000, 2**31 - 1])
def test_an_unknown_id_is_named(tokenizer: "hy3core.Tokenizer", bad: int) -> None:
    with pytest.raises(hy3core.Error, match=f"Token id {bad} is not in the vocabulary"):
        tokenizer.decode([bad])
    with pytest.raises(hy3core.Error, match=str(bad)):
        tokenizer.piece(bad)
