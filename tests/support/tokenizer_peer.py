"""Vocabularies like Hy3's, made by the `tokenizers` library, and the same as GGUF. Needs both packages."""

import json
from pathlib import Path

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

_NAMES = "begin_of_sentence end_of_sentence pad User Assistant EOT eos eod"
CONTROL = [
    *(f"<｜hy_{name}:opensource｜>" for name in _NAMES.split()),
    *(
        "<｜reasoning_mode:opensource｜>",
        "<think:opensource>",
        "</think:opensource>",
        "<tool_calls:opensource>",
    ),
    *("<tool_call", "<tool_call:opensource>", "<tool_call:opensource>x", "<é>", "🙂<ctl>"),
]
USER_DEFINED = ["[UNIT]", "[UNIT][UNIT]", "ーー", "   \n", "ｕｓｅｒ", "ab12"]
PADDING_ROWS = 5

SPLITS = {
    "hunyuan-dense": [
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        + r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    ],
    "hunyuan": [
        r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
        + r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
    ],
}
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def pre_tokenizer(pre: str) -> pre_tokenizers.PreTokenizer:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[pre]]
    return pre_tokenizers.Sequence([*splits, BYTES])


def train(pre: str, size: int, lines: list[str], across_splits: bool = False) -> Tokenizer:
    """`size`: ordinary tokens; the control and user-defined ones follow them.

    across_splits: trained on unsplit lines, so that merges reach across where the pre-tokenizer splits, and a
    piece that ends in the wrong place gives other ids.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = BYTES if across_splits else pre_tokenizer(pre)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return _complete(tokenizer, pre)


def neighbours(pre: str, contexts: str) -> Tokenizer:
    """A vocabulary whose only merges join a character of `contexts` (a byte that begins or ends it) with any
    character before or after: the ids show whether the two are in one piece."""
    before = sorted({c.encode()[-1] for c in contexts})
    after = sorted({c.encode()[0] for c in contexts})
    first = [*range(0x80), *range(0xC2, 0xF5)]
    last = range(0xC0)
    letter = _byte_alphabet()
    pairs = [(a, b) for a in before for b in first]
    pairs += [(a, b) for a in last for b in after]
    merges = list(dict.fromkeys((letter[a], letter[b]) for a, b in pairs))
    tokens = [*letter.values(), *(a + b for a, b in merges)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    return _complete(Tokenizer(models.BPE(vocab=vocabulary, merges=merges)), pre)


def _complete(tokenizer: Tokenizer, pre: str) -> Tokenizer:
    tokenizer.pre_tokenizer = pre_tokenizer(pre)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in USER_DEFINED])
    return tokenizer


def _byte_alphabet() -> dict[int, str]:
    """The character that byte-level BPE writes for each byte that UTF-8 has, asked of the library."""
    code_points = (*range(0x800), *range(0x800, 0xD800, 0x800), *range(0xE000, 0x110000, 0x1000))
    text = "".join(map(chr, code_points))
    [(written, _)] = BYTES.pre_tokenize_str(text)
    return dict(sorted(zip(text.encode(), written, strict=True)))


def write_gguf(tokenizer: Tokenizer, pre: str, path: Path) -> None:
    """A GGUF of tokenizer keys alone."""
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    tokens = [tokenizer.id_to_token(i) for i in range(size)]
    type_of = dict.fromkeys(CONTROL, gguf.TokenType.CONTROL)
    type_of |= dict.fromkeys(USER_DEFINED, gguf.TokenType.USER_DEFINED)
    types = [type_of.get(token, gguf.TokenType.NORMAL) for token in tokens]
    writer = gguf.GGUFWriter(path, "hy_v3")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens + [f"[PAD{size + i}]" for i in range(PADDING_ROWS)])
    writer.add_token_types(types + [gguf.TokenType.UNUSED] * PADDING_ROWS)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(tokenizer.token_to_id("<｜hy_begin_of_sentence:opensource｜>"))
    writer.add_eos_token_id(tokenizer.token_to_id("<｜hy_eos:opensource｜>"))
    writer.add_pad_token_id(tokenizer.token_to_id("<｜hy_pad:opensource｜>"))
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
