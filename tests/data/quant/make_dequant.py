"""Makes dequant.npz: a few blocks of every type and the float32 that the `gguf` package reads from them.

Usage: PYTHONPATH=tests python tests/data/quant/make_dequant.py      (needs `gguf`; written with 0.19.0)
"""

from pathlib import Path

import gguf
import numpy as np
from support.quant_samples import TYPES, sample_blocks

arrays = {}
for name, (type_id, elements, _, _) in TYPES.items():
    blocks = sample_blocks(name, 3 if elements > 1 else 200, seed=100 + type_id)
    with np.errstate(invalid="ignore", over="ignore"):
        arrays[f"{name}.values"] = gguf.dequantize(blocks, gguf.GGMLQuantizationType(type_id)).ravel()
    arrays[f"{name}.blocks"] = blocks
np.savez_compressed(Path(__file__).parent / "dequant.npz", **arrays)
