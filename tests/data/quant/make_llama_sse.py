"""Makes llama_sse.json: squared errors of llama.cpp's own quantizers on the rows of support/quant_samples.py.

Usage: PYTHONPATH=tests python tests/data/quant/make_llama_sse.py
Needs `llama_cpp` (written with llama-cpp-python 0.3.36) and hy3core, which reads the blocks back.

{"TYPE": {"KIND": [sum of squares of the rows, error, error with importance]}}; the first number lets a reader
check that it drew the same rows. The error with importance is weighted by it, as was the quantizer.
"""

import json
from pathlib import Path

from support.llama_quantize import llama_quantize
from support.quant_samples import ROWS, SEARCHED, TYPES, sample_importance, sample_rows, squared_error

import hy3core

result: dict[str, dict[str, list[float]]] = {}
for name in SEARCHED:
    result[name] = {}
    for seed, kind in enumerate(ROWS):
        rows = sample_rows(kind, seed)
        result[name][kind] = [squared_error(rows, 0 * rows, None)]
        for importance in (None, sample_importance(50 + seed)):
            data = llama_quantize(rows, TYPES[name], importance)
            got = hy3core.dequantize(data, name, rows.size)
            result[name][kind].append(squared_error(rows, got, importance))
text = json.dumps(result, indent=1)
(Path(__file__).parent / "llama_sse.json").write_text(text + "\n", encoding="utf-8")
