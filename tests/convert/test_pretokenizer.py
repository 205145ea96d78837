"""Which pre-tokenizers of a tokenizer.json are recognized, and what becomes of the others."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import tokenizer_json, write_checkpoint
from support.convert_files import metadata

from hy3.convert import Options, convert
from hy3.convert.pretokenizer import recognize
from hy3.errors import Hy3Error

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def hunyuan() -> dict[str, Any]:
    content: dict[str, Any] = tokenizer_json(301)["pre_tokenizer"]
    return content


def sequence(*regexes: str) -> dict[str, Any]:
    known = hunyuan()
    split, bytes_ = known["pretokenizers"][0], known["pretokenizers"][-1]
    splits = [{**copy.deepcopy(split), "pattern": {"Regex": regex}} for regex in regexes]
    return {"type": "Sequence", "pretokenizers": [*splits, bytes_]}


def test_known_ones() -> None:
    assert recognize(hunyuan()) == "hunyuan-dense"
    assert recognize(sequence(QWEN2)) == "hunyuan"


def test_spelling_does_not_matter() -> None:
    """Control characters and code points written out, needless backslashes."""
    known = hunyuan()
    for split in known["pretokenizers"][:-1]:
        regex = split["pattern"]["Regex"]
        split["pattern"]["Regex"] = (
            regex.replace('!"', '!\\"').replace("\\r\\n", "\r\n").replace("一", "\\u4e00")
        )
    assert recognize(known) == "hunyuan-dense"


def change(**values: Any) -> dict[str, Any]:
    known = hunyuan()
    known["pretokenizers"][0] |= values
    return known


@pytest.mark.parametrize(
    "other",
    [
        None,
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        sequence(r"\p{N}{1,3}"),
        sequence(QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")),  # Llama 3's
        sequence(*reversed([split["pattern"]["Regex"] for split in hunyuan()["pretokenizers"][:-1]])),
        change(behavior="Removed"),
        change(invert=True),
        change(pattern={"String": "x"}),
        change(pattern={"Regex": r"\p{N}"}),
        {"type": "Sequence", "pretokenizers": hunyuan()["pretokenizers"][:-1]},
        {"type": "Sequence", "pretokenizers": "broken"},
    ],
)
def test_others_are_not_taken_for_known_ones(other: Any) -> None:
    assert recognize(other) is None


def test_unknown_one_is_shown_and_can_be_overridden(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m")
    path = tmp_path / "m" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["pre_tokenizer"] = sequence(r"\p{N}{1,4}")
    path.write_text(json.dumps(content))
    with pytest.raises(Hy3Error) as raised:
        convert(tmp_path / "m", tmp_path / "out.gguf", Options())
    assert r"\\p{N}{1,4}" in str(raised.value) and "--pre NAME" in str(raised.value)
    convert(tmp_path / "m", tmp_path / "out.gguf", Options(pre="joyai-llm"))
    assert metadata(tmp_path / "out.gguf")["tokenizer.ggml.pre"] == "joyai-llm"
