"""Writes a checkpoint of Hy3's exact layer shapes, cut to a few layers, with random weights: what a
conversion can be tried on without 600 GB. (A GGUF to measure on is written at once by eval/synth.py.)

    python tools/make_slice.py OUT [--layers 2] [--mtp]        # 2 layers, one dense and one sparse: 10 GB

bf16, hub layout, sharded. Matrices are normal with deviation 1/sqrt(fan_in) (the embedding 1), norm weights
uniform in 0.5..1.5, selection biases in -0.2..0.2, none repeated: every weight is drawn on its own, from
Philox keyed by the tensor's number, by way of a table of the normal distribution's 65,536 quantiles, so that
it is fast (the disk is what takes the time) and the memory stays under 200 MB. The tokenizer is a small valid
one: bytes, a few merges, the special tokens; the other rows of the embedding have no token, as the padding
rows of the published model.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.checkpoints import bf16, config_in, write_tokenizer
from support.random_hy3 import HY3, SPECIALS, Shapes, hub_shapes, make_config, vocabulary

SHARD_BYTES = 2 << 30
CHUNK = 1 << 17  # elements drawn at a time; small enough to stay in the cache


def quantiles() -> np.ndarray:
    """The middles of 65,536 equally likely parts of the normal distribution; their own deviation is brought
    to 1."""
    normal = NormalDist()
    values = np.array([normal.inv_cdf((i + 0.5) / 65536) for i in range(65536)], np.float32)
    return values / values.std()


class Weights:
    """The bytes of each tensor, a chunk at a time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.normal = quantiles()

    def table(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """bf16 values by 16 random bits."""
        if name.endswith("expert_bias"):
            values = np.linspace(-0.2, 0.2, 65536)
        elif len(shape) == 1:
            values = np.linspace(0.5, 1.5, 65536)
        else:
            values = self.normal / (1.0 if "embed_tokens" in name else shape[1] ** 0.5)
        return bf16(values.astype(np.float32))

    def chunks(self, number: int, name: str, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
        table = self.table(name, shape)
        source = np.random.Philox(key=[self.seed, number])
        left = int(np.prod(shape))
        while left:
            count = min(left, CHUNK)
            bits = source.random_raw(-(-count // 4)).view(np.uint16)[:count]
            yield np.take(table, bits, mode="wrap")  # in range anyway; spares a check
            left -= count


def shards(shapes: Shapes) -> list[Shapes]:
    out: list[Shapes] = [{}]
    size = 0
    for name, shape in shapes.items():
        nbytes = 2 * int(np.prod(shape))
        if out[-1] and size + nbytes > SHARD_BYTES:
            out.append({})
            size = 0
        out[-1][name] = shape
        size += nbytes
    return out


def write_shard(path: Path, shapes: Shapes, weights: Weights, first: int) -> None:
    """`first`: the number of the shard's first tensor."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        nbytes = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for number, (name, shape) in enumerate(shapes.items(), first):
            for chunk in weights.chunks(number, name, shape):
                file.write(chunk)


def special_ids(size: int) -> dict[str, int]:
    tokens, _ = vocabulary(size)
    ids = {key: tokens.index(text) for key, text in SPECIALS.items()}
    return {
        "bos_token_id": ids["bos_token_id"],
        "eos_token_id": ids["eos_token_id"],
        "pad_token_id": ids["padding_token_id"],
    }


def write_slice(out: Path, config: dict[str, Any], seed: int) -> int:
    """Returns the bytes written."""
    out.mkdir(parents=True, exist_ok=True)
    weights = Weights(seed)
    parts = shards(hub_shapes(config))
    weight_map: dict[str, str] = {}
    total = written = 0
    for number, part in enumerate(parts, 1):
        name = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        write_shard(out / name, part, weights, first=written)
        written += len(part)
        weight_map |= dict.fromkeys(part, name)
        total += (out / name).stat().st_size
        print(f"{name}: {(out / name).stat().st_size / 1e9:.2f} GB", file=sys.stderr)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (out / "model.safetensors.index.json").write_text(json.dumps(index))
    written_config = config_in("4.57", config | special_ids(config["vocab_size"]))
    (out / "config.json").write_text(json.dumps(written_config | {"torch_dtype": "bfloat16"}, indent=2))
    write_tokenizer(out, config["vocab_size"])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument("--layers", type=int, default=2, help="layers, the first of them dense")
    parser.add_argument("--mtp", action="store_true", help="with an MTP layer (8 GB more)")
    parser.add_argument("--experts", type=int, default=HY3["num_experts"], help="experts a layer")
    parser.add_argument("--vocab", type=int, default=HY3["vocab_size"], help="rows of the embedding")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    changes = {"num_experts": arguments.experts, "vocab_size": arguments.vocab}
    changes["num_experts_per_tok"] = min(HY3["num_experts_per_tok"], arguments.experts)
    config = make_config(
        **HY3 | changes,
        num_hidden_layers=arguments.layers,
        num_nextn_predict_layers=int(arguments.mtp),
        _name_or_path=f"hy3-slice-{arguments.layers}",
    )
    began = time.monotonic()
    total = write_slice(arguments.out, config, arguments.seed)
    seconds = time.monotonic() - began
    print(f"{arguments.out}: {total / 1e9:.2f} GB in {seconds:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
