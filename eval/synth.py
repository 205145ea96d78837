"""Writes a GGUF of a published model's exact layer shapes, cut in depth, with random weights: what speeds are
measured on without the published 300 to 600 GB.

    python eval/synth.py --shape hy3 --moe-layers 4 --experts-type q4_k -o slice.gguf      # 9.6 GiB

The first layer is dense, as in the published models. Types are laid out as `hy3 convert` does it: the routed
experts at --experts-type, attention, shared expert, dense FFN and output at --type, the embedding F16, norms,
router and bias F32. Codes are random, scales such that a product keeps the size of what it is given, so the
activations stay about 1 through all layers; the router's rows are normal and its biases small, so that the
experts are chosen about equally often. Each tensor is cut out of a pool of a few MiB at random places, which
no kernel can notice: the disk is what takes the time, and memory stays under 400 MB.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.gguf_files import TYPES, guess_kind, tensor_bytes
from support.random_blocks import BLOCKS, FLOATS, random_blocks
from support.random_hy3 import HY3, HY_MT2, Shapes, gguf_metadata, gguf_shapes, make_config

import hy3core

MODELS = {"hy3": HY3, "hy-mt2": HY_MT2}
WEIGHT_TYPES = sorted([*BLOCKS, *FLOATS])
POOL_BYTES = 16 << 20
BIAS = (
    0.02  # of the router: selection scores are about 0.5 +- 0.2, and a larger one would prefer some experts
)


def slice_config(
    shape: str, moe_layers: int, mtp: bool = False, dense_layers: int = 1, **changes: Any
) -> dict[str, Any]:
    """`changes` are config.json's words, for tests of smaller shapes."""
    layers = dense_layers + moe_layers
    return make_config(
        **MODELS[shape] | changes,
        num_hidden_layers=layers,
        mlp_layer_types=["dense"] * dense_layers + ["sparse"] * moe_layers,
        num_nextn_predict_layers=int(mtp),
    )


def type_of(name: str, shape: tuple[int, ...], experts_type: str, type_name: str) -> str:
    if len(shape) == 1 or "ffn_gate_inp" in name:
        return "f32"
    if name == "token_embd.weight":
        return "f16"
    wanted = experts_type if "_exps." in name else type_name
    if shape[-1] % TYPES[wanted][1]:
        raise ValueError(
            f"{name} has rows of {shape[-1]}, which the blocks of {wanted} do not divide. "
            "Choose another type."
        )
    return wanted


def slice_types(shapes: Shapes, experts_type: str, type_name: str) -> dict[str, str]:
    return {name: type_of(name, shape, experts_type, type_name) for name, shape in shapes.items()}


def slice_bytes(config: dict[str, Any], experts_type: str, type_name: str) -> int:
    """Of the tensors, without the header."""
    shapes = gguf_shapes(config)
    types = slice_types(shapes, experts_type, type_name)
    return sum(tensor_bytes(shape, types[name]) for name, shape in shapes.items())


class Pools:
    """The bytes of each tensor, a piece at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pools: dict[tuple[str, float], memoryview] = {}

    def pool(self, type_name: str, std: float) -> memoryview:
        if (type_name, std) not in self.pools:
            _, elements, size = TYPES[type_name]
            blocks = POOL_BYTES // size
            raw = random_blocks(type_name, (1, blocks * elements), std, self.rng)
            self.pools[type_name, std] = memoryview(raw)
        return self.pools[type_name, std]

    def pieces(self, name: str, shape: tuple[int, ...], type_name: str) -> Iterator[memoryview]:
        if len(shape) == 1:
            yield memoryview(self.vector(name, shape[0])).cast("B")
            return
        pool = self.pool(type_name, 1.0 if name == "token_embd.weight" else shape[-1] ** -0.5)
        size = TYPES[type_name][2]
        left = tensor_bytes(shape, type_name)
        while left:
            start = int(self.rng.integers(0, len(pool) // size)) * size
            piece = pool[start : start + left]
            yield piece
            left -= len(piece)

    def vector(self, name: str, size: int) -> np.ndarray:
        low, high = (-BIAS, BIAS) if "exp_probs_b" in name else (0.5, 1.5)
        return self.rng.uniform(low, high, size).astype(np.float32)


def kind_of(value: Any) -> str:
    """The kind of a metadata value in hy3core's spelling."""
    if isinstance(value, list):
        return "[str]" if isinstance(value[0], str) else "[i32]"
    return guess_kind(value).replace("string", "str")


def write_slice(path: Path, config: dict[str, Any], experts_type: str, type_name: str, seed: int = 0) -> int:
    """Writes aside, then renames; returns the bytes written."""
    shapes = gguf_shapes(config)
    types = slice_types(shapes, experts_type, type_name)
    metadata = {"general.name": path.stem, **gguf_metadata(config)}
    header, offsets, data_bytes = hy3core.gguf_header(
        [(key, kind_of(value), value) for key, value in metadata.items()],
        [(name, types[name], shape[::-1]) for name, shape in shapes.items()],
    )
    partial = path.with_name(path.name + ".partial")
    pools = Pools(seed)
    try:
        with partial.open("wb") as file:
            file.write(header)
            for (name, shape), offset in zip(shapes.items(), offsets, strict=True):
                file.seek(len(header) + offset)
                for piece in pools.pieces(name, shape, types[name]):
                    file.write(piece)
            file.truncate(len(header) + data_bytes)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path.stat().st_size


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--shape", choices=MODELS, default="hy3", help="whose layers (default hy3)")
    parser.add_argument("--moe-layers", type=int, default=4, help="sparse layers (default 4)")
    parser.add_argument("--dense-layers", type=int, default=1, help="dense layers before them (default 1)")
    parser.add_argument("--experts-type", choices=WEIGHT_TYPES, default="q4_k", metavar="TYPE")
    parser.add_argument("--type", choices=WEIGHT_TYPES, default="q8_0", metavar="TYPE", help="of the rest")
    parser.add_argument("--mtp", action="store_true", help="with an MTP layer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.moe_layers < 0 or arguments.dense_layers < 0:
        parser.error("A number of layers is negative. Give 0 or more.")
    if arguments.moe_layers + arguments.dense_layers == 0:
        parser.error("No layers are left. Give --moe-layers 1 or more.")
    return arguments


def main() -> None:
    arguments = read_arguments()
    config = slice_config(arguments.shape, arguments.moe_layers, arguments.mtp, arguments.dense_layers)
    began = time.monotonic()
    total = write_slice(arguments.out, config, arguments.experts_type, arguments.type, arguments.seed)
    print(f"{arguments.out}: {total / 2**30:.2f} GiB in {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
