"""What is wrong with a source or a request is said by name, with what to do, and leaves no file behind."""

import errno
import json
import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import write_checkpoint, write_safetensors, write_weights
from support.convert_files import listing, run
from support.random_hy3 import Weights

from hy3.convert import Options, Override, convert
from hy3.convert.safetensors_file import read_header
from hy3.errors import Hy3Error

FP8 = {"quant_method": "compressed-tensors", "kv_cache_scheme": None}


@pytest.fixture
def m(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "m", shards=2, num_hidden_layers=2)
    return tmp_path / "m"


def refuse(source: Path, *wanted: str, options: Options | None = None) -> Hy3Error:
    out = source.parent / "out" / "x.gguf"
    out.parent.mkdir(exist_ok=True)
    with pytest.raises(Hy3Error) as raised:
        convert(source, out, options or Options())
    for text in wanted:
        assert text in str(raised.value), str(raised.value)
    assert listing(out.parent) == set()
    return raised.value


def change_json(path: Path, **values: Any) -> None:
    content = json.loads(path.read_text())
    content |= values
    path.write_text(json.dumps({key: value for key, value in content.items() if value != "DELETE"}))


def rewrite(m: Path, change: Callable[[Weights], object], dtype: str = "f32") -> None:
    """The checkpoint again in one file, with its weights changed."""
    for path in m.glob("model*"):
        path.unlink()
    _, weights = write_checkpoint(m.parent / "other", num_hidden_layers=2)
    change(weights)
    write_weights(m, weights, dtype)
    shutil.rmtree(m.parent / "other")


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"model_type": "DELETE"}, "model_type is None"),
        ({"attention_bias": True}, "'attention_bias' is true"),
        ({"mlp_bias": True}, "'mlp_bias' is true"),
        ({"qk_norm": False}, "'qk_norm' is false"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"hidden_size": "DELETE"}, "'hidden_size' is missing"),
        ({"hidden_size": "64"}, "'hidden_size' is '64'"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers' is 0"),
        ({"head_dim": 1.5}, "'head_dim' is 1.5"),
        ({"rms_norm_eps": -1}, "'rms_norm_eps' is -1"),
        ({"num_key_value_heads": 3}, "no multiple of 'num_key_value_heads' 3"),
        ({"num_experts_per_tok": 6}, "'num_experts_per_tok' 6 is more than 'num_experts' 5"),
        ({"num_local_experts": 7}, "contradict each other"),
        ({"expert_hidden_dim": 97}, "contradict each other"),
        ({"mlp_layer_types": ["dense"]}, "1 entries for 2 layers"),
        ({"mlp_layer_types": ["dense", "thin"]}, "'dense' and 'sparse' was expected"),
        ({"mlp_layer_types": ["sparse", "sparse"]}, "contradict each other"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is not supported"),
        ({"rope_scaling": {"type": "yarn", "factor": 0.5}}, "'factor' is 0.5"),
        ({"rope_scaling": "yarn"}, "'rope_scaling' is 'yarn'"),
        ({"quantization_config": FP8}, "FP8"),
        ({"eos_token_id": 301}, "'eos_token_id' is 301"),
    ],
)
def test_config(m: Path, values: dict[str, Any], wanted: str) -> None:
    change_json(m / "config.json", **values)
    refuse(m, "config.json", wanted)


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("config.json", None, "there is no such file"),
        ("config.json", "{", "not valid JSON"),
        ("config.json", "[]", "a JSON object was expected"),
        ("tokenizer.json", None, "there is no such file"),
        ("tokenizer.json", '{"model": {"type": "Unigram"}}', "'Unigram'"),
        ("model.safetensors.index.json", None, "neither model.safetensors.index.json nor model.safetensors"),
        ("model.safetensors.index.json", "{}", "'weight_map' is missing"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../b"}}', "not a file name"),
        ("model-00002-of-00002.safetensors", None, "model-00002-of-00002.safetensors of 2 shards missing"),
        ("model-00002-of-00002.safetensors", "short", "not a whole safetensors file"),
    ],
)
def test_files(m: Path, name: str, content: str | None, wanted: str) -> None:
    (m / name).unlink()
    if content is not None:
        (m / name).write_text(content)
    refuse(m, wanted)


def test_tensors_that_do_not_fit_are_listed_with_shapes(m: Path) -> None:
    def change(weights: Weights) -> None:
        del weights["model.layers.0.self_attn.k_proj.weight"]
        weights["model.layers.1.mlp.experts.3.up_proj.weight"] = np.ones((96, 65), np.float32)
        weights["model.layers.1.self_attn.q_proj.bias"] = np.ones(256, np.float32)

    rewrite(m, change)
    refuse(
        m,
        "1 tensor missing: model.layers.0.self_attn.k_proj.weight [128, 64]",
        "1 tensor of the wrong shape: model.layers.1.mlp.experts.3.up_proj.weight [96, 65], wanted [96, 64]",
        "1 tensor unknown: model.layers.1.self_attn.q_proj.bias [256]",
    )


def test_a_long_list_is_cut(m: Path) -> None:
    change_json(m / "config.json", num_hidden_layers=12)
    error = refuse(m, " tensors missing: ", " more")
    assert str(error).count("model.layers.") == 20


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I8", "F64"])
def test_dtypes(m: Path, dtype: str) -> None:
    rewrite(m, lambda weights: None)
    stored = {tensor.name: tensor for tensor in read_header(m / "model.safetensors", 0)}
    tensors = {}
    for name, tensor in stored.items():
        size = int(np.prod(tensor.shape))
        if name.endswith("o_proj.weight"):
            tensors[name] = (dtype, tensor.shape, bytes(size * (8 if dtype == "F64" else 1)))
        else:
            tensors[name] = ("F32", tensor.shape, bytes(size * 4))
    write_safetensors(m / "model.safetensors", tensors)
    refuse(m, "o_proj", "FP8" if dtype.startswith("F8") else f"o_proj.weight {dtype}")


def test_fp8_scales(m: Path) -> None:
    rewrite(
        m, lambda weights: weights.update({"model.layers.0.mlp.up_proj.weight_scale": np.ones(1, np.float32)})
    )
    refuse(m, "FP8 is not supported yet", "weight_scale")


@pytest.mark.parametrize(
    ("kind", "part", "value"),
    [
        ("q4_k", "self_attn.q_proj.weight", np.nan),
        ("f32", "self_attn.q_proj.weight", np.nan),
        ("q4_k", "input_layernorm.weight", np.inf),
        ("q4_k", "mlp.expert_bias", np.nan),
        ("bf16", "mlp.experts.2.down_proj.weight", -np.inf),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_nan_names_the_tensor(m: Path, kind: str, part: str, value: float, dtype: str) -> None:
    def change(weights: Weights) -> None:
        weights[f"model.layers.1.{part}"].reshape(-1)[3] = value

    rewrite(m, change, dtype)
    names = {"self": "attn_q.weight", "inpu": "attn_norm.weight"}
    names |= {"mlp.": "exp_probs_b" if "bias" in part else "ffn_down_exps.weight"}
    refuse(m, f"tensor 'blk.1.{names[part[:4]]}'", "was removed", options=Options(type=kind))


def patch_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda h: h[NORM].update(data_offsets=[0, 10**15]), "lies outside the file"),
        (lambda h: h[NORM].update(data_offsets=[-4, 252]), "lies outside the file"),
        (lambda h: h[NORM].update(shape=[65]), "256 bytes stored, 260 needed"),
        (lambda h: h[NORM].update(shape=[2**62, 4]), "needed for F32"),
        (lambda h: h[NORM].update(shape="wide"), "broken shape 'wide'"),
        (lambda h: h[NORM].update(dtype="Q7"), "unknown dtype 'Q7'"),
        (lambda h: h.update({NORM: 5}), "not an object"),
        (lambda h: h.update({"x": {**h[NORM]}}), "overlaps the one before it"),
        (lambda h: h.pop(NORM), "leaves a gap of 256 bytes before it"),
    ],
)
def test_broken_safetensors_headers(m: Path, change: Callable[[dict[str, Any]], object], wanted: str) -> None:
    rewrite(m, lambda weights: None)
    patch_header(m / "model.safetensors", change)
    refuse(m, "model.safetensors", wanted)


def test_truncated_safetensors(m: Path) -> None:
    rewrite(m, lambda weights: None)
    with (m / "model.safetensors").open("r+b") as file:
        file.truncate((m / "model.safetensors").stat().st_size - 1)
    refuse(m, "lies outside the file")


def test_index_and_shards_disagree(m: Path) -> None:
    path = m / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.layers.9.ghost"] = "model-00001-of-00002.safetensors"
    path.write_text(json.dumps(index))
    refuse(m, "model.layers.9.ghost (in model-00001-of-00002.safetensors)")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda t: t["model"]["vocab"].update(zz=301), "'zz' has id 301, the embedding has 301 rows"),
        (lambda t: t["model"]["vocab"].update(zz=5), "id 5 is both"),
        (lambda t: t["model"].update(merges=[["q", "zebra"]]), "1 broken merges: ['q', 'zebra']"),
        (lambda t: t["model"].update(merges=["one"]), "1 broken merges: 'one'"),
        (lambda t: t["model"].update(byte_fallback=True), "'byte_fallback'"),
        (lambda t: t.update(normalizer={"type": "Lowercase"}), "Lowercase"),
        (lambda t: t["added_tokens"].append({"id": "x"}), "broken entry among the added tokens"),
    ],
)
def test_tokenizer(m: Path, change: Callable[[dict[str, Any]], object], wanted: str) -> None:
    path = m / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    refuse(m, "tokenizer.json", wanted)


def test_sources_that_are_none(tmp_path: Path, m: Path) -> None:
    refuse(tmp_path / "absent", "no such file or directory")
    refuse(m / "config.json", "one file of a checkpoint")


def test_overrides_that_cannot_be(m: Path) -> None:
    for text, wanted in {
        "q6_k": "not of the form PATTERN=TYPE",
        "*=q9_z": "'q9_z' is not a type that can be written",
        "*=iq2_xxs": "'iq2_xxs' is not a type that can be written",
        "re:(=f16": "regular expression",
    }.items():
        with pytest.raises(Hy3Error, match=wanted.replace("(", "\\(")):
            Override.parse(text)
    refuse(m, "--type blk.7.*=f16 matches no", options=Options(overrides=(Override("blk.7.*", "f16"),)))
    refuse(m, "matches no", options=Options(overrides=(Override("*norm*", "f16"),)))


def test_contradicting_mtp_options(m: Path) -> None:
    refuse(m, "leave nothing", options=Options(no_mtp=True, mtp_only=True))
    refuse(m, "has no MTP layer", options=Options(mtp_only=True))


def test_outputs_that_cannot_be(tmp_path: Path, m: Path) -> None:
    with pytest.raises(Hy3Error, match="is a directory"):
        convert(m, tmp_path)
    with pytest.raises(Hy3Error, match="no such directory"):
        convert(m, tmp_path / "absent" / "x.gguf")
    convert(m, tmp_path / "x.gguf")
    content = (tmp_path / "x.gguf").read_bytes()
    with pytest.raises(Hy3Error, match="exists"):
        convert(m, tmp_path / "x.gguf", Options(type="f32"))
    for force in (False, True):
        with pytest.raises(Hy3Error, match="is the source itself"):
            convert(tmp_path / "x.gguf", tmp_path / "x.gguf", force=force)
    assert (tmp_path / "x.gguf").read_bytes() == content
    convert(m, tmp_path / "x.gguf", Options(type="f32"), force=True)
    assert (tmp_path / "x.gguf").read_bytes() != content


def test_not_enough_space(m: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 1000, 1000))
    refuse(m, "not enough space", " bytes needed, 1,000 bytes free")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_disk_that_fails_in_the_middle(m: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    whole = m.parent / "whole.gguf"
    convert(m, whole)
    real, calls = os.pwrite, 0

    def failing(fd: int, data: Any, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 20:
            raise OSError(code, os.strerror(code))
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", failing)
    out = m.parent / "x.gguf"
    with pytest.raises(Hy3Error) as raised:
        convert(m, out)
    assert ("no space left" in str(raised.value)) == (code != errno.EIO)
    assert "--resume continues it" in str(raised.value)
    assert {name for name in listing(m.parent) if name.startswith("x.")} == {
        "x.gguf.partial",
        "x.gguf.partial.journal",
    }
    monkeypatch.undo()
    convert(m, out, resume=True)
    assert out.read_bytes() == whole.read_bytes()


def test_source_that_shrinks_meanwhile(m: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: 0)
    with pytest.raises(Hy3Error, match=r"ends at byte .* where tensor data was expected.*is kept"):
        convert(m, m.parent / "x.gguf")


def test_on_the_command_line(m: Path) -> None:
    out = m.parent / "x.gguf"
    done = run(m, "-o", out, "-t", "q8_0", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = run(m, "-o", out, "-t", "q8_0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"hy3: error: {out} exists. --force overwrites it.\n"
    done = run(m, "-o", out, "--force", "-t", "q8_0")
    assert done.returncode == 0 and "100%" in done.stderr and f"wrote {out}" in done.stderr
    for arguments, wanted in {
        ("-t", "q9"): "'q9' is not one of",
        ("--type", "x=q9"): "'q9' is not a type",
        ("--split-max-size", "big"): "'big' is not a size",
        ("--threads", "0"): "'--threads'",
        (): "Missing option '-o'",
    }.items():
        done = run(m, *(("-o", out, *arguments) if arguments else ()))
        assert done.returncode == 2 and wanted in done.stderr and "Traceback" not in done.stderr, done.stderr
