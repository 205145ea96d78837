"""What goes into each weight: against NumPy's forward pass, and to the bit whatever way it was computed."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.numpy_hy3 import Cache, Hy3
from support.random_blocks import in_blocks
from support.random_hy3 import (
    fused,
    gguf_weights,
    in_type,
    make_config,
    make_tokens,
    make_weights,
    write_model,
    write_parts,
)

import hy3core

N = 41
Sums = dict[str, tuple[np.ndarray, np.ndarray]]


class Recording(Hy3):
    """Remembers what each linear layer was given."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.inputs: dict[str, list[np.ndarray]] = defaultdict(list)

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        self.inputs[name].append(x)
        return super().linear(x, name)


def expected(config: dict[str, Any], weights: dict[str, np.ndarray], tokens: list[int], mtp: bool) -> Sums:
    model = Recording(config, weights)
    hidden = model.forward(tokens).hidden
    model.inputs["lm_head"] = [hidden[:-1]]  # score() needs no logits after the last token
    if mtp:
        model.mtp(tokens[1:], hidden[:-1], Cache())
    out: Sums = {}
    for name, inputs in model.inputs.items():
        if name.endswith(".router.gate"):
            continue
        x = np.concatenate(inputs)
        squares, count = (x * x).sum(axis=0), len(x)
        if ".experts." in name:
            layer, rest = name.removeprefix("model.layers.").split(".mlp.experts.")
            expert, part = rest.split(".")
            key, row = f"blk.{layer}.ffn_{part.removesuffix('_proj')}_exps.weight", int(expert)
        else:
            key, row = next(iter(gguf_weights(config, {name + ".weight": weights[name + ".weight"]}))), 0
        n = config["num_experts"] if "_exps" in key else 1
        sums, counts = out.setdefault(key, (np.zeros((n, len(squares))), np.zeros(n, np.int64)))
        sums[row] += squares
        counts[row] += count
    return out


def collect(
    path: Path, tokens: list[int], backend: str = "cpu", threads: int = 1, chunk: int = 64, mtp: bool = False
) -> Sums:
    model = hy3core.Model(str(path), backend=backend, threads=threads)
    with model.collect_importance() as collector:
        model.session(ctx=128, kv="f32", chunk=chunk, mtp=mtp).score(tokens)
        return {name: (collector.sums(name), collector.counts(name)) for name in collector.names}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("mtp", [False, True])
def test_sums_are_those_of_numpy(tmp_path: Path, backend: str, mtp: bool) -> None:
    config = make_config(num_nextn_predict_layers=int(mtp), num_experts=6)
    weights = make_weights(config, seed=3)
    path = write_model(tmp_path / "m.gguf", config, weights, in_type("f32"))
    tokens = make_tokens(config, N, seed=4)
    wanted, got = expected(config, weights, tokens, mtp), collect(path, tokens, backend, mtp=mtp)
    assert set(got) == set(wanted)
    for name, (sums, counts) in wanted.items():
        assert got[name][1].tolist() == counts.tolist(), name
        np.testing.assert_allclose(got[name][0], sums, rtol=2e-4, atol=1e-6, err_msg=name)
    k = config["num_experts_per_tok"]
    assert got["blk.1.ffn_down_exps.weight"][1].sum() == N * k
    assert got["blk.1.attn_q.weight"][1].tolist() == [N]


def test_experts_that_nobody_chose_have_no_rows(tmp_path: Path) -> None:
    config = make_config(num_experts=12)
    path = write_model(tmp_path / "m.gguf", config, make_weights(config, seed=3), in_type("f32"))
    got = collect(path, make_tokens(config, 3, seed=4))
    for layer in (1, 2):
        sums, counts = got[f"blk.{layer}.ffn_gate_exps.weight"]
        assert (counts == 0).any() and (counts > 0).any()
        assert not sums[counts == 0].any() and sums[counts > 0].any()


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0", "q4_k"])
def test_sums_do_not_depend_on_chunk_or_threads(tmp_path: Path, kind: str) -> None:
    wide = {"hidden_size": 256, "intermediate_size": 256, "moe_intermediate_size": 256}
    config = make_config(num_nextn_predict_layers=1, **wide)
    path = write_model(tmp_path / "m.gguf", config, make_weights(config, seed=3), in_blocks(kind))
    tokens = make_tokens(config, N, seed=4)
    wanted = collect(path, tokens, mtp=True)
    for threads, chunk in ((1, 1), (2, 7), (3, 64), (2, 40)):
        got = collect(path, tokens, threads=threads, chunk=chunk, mtp=True)
        for name, (sums, counts) in wanted.items():
            assert got[name][0].tobytes() == sums.tobytes(), (name, threads, chunk)
            assert got[name][1].tobytes() == counts.tobytes(), (name, threads, chunk)


def test_fused_tensors_have_entries_of_their_own_name(tmp_path: Path) -> None:
    config = make_config()
    weights = make_weights(config, seed=3)
    plain = write_model(tmp_path / "plain.gguf", config, weights, in_type("f32"))
    joint = write_parts(tmp_path / "joint.gguf", config, fused(gguf_weights(config, weights)), in_type("f32"))
    tokens = make_tokens(config, N, seed=4)
    a, b = collect(joint, tokens), collect(plain, tokens)
    for new, old in (
        ("attn_qkv", "attn_k"),
        ("ffn_gate_up_exps", "ffn_up_exps"),
        ("attn_output", "attn_output"),
    ):
        assert a[f"blk.1.{new}.weight"][0].tobytes() == b[f"blk.1.{old}.weight"][0].tobytes()
        assert a[f"blk.1.{new}.weight"][1].tobytes() == b[f"blk.1.{old}.weight"][1].tobytes()
    assert "blk.1.attn_q.weight" not in a and "blk.1.ffn_gate_exps.weight" not in a


def test_a_tied_head_counts_for_the_embedding(tmp_path: Path) -> None:
    config = make_config(tie_word_embeddings=True)
    path = write_model(tmp_path / "m.gguf", config, make_weights(config, seed=3), in_type("f32"))
    got = collect(path, make_tokens(config, N, seed=4))
    assert got["token_embd.weight"][1].tolist() == [N - 1]
    assert "output.weight" not in got


def test_observing_ends_and_changes_nothing(tmp_path: Path) -> None:
    config = make_config()
    path = write_model(tmp_path / "m.gguf", config, make_weights(config, seed=3), in_type("f16"))
    tokens = make_tokens(config, N, seed=4)
    model = hy3core.Model(str(path))
    before = model.session(ctx=64).score(tokens)
    with model.collect_importance() as collector:
        during = model.session(ctx=64).score(tokens)
        with pytest.raises(hy3core.InvalidArgumentError, match="being observed already"):
            model.collect_importance()
        model.session(ctx=64).score(tokens)
        assert collector.counts("blk.0.attn_q.weight").tolist() == [2 * N]
        with pytest.raises(KeyError):
            collector.sums("blk.0.attn_norm.weight")
    assert before.tobytes() == during.tobytes()
    with pytest.raises(hy3core.InvalidArgumentError, match="has ended"):
        collector.counts("blk.0.attn_q.weight")
    with model.collect_importance() as collector:
        assert collector.counts("blk.0.attn_q.weight").tolist() == [0]


def test_sums_that_are_no_numbers_are_an_error(tmp_path: Path) -> None:
    config = make_config()
    weights = make_weights(config, seed=3)
    weights["model.layers.1.mlp.shared_mlp.up_proj.weight"][0, 0] = np.inf
    path = write_model(tmp_path / "m.gguf", config, weights, in_type("f32"))
    model = hy3core.Model(str(path))
    with model.collect_importance() as collector:
        model.session(ctx=64).eval(make_tokens(config, 5, seed=4), logits="none")
        with pytest.raises(hy3core.FormatError, match=r"blk\.1\.ffn_down_shexp\.weight.*not finite"):
            collector.sums("blk.1.ffn_down_shexp.weight")
