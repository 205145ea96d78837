"""A small random model in each type that weights may have. Its shapes leave remainders everywhere: five
experts whose groups are never the same size, vocabularies that no vector length divides.
"""

from pathlib import Path

from support.random_blocks import in_blocks
from support.random_hy3 import make_config, make_tokens, make_weights, write_model

SMALL = make_config(vocab_size=301, num_hidden_layers=2, moe_intermediate_size=96, num_nextn_predict_layers=1)
WIDE = make_config(  # rows that blocks of 256 divide
    vocab_size=283,
    hidden_size=256,
    intermediate_size=256,
    num_hidden_layers=2,
    num_experts_per_tok=3,
    moe_intermediate_size=256,
    num_nextn_predict_layers=1,
)
IN_SMALL = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4")
IN_WIDE = (
    "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs",
    "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",
)  # fmt: skip
TYPES = IN_SMALL + IN_WIDE
KV_TYPES = ("f32", "f16", "q8", "q4")


def write_in_type(path: Path, type_name: str) -> Path:
    config = SMALL if type_name in IN_SMALL else WIDE
    return write_model(path, config, make_weights(config, seed=20), in_blocks(type_name))


def common_tokens(n: int, seed: int) -> list[int]:
    """Tokens of all these models."""
    return make_tokens(WIDE, n, seed)
