"""llama.cpp's own quantizers, through the ggml library inside llama-cpp-python."""

import ctypes
import importlib.util
from pathlib import Path

import numpy as np


def ggml_base() -> ctypes.CDLL:
    spec = importlib.util.find_spec("llama_cpp")  # not imported: that would start all its backends
    assert spec is not None and spec.origin is not None, "install llama-cpp-python"
    library = ctypes.CDLL(str(Path(spec.origin).parent / "lib" / "libggml-base.so"))
    function = library.ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    function.argtypes = (
        [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    )
    return library


def llama_quantize(
    rows: np.ndarray, layout: tuple[int, int, int, tuple[int, ...]], importance: np.ndarray | None
) -> bytes:
    """layout: a value of quant_samples.TYPES."""
    type_id, elements, size, _ = layout
    out = np.zeros(rows.size // elements * size, dtype=np.uint8)
    weights = None if importance is None else importance.ctypes.data
    written = ggml_base().ggml_quantize_chunk(
        type_id, rows.ctypes.data, out.ctypes.data, 0, *rows.shape, weights
    )
    assert written == out.size
    return out.tobytes()
