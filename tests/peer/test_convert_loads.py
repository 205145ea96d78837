"""What `hy3 convert` writes loads in llama.cpp: from each checkpoint layout, in every type, with and without
the MTP layer, split; with the same vocabulary, and logits that are numbers.

What it computes is compared in test_llama_cpp.py. Each file is loaded in a process of its own: llama.cpp ends
the process on some errors.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import TAGS, write_checkpoint
from support.random_hy3 import SPECIALS, vocabulary

from hy3.convert import LAYOUTS, Options, convert

pytestmark = pytest.mark.peer

SIZE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 256}

PROGRAM = """
import ctypes, json, sys
import numpy as np
import llama_cpp as c

path, run = sys.argv[1], sys.argv[2] == "run"
c.llama_backend_init()
params = c.llama_model_default_params()
params.use_extra_bufts = False  # repacked for AMX it dies on machines that announce AMX and do not grant it
model = c.llama_model_load_from_file(path.encode(), params)
if not model:
    sys.exit("not loaded")
vocab = c.llama_model_get_vocab(model)
text = sys.argv[3].encode()
tokens = (c.llama_token * 512)()
count = c.llama_tokenize(vocab, text, len(text), tokens, 512, False, True)
finite = None
if run:
    options = c.llama_context_default_params()
    options.n_ctx, options.n_threads, options.n_threads_batch = 64, 1, 1
    context = c.llama_init_from_model(model, options)
    assert c.llama_decode(context, c.llama_batch_get_one(tokens, count)) == 0
    logits = np.ctypeslib.as_array(c.llama_get_logits_ith(context, -1), (c.llama_vocab_n_tokens(vocab),))
    finite = bool(np.isfinite(logits).all()) and float(logits.std()) > 0
print("RESULT", json.dumps({
    "vocab": c.llama_vocab_n_tokens(vocab), "tokens": list(tokens[:count]), "finite": finite,
    "bos": c.llama_vocab_bos(vocab), "eos": c.llama_vocab_eos(vocab), "eot": c.llama_vocab_eot(vocab),
    "adds_bos": bool(c.llama_vocab_get_add_bos(vocab)), "layers": c.llama_model_n_layer(model),
}))
"""


def load(path: Path, text: str = "the in", run: bool = True) -> dict[str, Any]:
    argv = [sys.executable, "-c", PROGRAM, str(path), "run" if run else "load", text]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return result


@pytest.mark.parametrize("dialect", ["4.57", "5.x"])
@pytest.mark.parametrize("layout", ["hub", "packed"])
def test_layouts_and_dialects(tmp_path: Path, layout: str, dialect: str) -> None:
    config, _ = write_checkpoint(
        tmp_path / "m",
        layout=layout,
        dialect=dialect,
        shards=2,
        dtype="bf16",
        num_nextn_predict_layers=1,
        **SIZE,
    )
    convert(tmp_path / "m", tmp_path / "x.gguf", Options())
    tokens, _ = vocabulary(config["vocab_size"])
    text = f"{SPECIALS['bos_token_id']}the in{TAGS[0]}{SPECIALS['eot_token_id']}"
    result = load(tmp_path / "x.gguf", text)
    assert result["finite"]
    assert result["vocab"] == config["vocab_size"]
    assert result["layers"] == config["num_hidden_layers"]
    assert not result["adds_bos"]
    for name, key in {"bos": "bos_token_id", "eos": "eos_token_id", "eot": "eot_token_id"}.items():
        assert result[name] == tokens.index(SPECIALS[key])
    first_tag = tokens.index(list(SPECIALS.values())[-1]) + 1
    assert result["tokens"] == [
        *[tokens.index(text) for text in (SPECIALS["bos_token_id"], "the", "Ġ", "in")],
        first_tag,
        tokens.index(SPECIALS["eot_token_id"]),
    ]


@pytest.mark.parametrize("kind", [name for name in LAYOUTS if name != "copy"])
def test_types(tmp_path: Path, kind: str) -> None:
    write_checkpoint(tmp_path / "m", num_nextn_predict_layers=1, **SIZE)
    convert(tmp_path / "m", tmp_path / "x.gguf", Options(type=kind))
    assert load(tmp_path / "x.gguf")["finite"]


def test_mtp_variants_and_split_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", num_nextn_predict_layers=1, **SIZE)
    convert(tmp_path / "m", tmp_path / "trunk.gguf", Options(no_mtp=True))
    assert load(tmp_path / "trunk.gguf")["finite"]
    convert(tmp_path / "m", tmp_path / "mtp.gguf", Options(mtp_only=True))
    assert load(tmp_path / "mtp.gguf", run=False)["layers"] == 3
    files = convert(tmp_path / "m", tmp_path / "s.gguf", Options(split_max_size=500_000))
    assert len(files) > 2
    assert load(files[0])["finite"]


def test_unusual_models(tmp_path: Path) -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "attention_factor": 1.3}
    yarn["original_max_position_embeddings"] = 512
    for number, changes in enumerate(
        [
            {"tie_word_embeddings": True, "num_shared_experts": 2},
            {"num_hidden_layers": 4, "mlp_layer_types": ["dense", "sparse", "dense", "sparse"]},
            {"rope_parameters": yarn, "moe_intermediate_size": 80},  # rows of 80: stored as f16
        ]
    ):
        write_checkpoint(tmp_path / f"{number}", dialect="5.x", **{**SIZE, **changes})
        convert(tmp_path / f"{number}", tmp_path / f"{number}.gguf", Options())
        assert load(tmp_path / f"{number}.gguf")["finite"], changes
