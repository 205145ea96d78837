"""Recognizes the pre-tokenizer of a tokenizer.json: which `tokenizer.ggml.pre` behaves as it does.

A wrong one would go unnoticed, as text still comes out, only cut into other tokens than the model was trained
on. So what is not known, spelling apart, is an error.
"""

from __future__ import annotations

import json
import re
from typing import Any

from hy3.errors import Hy3Error

# The names an engine of ours knows: the first four one behaviour, that of Hy3.
NAMES = ("hunyuan-dense", "deepseek-v3", "hy_v4", "joyai-llm", "hunyuan")

HUNYUAN_DENSE = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
# Qwen2's, which Hunyuan-A13B has.
HUNYUAN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
HUNYUAN_CASES = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])" + HUNYUAN[0][HUNYUAN[0].index("|[^") :],
)
KNOWN: dict[tuple[str | None, ...], str] = {
    HUNYUAN_DENSE: "hunyuan-dense",
    HUNYUAN: "hunyuan",
    HUNYUAN_CASES: "hunyuan",
}


def recognize(pre_tokenizer: Any) -> str | None:
    """The name for `tokenizer.ggml.pre`; None when it is none of the known ones."""
    parts = pre_tokenizer.get("pretokenizers") if isinstance(pre_tokenizer, dict) else None
    if not isinstance(parts, list) or len(parts) < 2 or not all(isinstance(part, dict) for part in parts):
        return None
    *splits, last = parts
    # Byte-level without its own regex and without a space put in front; trim_offsets changes no token.
    if last.get("type") != "ByteLevel" or last.get("use_regex", True) or last.get("add_prefix_space", True):
        return None
    patterns = tuple(_pattern(split) for split in splits)
    return KNOWN.get(patterns)  # a None inside is simply not found


def _pattern(split: dict[str, Any]) -> str | None:
    if split.get("type") != "Split" or split.get("behavior") != "Isolated" or split.get("invert", False):
        return None
    pattern = split.get("pattern")
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    return _canonical(regex) if isinstance(regex, str) else None


def _canonical(regex: str) -> str:
    """The same regex in one spelling: control characters and \\uXXXX as the character or its usual escape,
    and no backslash before characters that have no meaning to escape."""
    regex = regex.replace("\r", r"\r").replace("\n", r"\n")
    regex = re.sub(r"\\u([0-9A-Fa-f]{4})", lambda match: chr(int(match[1], 16)), regex)
    return re.sub(r"""(?<!\\)((?:\\\\)*)\\(["'#%&,/:;<=>@_`~! ])""", r"\1\2", regex)


def choose(pre_tokenizer: Any, override: str | None, file: str) -> str:
    if override is not None:
        if override not in NAMES:
            raise Hy3Error(
                f"--pre {override}: there is no such pre-tokenizer", f"Choose one of {', '.join(NAMES)}"
            )
        return override
    name = recognize(pre_tokenizer)
    if name is None:
        shown = json.dumps(pre_tokenizer, ensure_ascii=False)
        raise Hy3Error(
            f"{file}: the pre-tokenizer is none that Hy3 models are known to have: {shown}",
            f"If you know which it behaves as, say so with --pre NAME ({', '.join(NAMES)})",
        )
    return name
