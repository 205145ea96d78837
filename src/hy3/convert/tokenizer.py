"""tokenizer.json and the files beside it as `tokenizer.*` keys.

The vocabulary is byte-level BPE. It is padded to the embedding's rows, since a GGUF has a token for each of
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hy3.convert import generation, pretokenizer
from hy3.convert.hf_config import Config
from hy3.convert.safetensors_file import read_json, some
from hy3.convert.source import Entry
from hy3.errors import Hy3Error

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # tokenizer.ggml.token_type
FLAGS = ("lstrip", "rstrip", "single_word")  # of an added token: what around it belongs to it
END_OF_TURN = re.compile(r"<｜hy_end[_▁]of[_▁]turn(:\w+)?｜>")
AGAIN = "Download the tokenizer's files again"


@dataclass
class Words:
    metadata: list[Entry]
    files: list[Path]  # that were read
    warnings: list[str] = field(default_factory=list)


def read(directory: Path, config: Config, vocab: int, pre: str | None) -> Words:
    """`vocab`: the rows of the embedding."""
    path = directory / "tokenizer.json"
    if not path.exists():
        raise Hy3Error(f"{path}: there is no such file", "A checkpoint needs its tokenizer; download it too")
    content = read_json(path)
    settings_path = directory / "tokenizer_config.json"
    settings = read_json(settings_path) if settings_path.exists() else {}
    words = Words([], [path, settings_path])
    model = _check_model(path, content, words.warnings)
    name = pretokenizer.choose(content.get("pre_tokenizer"), pre, str(path))
    added = _added_tokens(path, content, settings)
    _warn_of_flags(path, added, words.warnings)
    tokens, types = _vocabulary(path, model["vocab"], added, vocab)
    ids = {token: i for i, token in enumerate(tokens)}
    words.metadata = [
        ("tokenizer.ggml.model", "str", "gpt2"),
        ("tokenizer.ggml.pre", "str", name),
        ("tokenizer.ggml.tokens", "[str]", tokens),
        ("tokenizer.ggml.token_type", "[i32]", types),
        ("tokenizer.ggml.merges", "[str]", _merges(path, model.get("merges"), ids)),
        *_special_ids(directory, config, settings, ids, vocab),
        # The chat template writes the token itself.
        ("tokenizer.ggml.add_bos_token", "bool", False),
    ]
    template = _chat_template(directory, settings, words)
    if template is None:
        words.warnings.append(f"{directory} has no chat template: the program's own for Hy3 will be used")
    else:
        words.metadata.append(("tokenizer.chat_template", "str", template))
    return words


def _check_model(path: Path, content: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    model = content.get("model")
    if (
        not isinstance(model, dict)
        or model.get("type", "BPE") != "BPE"
        or not isinstance(model.get("vocab"), dict)
    ):
        kind = model.get("type") if isinstance(model, dict) else None
        raise Hy3Error(f"{path}: the model is of type {kind!r}, 'BPE' with a vocabulary was expected", AGAIN)
    for key in ("byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise Hy3Error(f"{path}: '{key}' is {model[key]!r}, which byte-level BPE does not have", AGAIN)
    for key in ("dropout", "ignore_merges"):
        if model.get(key):
            warnings.append(
                f"{path}: '{key}' is {model[key]!r} and is not applied; text may be cut differently"
            )
    normalizer = content.get("normalizer")
    if normalizer is not None:
        kind = normalizer.get("type") if isinstance(normalizer, dict) else normalizer
        if kind != "NFC":
            raise Hy3Error(f"{path}: a normalizer ({kind}) is set; Hy3's tokenizer has none", AGAIN)
        warnings.append(
            f"{path}: the normalizer NFC is not applied; unusual Unicode text may be cut differently"
        )
    return model


@dataclass(frozen=True)
class Added:
    text: str
    special: bool
    flags: tuple[str, ...]  # of FLAGS, those that are set


def _added_tokens(path: Path, content: dict[str, Any], settings: dict[str, Any]) -> dict[int, Added]:
    """By id: from tokenizer.json, and what only tokenizer_config.json has."""
    entries: list[tuple[Any, Any]] = []
    decoder = settings.get("added_tokens_decoder") or {}
    if isinstance(decoder, dict):
        entries += [(int(i) if str(i).isdecimal() else i, entry) for i, entry in decoder.items()]
    listed = content.get("added_tokens") or []
    if isinstance(listed, list):
        entries += [(entry.get("id") if isinstance(entry, dict) else None, entry) for entry in listed]
    added = {}
    for i, entry in entries:
        text = entry.get("content") if isinstance(entry, dict) else None
        if type(i) is not int or i < 0 or not isinstance(text, str) or not text:
            raise Hy3Error(f"{path}: broken entry among the added tokens: {entry!r}", AGAIN)
        flags = tuple(flag for flag in FLAGS if entry.get(flag))
        added[i] = Added(text, bool(entry.get("special", False)), flags)
    return added


def _warn_of_flags(path: Path, added: dict[int, Added], warnings: list[str]) -> None:
    for flag in FLAGS:
        texts = [repr(token.text) for token in added.values() if flag in token.flags]
        if texts:
            warnings.append(
                f"{path}: '{flag}' of {some(texts, 3)} has no place in a GGUF and is not applied; text "
                "around it may be cut differently"
            )


def _vocabulary(
    path: Path, vocab: dict[str, Any], added: dict[int, Added], rows: int
) -> tuple[list[str], list[int]]:
    tokens: list[str | None] = [None] * rows
    types = [UNUSED] * rows
    entries = [(i, text, NORMAL) for text, i in vocab.items()]
    entries += [(i, token.text, CONTROL if token.special else USER_DEFINED) for i, token in added.items()]
    for i, text, kind in entries:
        if type(i) is not int or not 0 <= i < rows:
            raise Hy3Error(f"{path}: token {text!r} has id {i}, the embedding has {rows} rows", AGAIN)
        if tokens[i] is not None and tokens[i] != text:
            raise Hy3Error(f"{path}: id {i} is both {tokens[i]!r} and {text!r}", AGAIN)
        tokens[i], types[i] = text, kind
    return [f"[PAD{i}]" if token is None else token for i, token in enumerate(tokens)], types


def _merges(path: Path, merges: Any, ids: dict[str, int]) -> list[str]:
    """Both formats: "left right" or [left, right]. The byte alphabet has no space, so that one form
    serves."""
    if not isinstance(merges, list):
        raise Hy3Error(f"{path}: the model has no list of merges", AGAIN)
    out, broken = [], []
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            broken.append(repr(merge))
        elif pair[0] not in ids or pair[1] not in ids or pair[0] + pair[1] not in ids:
            broken.append(f"{merge!r} (not in the vocabulary)")
        else:
            out.append(f"{pair[0]} {pair[1]}")
    if broken:
        raise Hy3Error(f"{path}: {len(broken)} broken merges: {some(broken, 5)}", AGAIN)
    return out


def _special_ids(
    directory: Path, config: Config, settings: dict[str, Any], ids: dict[str, int], vocab: int
) -> list[Entry]:
    configs = [config, generation.read(directory)]

    def by_config(key: str) -> list[int]:
        found: list[int] = []
        for each in configs:
            value = each.values.get(key) if each else None
            for i in value if isinstance(value, list) else [value]:
                if i is None or i == -1:  # -1: some configs' way to say none
                    continue
                if each and (type(i) is not int or not 0 <= i < vocab):
                    raise each.wrong(f"'{key}' is {i!r}, a token id below {vocab} was expected")
                found.append(i)
        return list(dict.fromkeys(found))

    def by_text(key: str) -> int | None:
        value = settings.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        return ids.get(text) if isinstance(text, str) else None

    entries: list[Entry] = []

    def add(name: str, i: int | None) -> None:
        if i is not None:
            entries.append((f"tokenizer.ggml.{name}_token_id", "u32", i))

    bos, ends, pad = by_config("bos_token_id"), by_config("eos_token_id"), by_config("pad_token_id")
    eos = by_text("eos_token")
    if ends and eos not in ends:
        eos = ends[0]
    if eos is None:
        raise config.wrong("'eos_token_id' is missing, and tokenizer_config.json names no end token", AGAIN)
    turn = next((i for text, i in ids.items() if END_OF_TURN.fullmatch(text)), None)
    add("bos", bos[0] if bos else by_text("bos_token"))
    add("eos", eos)
    add("eot", turn)
    add("eod", next(iter(by_config("eod_token_id")), None))
    add("padding", pad[0] if pad else by_text("pad_token"))
    if len(ends) > 1:
        entries.append(("tokenizer.ggml.eos_token_ids", "[i32]", ends))
    return entries


def _chat_template(directory: Path, settings: dict[str, Any], words: Words) -> str | None:
    path = directory / "chat_template.jinja"
    if path.exists():
        words.files.append(path)
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise Hy3Error(f"{path}: not UTF-8: {error}", AGAIN) from None
    value = settings.get("chat_template")
    if isinstance(value, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None
