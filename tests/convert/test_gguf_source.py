"""GGUF to GGUF: requantizing, the variants real files use, the original engine's dialect, splitting and
merging."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import write_checkpoint
from support.convert_files import converted, encoded, metadata, tensors
from support.gguf_files import write_gguf
from support.random_hy3 import fused, gguf_metadata, gguf_weights, make_config, make_weights

import hy3core
from hy3.convert import Options, convert
from hy3.errors import Hy3Error

Parts = tuple[dict[str, Any], dict[str, np.ndarray]]  # metadata; float32 arrays by GGUF name
MTP: dict[str, Any] = {"num_nextn_predict_layers": 1}


def parts(**changes: Any) -> Parts:
    config = make_config(**{"num_hidden_layers": 2, **changes})
    return gguf_metadata(config), gguf_weights(config, make_weights(config, seed=1))


def write_f32(path: Path, keys: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
    return write_gguf(path, keys, [(name, a.shape, "f32", encoded(a, "f32")) for name, a in arrays.items()])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A checkpoint with an MTP layer, converted to f32."""
    write_checkpoint(tmp_path / "m", hidden_size=256, moe_intermediate_size=256, **MTP)
    convert(tmp_path / "m", tmp_path / "f32.gguf", Options(type="f32"))
    return tmp_path


def test_requantizing_equals_converting_where_nothing_was_lost(model: Path) -> None:
    for kind in ("q4_k", "q8_0", "bf16", "mxfp4"):
        convert(model / "m", model / "direct.gguf", Options(type=kind), force=True)
        convert(model / "f32.gguf", model / "again.gguf", Options(type=kind), force=True)
        assert tensors(model / "again.gguf") == tensors(model / "direct.gguf"), kind
        assert metadata(model / "again.gguf") == metadata(model / "direct.gguf"), kind


def test_requantizing_goes_through_float32(model: Path) -> None:
    convert(model / "m", model / "q8.gguf", Options(type="q8_0"))
    convert(model / "q8.gguf", model / "out.gguf", Options(type="q4_0"))
    name = "blk.1.ffn_up_exps.weight"
    before, after = tensors(model / "q8.gguf")[name], tensors(model / "out.gguf")[name]
    experts, rows, cols = before.shape
    assert after.type == "q4_0"
    assert after.data == converted(before.data, "q8_0", "q4_0", experts * rows, cols)


def test_same_type_keeps_the_bytes(model: Path) -> None:
    convert(model / "m", model / "a.gguf", Options(type="q4_k"))
    convert(model / "a.gguf", model / "b.gguf", Options(type="q4_k"))
    assert (model / "a.gguf").read_bytes() == (model / "b.gguf").read_bytes()


@pytest.mark.parametrize("size", [60_000, 500_000, 3_000_000])
def test_split_and_merge_round_trip(model: Path, size: int) -> None:
    convert(model / "m", model / "one.gguf", Options(type="q4_k"))
    files = convert(model / "one.gguf", model / "s.gguf", Options(type="copy", split_max_size=size))
    assert len(files) > 1
    large = max(len(entry.data) for entry in tensors(model / "one.gguf").values())
    assert all(path.stat().st_size <= max(size, large + 10_000) for path in files)
    convert(files[0], model / "merged.gguf", Options(type="copy"))
    assert (model / "merged.gguf").read_bytes() == (model / "one.gguf").read_bytes()


def test_split_keys(model: Path) -> None:
    files = convert(model / "f32.gguf", model / "s.gguf", Options(type="copy", split_max_size=3_000_000))
    n_tensors = len(tensors(model / "f32.gguf"))
    for number, path in enumerate(files):
        alone = model / "alone.gguf"  # under another name a part is read by itself
        alone.write_bytes(path.read_bytes())
        keys, kinds = read_header(alone)
        assert [keys[f"split.{key}"] for key in ("no", "count", "tensors.count")] == [
            number,
            len(files),
            n_tensors,
        ]
        assert [kinds[f"split.{key}"] for key in ("no", "count", "tensors.count")] == ["u16", "u16", "i32"]
        assert ("general.architecture" in keys) == (number == 0)


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Keys and kinds of one file, the few kinds that split files have in their header's beginning or
    alone."""
    import struct

    kinds = {0: "u8", 2: "u16", 3: "i16", 4: "u32", 5: "i32", 6: "f32", 7: "bool", 8: "str", 9: "array"}
    formats = {"u8": "B", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f", "bool": "?"}
    data = path.read_bytes()
    at = 24

    def number(form: str) -> Any:
        nonlocal at
        (value,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def text() -> str:
        nonlocal at
        size = number("Q")
        at += size
        return data[at - size : at].decode()

    keys: dict[str, Any] = {}
    found: dict[str, str] = {}
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        name = text()
        kind = kinds[number("I")]
        found[name] = kind
        if kind == "array":
            of = kinds[number("I")]
            keys[name] = [text() if of == "str" else number(formats[of]) for _ in range(number("Q"))]
        else:
            keys[name] = text() if kind == "str" else number(formats[kind])
    return keys, found


def test_parts_of_the_model(model: Path) -> None:
    everything = tensors(model / "f32.gguf")
    convert(model / "f32.gguf", model / "trunk.gguf", Options(type="copy", no_mtp=True))
    convert(model / "f32.gguf", model / "mtp.gguf", Options(type="copy", mtp_only=True))
    mtp = {name for name in everything if name.startswith("blk.3.")}
    ends = {"token_embd.weight", "output_norm.weight", "output.weight"}
    assert set(tensors(model / "trunk.gguf")) == set(everything) - mtp
    assert set(tensors(model / "mtp.gguf")) == mtp | ends
    assert metadata(model / "trunk.gguf")["hy_v3.block_count"] == 3
    # An MTP-only file is a source as well.
    convert(model / "mtp.gguf", model / "again.gguf", Options(type="copy"))
    assert (model / "again.gguf").read_bytes() == (model / "mtp.gguf").read_bytes()
    with pytest.raises(Hy3Error, match="nothing but an MTP layer"):
        convert(model / "mtp.gguf", model / "none.gguf", Options(no_mtp=True))
    with pytest.raises(Hy3Error, match="has no MTP layer"):
        convert(model / "trunk.gguf", model / "none.gguf", Options(mtp_only=True))


def test_trunk_only_file_that_declares_an_mtp_layer(tmp_path: Path) -> None:
    keys, arrays = parts(**MTP)
    trunk = {name: a for name, a in arrays.items() if not name.startswith("blk.2.")}
    convert(write_f32(tmp_path / "in.gguf", keys, trunk), tmp_path / "out.gguf", Options(type="copy"))
    assert set(tensors(tmp_path / "out.gguf")) == set(trunk)
    counts = metadata(tmp_path / "out.gguf")
    assert (counts["hy_v3.block_count"], counts["hy_v3.nextn_predict_layers"]) == (2, 0)


def test_fused_tensors_are_cut_into_the_standard_ones(tmp_path: Path) -> None:
    keys, arrays = parts(**MTP)
    convert(write_f32(tmp_path / "in.gguf", keys, fused(arrays)), tmp_path / "out.gguf", Options(type="copy"))
    found = tensors(tmp_path / "out.gguf")
    assert {name: entry.data for name, entry in found.items()} == {
        n: encoded(a, "f32") for n, a in arrays.items()
    }


def test_fused_and_quantized_tensors_are_cut_without_loss(tmp_path: Path) -> None:
    keys, arrays = parts()
    name = "blk.1.ffn_{}_exps.weight"
    gate, up = arrays[name.format("gate")], arrays[name.format("up")]
    cols = gate.shape[-1]
    halves = [converted(encoded(a, "f32"), "f32", "q8_0", a.size // cols, cols) for a in (gate, up)]
    split = [np.frombuffer(half, np.uint8).reshape(gate.shape[0], -1) for half in halves]
    stored = [
        (n, a.shape, "f32", encoded(a, "f32")) for n, a in arrays.items() if a is not gate and a is not up
    ]
    shape = (gate.shape[0], 2 * gate.shape[1], cols)
    stored.append((name.format("gate_up"), shape, "q8_0", np.concatenate(split, axis=1).tobytes()))
    write_gguf(tmp_path / "in.gguf", keys, stored)
    convert(tmp_path / "in.gguf", tmp_path / "out.gguf", Options(type="copy"))
    found = tensors(tmp_path / "out.gguf")
    assert [found[name.format(x)].data for x in ("gate", "up")] == halves


def test_other_names(tmp_path: Path) -> None:
    """Architecture `hy-v3` (ds4 forks), the selection bias with `.bias`, numbers per layer."""
    keys, arrays = parts(**MTP)
    renamed = {key.replace("hy_v3.", "hy-v3."): value for key, value in keys.items()}
    renamed["general.architecture"] = "hy-v3"
    renamed["hy-v3.expert_feed_forward_length"] = [96, 96, 96]
    arrays = {name + ".bias" if name.endswith("exp_probs_b") else name: a for name, a in arrays.items()}
    write_f32(tmp_path / "in.gguf", renamed, arrays)
    convert(tmp_path / "in.gguf", tmp_path / "out.gguf", Options(type="f32", no_mtp=True))
    found = metadata(tmp_path / "out.gguf")
    assert found["general.architecture"] == "hy_v3"
    assert not [key for key in found if key.startswith("hy-v3")]
    assert list(found["hy_v3.expert_feed_forward_length"]) == [96, 96]
    assert "blk.1.exp_probs_b" in tensors(tmp_path / "out.gguf")


def hy3_q8_0(array: np.ndarray) -> bytes:
    """The original engine's Q8_0: 36-byte blocks, the scale in float32."""
    rows = array.astype(np.float32).reshape(-1, 32)
    scale = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
    quants = np.rint(rows / np.where(scale == 0, 1, scale)).astype(np.int8)
    return np.concatenate([scale.astype("<f4").view(np.uint8), quants.view(np.uint8)], axis=1).tobytes()


def write_original(path: Path, keys: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same model as the original hy3 engine would have written it; returns what its Q8_0 blocks hold."""
    from support.gguf_files import build_gguf

    glue = {"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "shared_head_norm": "final_norm"}
    stored: list[tuple[str, tuple[int, ...], str, bytes]] = []
    held: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if name.endswith("_exps.weight"):
            at, part = name.removesuffix(".weight"), name.split("_")[-2]
            for e, expert in enumerate(array):
                stored.append((f"{at}.{e}.{part}_proj.weight", expert.shape, "q8_0", hy3_q8_0(expert)))
            raw = np.frombuffer(hy3_q8_0(array), np.uint8).reshape(-1, 36)
            values = raw[:, :4].copy().view("<f4") * raw[:, 4:].view(np.int8).astype(np.float32)
            held[name] = values.reshape(array.shape)
            continue
        other = name.replace("exp_probs_b", "ffn_gate_exps_b.bias")
        for ours, theirs in glue.items():
            other = other.replace(f"nextn.{ours}.", f"{theirs}.")
        stored.append((other, array.shape, "f32", encoded(array, "f32")))
        held[name] = array
    lost = (
        "tokenizer.ggml.merges",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.pre",
        "hy_v3.expert_gating_func",
    )
    keys = {key: value for key, value in keys.items() if key not in lost}
    keys["hy_v3.rope.freq_base"] = 11158840
    keys["hy_v3.rope.dimension_count"] = 64 if keys["hy_v3.attention.key_length"] != 64 else 32
    keys["tokenizer.ggml.scores"] = [0.0] * len(keys["tokenizer.ggml.tokens"])
    path.write_bytes(build_gguf(keys, stored).data)
    return held


def test_the_original_engines_dialect(tmp_path: Path) -> None:
    keys, arrays = parts(**MTP)
    held = write_original(tmp_path / "in.gguf", keys, arrays)
    assert hy3core.GGUF(str(tmp_path / "in.gguf")).dialect == "hy3_original"
    convert(tmp_path / "in.gguf", tmp_path / "out.gguf", Options(type="f32"))
    found = tensors(tmp_path / "out.gguf")
    assert {name: entry.data for name, entry in found.items()} == {
        n: encoded(a, "f32") for n, a in held.items()
    }
    got = metadata(tmp_path / "out.gguf")
    for key, value in keys.items():
        if key.startswith("hy_v3."):
            assert got[key] == (np.float32(value) if isinstance(value, float) else value), key
    assert "tokenizer.ggml.scores" not in got
    assert got["tokenizer.ggml.pre"] == "hunyuan-dense"
    tokens = list(got["tokenizer.ggml.tokens"])
    types = dict(zip(tokens, got["tokenizer.ggml.token_type"], strict=True))
    assert types == dict(zip(tokens, keys["tokenizer.ggml.token_type"], strict=True))
    assert sorted(got["tokenizer.ggml.merges"]) == sorted(keys["tokenizer.ggml.merges"])
    convert(tmp_path / "in.gguf", tmp_path / "copy.gguf", Options(type="copy"))
    assert tensors(tmp_path / "copy.gguf")["blk.1.ffn_up_exps.weight"].type == "q8_0"


def test_wrong_tensors_are_listed(tmp_path: Path) -> None:
    keys, arrays = parts()
    del arrays["blk.1.attn_k.weight"]
    arrays["blk.1.attn_v.weight"] = arrays["blk.1.attn_v.weight"][:-1]
    arrays["blk.0.rope_freqs.weight"] = np.ones(8, np.float32)
    write_f32(tmp_path / "in.gguf", keys, arrays)
    with pytest.raises(Hy3Error) as raised:
        convert(tmp_path / "in.gguf", tmp_path / "out.gguf", Options())
    text = str(raised.value)
    assert "missing: blk.1.attn_k.weight [64, 128]" in text
    assert "wrong shape: blk.1.attn_v.weight [64, 127], wanted [64, 128]" in text
    assert "unknown: blk.0.rope_freqs.weight [8]" in text
    assert {path.name for path in tmp_path.iterdir()} == {"in.gguf"}


def test_another_architecture(tmp_path: Path) -> None:
    keys, arrays = parts()
    write_f32(tmp_path / "in.gguf", keys | {"general.architecture": "llama"}, arrays)
    with pytest.raises(Hy3Error, match="'llama'"):
        convert(tmp_path / "in.gguf", tmp_path / "out.gguf", Options())


def test_pre_tokenizer_override(tmp_path: Path) -> None:
    write_f32(tmp_path / "in.gguf", *parts())
    convert(tmp_path / "in.gguf", tmp_path / "out.gguf", Options(pre="hunyuan"))
    assert metadata(tmp_path / "out.gguf")["tokenizer.ggml.pre"] == "hunyuan"
    with pytest.raises(Hy3Error, match="--pre gpt5"):
        convert(tmp_path / "in.gguf", tmp_path / "no.gguf", Options(pre="gpt5"))
