"""GGUF files for tests, made with `struct` alone: a second opinion on the format, and any lie wanted.

    write_gguf(path, {"general.architecture": "hy_v3"}, [("output.weight", (300, 64), "f32", raw)])
    tiny_hy3(path, hidden_size=96)                    # a complete random model that loads

`build_gguf` also says where each field lies, so that a test can change one and keep the rest valid.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

KINDS = {  # name: (number in the file, struct format)
    "u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"),
    "f32": (6, "f"), "bool": (7, "?"), "string": (8, ""), "array": (9, ""), "u64": (10, "Q"),
    "i64": (11, "q"), "f64": (12, "d"),
}  # fmt: skip

TYPES = {  # name: (id, elements per block, bytes per block)
    "f32": (0, 1, 4), "f16": (1, 1, 2), "bf16": (30, 1, 2), "f64": (28, 1, 8),
    "i8": (24, 1, 1), "i16": (25, 1, 2), "i32": (26, 1, 4), "i64": (27, 1, 8),
    "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22), "q5_1": (7, 32, 24), "q8_0": (8, 32, 34),
    "q2_k": (10, 256, 84), "q3_k": (11, 256, 110), "q4_k": (12, 256, 144), "q5_k": (13, 256, 176),
    "q6_k": (14, 256, 210),
    "iq2_xxs": (16, 256, 66), "iq2_xs": (17, 256, 74), "iq3_xxs": (18, 256, 98), "iq1_s": (19, 256, 50),
    "iq4_nl": (20, 32, 18), "iq3_s": (21, 256, 110), "iq2_s": (22, 256, 82), "iq4_xs": (23, 256, 136),
    "iq1_m": (29, 256, 56), "mxfp4": (39, 32, 17),
}  # fmt: skip

Tensor = tuple[
    str, Sequence[int], str, bytes
]  # name, shape as NumPy has it (rows first), type name, raw bytes
Metadata = Mapping[str, Any] | Iterable[tuple[str, Any]]  # pairs, where a key shall stand twice


class Value(NamedTuple):
    """A metadata value of a stated kind: Value("u16", 3); a list makes an array of that kind."""

    kind: str
    value: Any


class Field(NamedTuple):
    """Where a field lies: what it is, whose (key or tensor; "" for the header's own), offset and bytes."""

    what: str
    owner: str
    offset: int
    size: int


@dataclass
class Image:
    """A file's bytes with the map of its fields."""

    data: bytearray = field(default_factory=bytearray)
    fields: list[Field] = field(default_factory=list)

    def put(self, what: str, owner: str, raw: bytes) -> None:
        self.fields.append(Field(what, owner, len(self.data), len(raw)))
        self.data += raw

    def put_number(self, what: str, owner: str, kind: str, value: float) -> None:
        self.put(what, owner, struct.pack("<" + KINDS[kind][1], value))

    def put_string(self, what: str, owner: str, value: str | bytes) -> None:
        raw = value.encode() if isinstance(value, str) else value
        self.put_number(what + "_length", owner, "u64", len(raw))
        self.put(what, owner, raw)

    def at(self, what: str, owner: str = "") -> Field:
        """The first field of that sort."""
        return next(f for f in self.fields if f.what == what and f.owner == owner)


def guess_kind(value: Any) -> str:
    """What llama.cpp's converters write for a Python value: u32 or i32, f32, bool, string."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "u32" if value >= 0 else "i32"
    if isinstance(value, float):
        return "f32"
    if isinstance(value, str | bytes):
        return "string"
    raise TypeError(f"no GGUF kind for {value!r}")


def put_value(image: Image, key: str, value: Any) -> None:
    kind = value.kind if isinstance(value, Value) else ""
    content = value.value if isinstance(value, Value) else value
    if isinstance(content, list | tuple):
        image.put_number("value_type", key, "u32", KINDS["array"][0])
        put_array(image, key, content, kind)
        return
    kind = kind or guess_kind(content)
    image.put_number("value_type", key, "u32", KINDS[kind][0])
    if kind == "string":
        image.put_string("string", key, content)
    else:
        image.put_number("value", key, kind, content)


def put_array(image: Image, key: str, items: Sequence[Any], kind: str) -> None:
    """Lists of integers are i32, as token types are."""
    if items and isinstance(items[0], list | tuple):
        image.put_number("array_type", key, "u32", KINDS["array"][0])
        image.put_number("array_count", key, "u64", len(items))
        for item in items:
            put_array(image, key, item, kind)
        return
    if not kind:
        kind = guess_kind(items[0]) if items else "i32"
        kind = "i32" if kind == "u32" else kind
    image.put_number("array_type", key, "u32", KINDS[kind][0])
    image.put_number("array_count", key, "u64", len(items))
    for item in items:
        if kind == "string":
            image.put_string("item", key, item)
        else:
            image.put_number("item", key, kind, item)


def padding(n: int, alignment: int) -> bytes:
    return bytes(-n % alignment)


def build_gguf(
    metadata: Metadata, tensors: Iterable[Tensor] = (), version: int = 3, alignment: int = 32
) -> Image:
    """A valid file, if what it is given makes sense; the raw bytes of a tensor are taken as they are."""
    pairs = list(metadata.items() if isinstance(metadata, Mapping) else metadata)
    if alignment != 32 and not any(key == "general.alignment" for key, _ in pairs):
        pairs.append(("general.alignment", alignment))
    tensors = list(tensors)
    image = Image()
    image.put("magic", "", b"GGUF")
    image.put_number("version", "", "u32", version)
    image.put_number("n_tensors", "", "u64", len(tensors))
    image.put_number("n_keys", "", "u64", len(pairs))
    for key, value in pairs:
        image.put_string("key", key, key)
        put_value(image, key, value)
    offset = 0
    for name, shape, type_name, raw in tensors:
        image.put_string("name", name, name)
        image.put_number("n_dims", name, "u32", len(shape))
        for dim in reversed(shape):
            image.put_number("dim", name, "u64", dim)
        image.put_number("type", name, "u32", TYPES[type_name][0])
        image.put_number("offset", name, "u64", offset)
        offset += len(raw) + len(padding(len(raw), alignment))
    image.data += padding(len(image.data), alignment)
    for name, _, _, raw in tensors:
        image.put("data", name, raw)
        image.data += padding(len(raw), alignment)
    return image


def write_gguf(
    path: str | Path,
    metadata: Metadata,
    tensors: Iterable[Tensor] = (),
    version: int = 3,
    alignment: int = 32,
) -> Path:
    path = Path(path)
    path.write_bytes(build_gguf(metadata, tensors, version, alignment).data)
    return path


def tensor_bytes(shape: Sequence[int], type_name: str) -> int:
    _, block, size = TYPES[type_name]
    n = 1
    for dim in shape:
        n *= dim
    return n // block * size


def q8_0_bytes(array: Any) -> bytes:
    """Float32 rows as blocks of 32: a float16 scale, then 32 int8."""
    import numpy as np

    rows = np.asarray(array, np.float32).reshape(-1, 32)
    scale = (np.abs(rows).max(axis=1, keepdims=True) / 127).astype(np.float16)
    divisor = np.where(scale == 0, 1, scale).astype(np.float32)
    quants = np.clip(np.rint(rows / divisor), -127, 127).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), quants.view(np.uint8)], axis=1).tobytes()


def tiny_hy3_parts(seed: int = 0, **changes: Any) -> tuple[dict[str, Any], list[Tensor]]:
    """Metadata and tensors of a random tiny model; `changes` are config.json's words (support.random_hy3).

    Matrices are Q8_0, except the experts, which are F32, so that both kinds are in the file.
    """
    from support.random_hy3 import gguf_metadata, gguf_weights, make_config, make_weights

    shape = {"hidden_size": 64, "head_dim": 32, "num_experts": 4, "moe_intermediate_size": 32}
    config = make_config(**shape | changes)
    tensors: list[Tensor] = []
    for name, array in gguf_weights(config, make_weights(config, seed)).items():
        small = array.ndim == 1 or "exps" in name or "ffn_gate_inp" in name or array.shape[-1] % 32
        raw = array.astype("<f4").tobytes() if small else q8_0_bytes(array)
        tensors.append((name, array.shape, "f32" if small else "q8_0", raw))
    return gguf_metadata(config), tensors


def tiny_hy3(path: str | Path, seed: int = 0, **changes: Any) -> Path:
    """Writes a complete model that loads and generates, of about 300 KB."""
    return write_gguf(path, *tiny_hy3_parts(seed, **changes))
