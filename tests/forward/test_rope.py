"""RoPE's table against what `transformers` computed (tests/data/rope/make.py), and its options."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.compare import same_bytes
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model
from support.rope_cases import CASES, open_model

import hy3core

TABLES = json.loads((Path(__file__).parents[1] / "data/rope/tables.json").read_text())
CONFIG = make_config(num_hidden_layers=1)
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 512}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "model.gguf"
    return write_model(path, CONFIG, make_weights(CONFIG, seed=1), in_type("f16"))


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("yarn") / "model.gguf"
    config = CONFIG | {"rope_parameters": YARN}
    return write_model(path, config, make_weights(config, seed=1), in_type("f16"))


@pytest.mark.parametrize("name", CASES)
def test_the_table_is_that_of_transformers(name: str, tmp_path: Path, report: Callable[[str], None]) -> None:
    table = TABLES[name]
    got, scale = open_model(tmp_path, name).rope
    error = float(np.abs(got / np.array(table["inv_freq"], dtype=np.float32) - 1).max())
    report(f"golden RoPE table {name}: within {error:.1e} of transformers (limit 1e-6)")
    assert error < 1e-6
    assert scale == pytest.approx(table["attention_factor"], rel=1e-6)


def test_off_is_bit_equal_to_the_plain_table(plain: Path, yarn: Path) -> None:
    half, theta = CONFIG["head_dim"] // 2, CONFIG["rope_parameters"]["rope_theta"]
    exponents = np.arange(half, dtype=np.float32) * 2 / np.float32(CONFIG["head_dim"])
    expected = np.float32(1) / (theta ** exponents.astype(np.float64)).astype(np.float32)
    default, off = hy3core.Model(str(plain)), hy3core.Model(str(plain), rope_factor=1.0)
    assert same_bytes(default.rope[0], expected)
    assert same_bytes(off.rope[0], expected)
    assert (default.rope[1], off.rope[1]) == (1.0, 1.0)
    tokens = make_tokens(CONFIG, 70, seed=2)
    assert same_bytes(default.session(ctx=128).eval(tokens), off.session(ctx=128).eval(tokens))
    # A file with YaRN can be run without.
    tame = hy3core.Model(str(yarn), rope_factor=1.0)
    assert tame.rope[1] == 1.0
    assert tame.config.rope_factor == 1.0


def test_the_options_do_what_the_keys_do(plain: Path, yarn: Path) -> None:
    by_key = hy3core.Model(str(yarn))
    theta = make_config(num_hidden_layers=1, rope_parameters=YARN | {"rope_type": "default"})
    path = write_model(plain.parent / "theta.gguf", theta, make_weights(theta, seed=1), in_type("f16"))
    by_option = hy3core.Model(str(path), rope_factor=4.0, rope_ctx=512)
    assert same_bytes(by_key.rope[0], by_option.rope[0])
    assert by_key.rope[1] == by_option.rope[1] == pytest.approx(1.1386294)
    # Another factor stretches what the file's model was trained at, not what the file's factor made of it.
    again = hy3core.Model(str(yarn), rope_factor=8.0)
    assert same_bytes(again.rope[0], hy3core.Model(str(path), rope_factor=8.0, rope_ctx=512).rope[0])
    assert again.config.ctx == 8 * 512


def test_the_context_grows_by_the_factor(plain: Path) -> None:
    trained = CONFIG["max_position_embeddings"]
    assert hy3core.Model(str(plain)).config.ctx == trained
    assert hy3core.Model(str(plain), rope_factor=4.0).config.ctx == 4 * trained
    assert hy3core.Model(str(plain), rope_factor=4.0, rope_ctx=2 * trained).config.ctx == 8 * trained
    assert hy3core.Model(str(plain), rope_factor=2.0, rope_ctx=16).config.ctx == trained


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"rope_factor": 0.5}, "rope_factor is 0.5"),
        ({"rope_factor": float("nan")}, "rope_factor is"),
        ({"rope_factor": 2000.0}, "rope_factor is 2000"),
        ({"rope_factor": 2.0, "rope_ctx": -1}, "rope_ctx is -1"),
        ({"rope_factor": 2.0, "rope_beta_fast": -1.0}, "rope_beta_fast is -1"),
        ({"rope_factor": 2.0, "rope_beta_slow": float("inf")}, "rope_beta_slow is inf"),
        ({"rope_factor": 2.0, "rope_attention_factor": float("nan")}, "rope_attention_factor is"),
        ({"rope_ctx": 512}, "adjust YaRN, which is off"),
        ({"rope_factor": 1.0, "rope_attention_factor": 1.1}, "adjust YaRN, which is off"),
    ],
)
def test_options_that_make_no_sense(plain: Path, options: dict[str, Any], part: str) -> None:
    with pytest.raises(hy3core.Error, match=part):
        hy3core.Model(str(plain), **options)
