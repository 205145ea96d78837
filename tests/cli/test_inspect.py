"""`hy3 inspect` and `hy3 tokenize`: what they say of files written for the test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from hy3.modelfile import ModelFile
from tests.cli.fake_hy3core import GGUF, SPECIAL, Tokenizer

Run = Callable[..., Result]
Write = Callable[..., Path]

# Hy3's own shapes: 80 layers, the first dense, and the MTP layer.
METADATA = {
    "general.architecture": "hy_v3",
    "general.name": "Hy3",
    "hy_v3.block_count": 81,
    "hy_v3.nextn_predict_layers": 1,
    "hy_v3.embedding_length": 4096,
    "hy_v3.attention.head_count": 64,
    "hy_v3.attention.head_count_kv": 8,
    "hy_v3.attention.key_length": 128,
    "hy_v3.feed_forward_length": 13312,
    "hy_v3.leading_dense_block_count": 1,
    "hy_v3.expert_count": 192,
    "hy_v3.expert_used_count": 8,
    "hy_v3.expert_shared_count": 1,
    "hy_v3.expert_feed_forward_length": [1536] * 3,
    "hy_v3.context_length": 262144,
    "hy_v3.rope.freq_base": 11158840.0,
    "tokenizer.ggml.tokens": ["x"] * 120832,
}


def hy3_tensors() -> list[list[Any]]:
    def tensor(name: str, *shape: int) -> list[Any]:
        size = 1
        for dim in shape:
            size *= dim
        return [name, "f16", list(shape), 2 * size]

    tensors = [tensor("token_embd.weight", 4096, 120832), tensor("output.weight", 4096, 120832)]
    for n in range(81):
        block = f"blk.{n}"
        tensors += [tensor(f"{block}.attn_{part}.weight", 4096, 8192) for part in ("q", "output")]
        tensors += [tensor(f"{block}.attn_{part}.weight", 4096, 1024) for part in ("k", "v")]
        if n == 0:
            tensors += [tensor(f"{block}.ffn_{part}.weight", 4096, 13312) for part in ("gate", "up", "down")]
        else:
            tensors += [
                tensor(f"{block}.ffn_{part}_exps.weight", 4096, 1536, 192) for part in ("gate", "up", "down")
            ]
            tensors += [
                tensor(f"{block}.ffn_{part}_shexp.weight", 4096, 1536) for part in ("gate", "up", "down")
            ]
    return [*tensors, tensor("blk.80.nextn.eh_proj.weight", 8192, 4096)]


@pytest.fixture
def hy3_file(model: Write) -> Path:
    return model(metadata=METADATA, tensors=hy3_tensors())


def test_the_counts_are_the_published_ones(hy3_file: Path) -> None:
    counts = ModelFile(GGUF(str(hy3_file))).parameters()  # type: ignore[arg-type]
    assert round(counts["total"] / 1e9) == 295
    assert round(counts["active"] / 1e9) == 21
    assert round(counts["mtp"] / 1e9, 1) == 3.8


def test_the_kv_cache_is_counted_for_every_layer_and_the_mtp_layer(hy3_file: Path) -> None:
    file = ModelFile(GGUF(str(hy3_file)))  # type: ignore[arg-type]
    assert file.kv_bytes(1, "f16") == 2 * 8 * 128 * 2 * 81
    assert file.kv_bytes(1000, "f32") == 1000 * 2 * 8 * 128 * 4 * 81
    assert file.kv_bytes(1, "q8") == 2 * 8 * (128 + 4) * 81
    assert file.kv_bytes(1, "q4") == 2 * 8 * (64 + 4 * 2) * 81


def test_the_page(hy3: Run, hy3_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hy3.cli.inspect.available", lambda: 700 << 30)
    result = hy3("inspect", hy3_file, "-c", "32k")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:13] == [
        f"file           {hy3_file}",
        "name           Hy3",
        "architecture   hy_v3 (Hy3, runs as it is)",
        "parameters     295.0B, 20.6B active",
        "MTP layer      present, 3.8B parameters more",
        "layers         80, the first 1 dense; hidden 4096, vocabulary 120832",
        "attention      64 heads, 8 KV heads, head_dim 128",
        "experts        192, 8 used, 1 shared, FFN 1536",
        "dense FFN      13312",
        "context        262144, RoPE base 11158840.0",
        "f16            556.4 GiB in 810 tensors",
        "KV cache       10.1 GiB for 32768 tokens at f16",
        "memory         566.5 GiB for weights and KV cache; 700.0 GiB free: fits",
    ]
    assert "  tokenizer.ggml.tokens = 120832 entries: 'x', 'x', 'x', 'x', ..." in result.stdout
    assert "blk.0" not in result.stdout


def test_the_plan_for_a_million_tokens(hy3: Run, hy3_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hy3.cli.inspect.available", lambda: 700 << 30)
    lines = hy3("inspect", hy3_file, "-c", "1m", "--kv", "q4").stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("KV cache"))
    assert lines[at : at + 3] == [
        "KV cache       91.1 GiB for 1048576 tokens at q4",
        "memory         647.5 GiB for weights and KV cache; 700.0 GiB free: fits",
        "               1048576 tokens are more than the 262144 it was made for: --rope-factor 4",
    ]
    facts = json.loads(hy3("inspect", hy3_file, "-c", "300000", "--json").stdout)
    assert facts["memory"]["rope_factor"] == 1.15
    assert json.loads(hy3("inspect", hy3_file, "--json").stdout)["memory"]["rope_factor"] is None


def test_memory_that_is_not_there_is_said_so(
    hy3: Run, hy3_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hy3.cli.inspect.available", lambda: 16 << 30)
    assert "; 16.0 GiB free: does NOT fit" in hy3("inspect", hy3_file).stdout


def test_tensors_are_listed_on_request(hy3: Run, hy3_file: Path) -> None:
    lines = hy3("inspect", hy3_file, "--tensors").stdout.splitlines()
    assert lines[-1].split() == ["blk.80.nextn.eh_proj.weight", "f16", "8192", "x", "4096", "64.0", "MiB"]


def test_json_has_it_all(hy3: Run, hy3_file: Path) -> None:
    facts = json.loads(hy3("inspect", hy3_file, "--json", "--tensors", "--kv", "f32", "-c", 10).stdout)
    assert facts["shapes"]["experts_used"] == 8
    assert facts["memory"]["kv"] == 10 * facts["memory"]["kv_per_token"] == 10 * 2 * 8 * 128 * 4 * 81
    assert facts["memory"]["needed"] == facts["memory"]["weights"] + facts["memory"]["kv"]
    assert facts["memory"]["fits"] is (facts["memory"]["needed"] <= facts["memory"]["free"])
    assert facts["metadata"]["tokenizer.ggml.tokens"] == {"length": 120832, "first": ["x"] * 16}
    assert len(facts["tensors"]) == 810


@pytest.mark.parametrize(
    ("metadata", "tensors", "mtp"),
    [
        ({}, [], "none"),
        ({"hy_v3.nextn_predict_layers": 1, "hy_v3.block_count": 3}, [["blk.1.x", "f32", [1], 4]], "declared"),
        ({"hy_v3.nextn_predict_layers": 1, "hy_v3.block_count": 3}, [["blk.2.x", "f32", [1], 4]], "present"),
    ],
)
def test_mtp(hy3: Run, model: Write, metadata: dict, tensors: list, mtp: str) -> None:
    file = model(metadata={"general.architecture": "hy_v3", **metadata}, tensors=tensors)
    assert json.loads(hy3("inspect", file, "--json").stdout)["mtp"] == mtp


@pytest.mark.parametrize(
    ("metadata", "tensor", "line"),
    [
        ({"general.architecture": "llama"}, "x", "llama (not a Hy3 model: it will not run)"),
        ({}, "x", "none (not a Hy3 model: it will not run)"),
        ({"general.architecture": "hy-v3"}, "x", "hy-v3 (Hy3, runs as it is)"),
        (
            {"general.architecture": "hy_v3"},
            "blk.1.ffn_up_exps.3.up_proj.weight",
            "hy_v3 (the original hy3 engine's: convert first, with `hy3 convert`)",
        ),
    ],
)
def test_files_that_cannot_be_run_are_described(
    hy3: Run, model: Write, metadata: dict, tensor: str, line: str
) -> None:
    result = hy3("inspect", model(metadata=metadata, tensors=[[tensor, "q8_0", [32], 36]]))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2] == f"architecture   {line}"


def test_what_a_file_does_not_say_is_a_question_mark(hy3: Run, model: Write) -> None:
    result = hy3("inspect", model())
    assert "layers         ?, the first ? dense; hidden ?, vocabulary ?" in result.stdout
    assert "memory         0 KiB weights; the file does not say what the KV cache takes" in result.stdout


def test_hostile_strings_do_not_reach_the_terminal(hy3: Run, model: Write) -> None:
    file = model(
        metadata={
            "general.architecture": "\x1b[2J",
            "general.name": "a\udcffb\x1b",
            "k\x1b": "v\x1b",
            "nan": float("nan"),
        },
        tensors=[["t\x1b\udcff", "f32", [1], 4]],
    )
    result = hy3("inspect", file, "--tensors")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    facts = json.loads(hy3("inspect", file, "--tensors", "--json").stdout)
    assert (facts["name"], facts["metadata"]["nan"]) == ("a\ufffdb\x1b", "nan")


def test_tokenize_lists_ids_and_pieces(hy3: Run, model: Write) -> None:
    result = hy3("tokenize", "-m", model(), f"hello world{SPECIAL[1]}好")
    ids = Tokenizer().encode(f"hello world{SPECIAL[1]}好")
    pieces = ["'hello'", "' world'", f"'{SPECIAL[1]}'", r"b'\xe5'", r"b'\xa5'", r"b'\xbd'"]
    assert result.stdout.splitlines() == [f"{i:>6}  {piece}" for i, piece in zip(ids, pieces, strict=True)]
    assert result.stderr == "6 tokens\n"


def test_tokenize_as_json(hy3: Run, model: Write) -> None:
    result = hy3("tokenize", "-m", model(), "hello好", "--json")
    assert json.loads(result.stdout) == {
        "count": 4,
        "ids": Tokenizer().encode("hello好"),
        "pieces": ["hello", {"hex": "e5"}, {"hex": "a5"}, {"hex": "bd"}],
    }


def test_tokenize_takes_special_tokens_as_text_on_request(hy3: Run, model: Write) -> None:
    result = hy3("tokenize", "-m", model(), SPECIAL[1], "--plain", "--json")
    assert json.loads(result.stdout)["ids"] == Tokenizer().encode(SPECIAL[1], special=False)


def test_tokenize_reads_stdin(hy3: Run, model: Write) -> None:
    assert (
        hy3("tokenize", "-m", model(), input="hello\n").stdout
        == f"{Tokenizer().encode('hello')[0]:>6}  'hello'\n"
    )


def test_tokenize_wants_one_text(hy3: Run, model: Write) -> None:
    result = hy3("tokenize", "-m", model(), "a", "-f", "b")
    assert (result.exit_code, result.stderr) == (
        2,
        "hy3: error: Both TEXT and -f give a text. Give one of them. See `hy3 tokenize --help`.\n",
    )
