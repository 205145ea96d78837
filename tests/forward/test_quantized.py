"""`cpu`, which multiplies quantized blocks with int8 activations, against `reference`, which expands them to
float32.

Same file for both, 300 tokens teacher-forced, every type that public files use. Types that hy3core can write
hold quantized random weights; the others random codes (support/random_blocks.py).
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.compare import mean_kl, relative_error
from support.random_blocks import BLOCKS, in_blocks
from support.random_hy3 import make_config, make_tokens, make_weights, write_model

import hy3core

# Rows of 256 and 512: whole blocks of every type.
SHAPE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "moe_intermediate_size": 256}
# Activations of 8 bits move the router's scores too, so now and then another expert is chosen, and that row's
# logits jump. `routed` chooses as Hy3 does, 8 experts; `all experts` has no choice to make and shows the
# arithmetic alone. The limits on the largest error are of the largest logit, at the worst of 300 x 301.
CONFIGS = {
    "routed": (make_config(**SHAPE, num_experts=16, num_experts_per_tok=8), 0.5),
    "all experts": (make_config(**SHAPE, num_experts=6, num_experts_per_tok=6), 0.05),
}
TYPES = [*BLOCKS, "bf16", "f16", "f32"]
MAX_KL = 2e-3


def test_types_are_the_public_ones() -> None:
    assert len(TYPES) == len(set(TYPES)) == 23


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("type_name", TYPES)
def test_cpu_against_reference(
    type_name: str, name: str, tmp_path: Path, report: Callable[[str], None]
) -> None:
    config, max_error = CONFIGS[name]
    weights = make_weights(config, seed=11)
    path = write_model(tmp_path / "model.gguf", config, weights, in_blocks(type_name))
    tokens = make_tokens(config, 300, seed=12)
    logits = {
        backend: hy3core.Model(str(path), backend=backend)
        .session(ctx=320, kv="f32")
        .eval(tokens, logits="all")
        for backend in ("reference", "cpu")
    }
    kl = mean_kl(logits["cpu"], logits["reference"])
    error = relative_error(logits["cpu"], logits["reference"])
    top = float((logits["cpu"].argmax(-1) == logits["reference"].argmax(-1)).mean())
    report(
        f"cpu vs reference {type_name}, {name}: mean KL {kl:.1e} (limit {MAX_KL:.0e}), largest error "
        f"{error:.1e} of the largest logit (limit {max_error}), same top token {top:.1%}"
    )
    assert kl < MAX_KL
    assert error < max_error
