"""An importance matrix brings the quantized model closer to the one it was made with."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from support.compare import mean_kl
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model

import hy3core
from hy3.convert import Options, convert
from hy3.imatrix import Collection, Text


def test_a_random_model(tmp_path: Path, report: Callable[[str], None]) -> None:
    """On a random model whose norms make some columns count more than others, and on another text."""
    config = make_config(hidden_size=256, moe_intermediate_size=256, num_hidden_layers=3, num_experts=4)
    weights = make_weights(config, seed=2)
    for name, array in weights.items():
        if name.endswith("post_attention_layernorm.weight"):
            array **= 4  # 0.06 to 5
    model = write_model(tmp_path / "f32.gguf", config, weights, in_type("f32"))
    texts = [Text(f"text {seed}", make_tokens(config, 256, seed)) for seed in range(8)]
    with Collection(hy3core.Model(str(model)), texts, chunk_size=256) as collection:
        for _ in collection:
            pass
        collection.save(tmp_path / "i.gguf")

    def logits(path: Path) -> np.ndarray:
        session = hy3core.Model(str(path)).session(ctx=256, kv="f32")
        result = session.eval(make_tokens(config, 256, seed=99), logits="all")
        assert result is not None
        return result

    wanted = logits(model)
    for kind in ("q2_k", "q3_k"):
        kl = []
        for file in (None, tmp_path / "i.gguf"):
            convert(model, tmp_path / "x.gguf", Options(type=kind, imatrix=file), force=True)
            kl.append(mean_kl(logits(tmp_path / "x.gguf"), wanted))
        report(f"imatrix: {kind} on a random model: KL {kl[0]:.5f} without, {kl[1]:.5f} with")
        assert kl[1] < 0.9 * kl[0]
