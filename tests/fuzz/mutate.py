"""Valid tiny models with one thing changed, at the place where a reader or a loader has to notice.

Two ways: a field of the finished file is overwritten (counts, lengths, types, offsets: the rest no longer
fits), or the file is made anew around a changed key or tensor (the file is sound, the model is not).
Every case follows from the seed and its number: `python tests/fuzz/mutate.py SEED NUMBER FILE` remakes it.
"""

import random
import struct
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.gguf_files import (
    KINDS,
    TYPES,
    Image,
    Tensor,
    Value,
    build_gguf,
    put_value,
    tensor_bytes,
    tiny_hy3_parts,
)

NUMBERS = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    13,
    31,
    33,
    64,
    255,
    256,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**40,
    2**62,
]
NUMBERS += [2**63 - 1, 2**63, 2**64 - 2**20, 2**64 - 33, 2**64 - 1]
REALS = [0.0, -0.0, -1.0, 1e-38, 1e-5, 0.5, 1.0, 2.0, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan")]
TEXTS = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"a b c",
    b" ",
    b"\xc4\xa0",
    b"x" * 300,
    "💡".encode(),
    b"%s%n",
    b"../",
]


class Base(NamedTuple):
    """A model to begin from. The image's fields are grouped by sort, then by owner: a vocabulary has hundreds
    of strings, and would otherwise be hit nearly always."""

    metadata: dict[str, Any]
    tensors: list[Tensor]
    alignment: int
    version: int
    image: Image
    encoded: dict[str, bytes]
    fields: dict[str, dict[str, list[Any]]]


class Case(NamedTuple):
    label: str
    data: bytes


def make_base(
    alignment: int = 32, version: int = 3, extra: dict[str, Any] | None = None, **changes: Any
) -> Base:
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
             "num_key_value_heads": 1, "num_experts": 3, "vocab_size": 270}  # fmt: skip
    metadata, tensors = tiny_hy3_parts(**small | changes)
    metadata |= extra or {}
    if alignment != 32:
        metadata["general.alignment"] = alignment
    image = build_gguf(metadata, tensors, version, alignment)
    fields: dict[str, dict[str, list[Any]]] = {}
    for f in image.fields:
        fields.setdefault(f.what, {}).setdefault(f.owner, []).append(f)
    return Base(
        metadata, tensors, alignment, version, image, {k: encode(k, v) for k, v in metadata.items()}, fields
    )


@cache
def bases() -> list[Base]:
    odd = {"x.nested": [[1, 2], [3]], "x.bools": Value("bool", [True, False]), "x.u64": Value("u64", 2**63),
           "x.f64": Value("f64", 0.5), "x.i8": Value("i8", [-1, 1]), "x.empty": []}  # fmt: skip
    yarn = {"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    return [
        make_base(),
        make_base(num_nextn_predict_layers=1),
        make_base(alignment=64, version=2, extra=odd, tie_word_embeddings=True),
        make_base(alignment=8, rope_parameters=yarn, extra={"tokenizer.chat_template": "{{ messages }}"}),
    ]


def encode(key: str | bytes, value: Any) -> bytes:
    image = Image()
    image.put_string("key", "", key)
    put_value(image, "", value)
    return bytes(image.data)


def assemble(base: Base, keys: list[bytes], tensors: list[Tensor]) -> bytes:
    """The file of these keys (encoded) and tensors; as build_gguf, without the map of fields."""
    head = [b"GGUF" + struct.pack("<IQQ", base.version, len(tensors), len(keys)), *keys]
    offset = 0
    data = []
    for name, shape, type_name, raw in tensors:
        text = name.encode(errors="surrogateescape")
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += [struct.pack("<Q", len(text)), text, dims, struct.pack("<IQ", TYPES[type_name][0], offset)]
        data += [raw, bytes(-len(raw) % base.alignment)]
        offset += len(raw) + len(data[-1])
    table = b"".join(head)
    return b"".join([table, bytes(-len(table) % base.alignment), *data])


def other_number(rng: random.Random, old: int, bits: int, room: int) -> int:
    """Not the old number: an extreme, a neighbour, a flipped bit, or about what the file has left."""
    choices = [
        rng.choice(NUMBERS),
        old + rng.choice([-8, -1, 1, 8]),
        old ^ (1 << rng.randrange(bits)),
        old * 2,
    ]
    choices += [room + rng.randrange(-40, 40), room // 8, room // 33, rng.getrandbits(bits)]
    new = rng.choice(choices) % 2**bits
    return new if new != old else (old + 1) % 2**bits


def change_number(what: str) -> Callable[[random.Random, Base], bytes]:
    def change(rng: random.Random, base: Base) -> bytes:
        f = rng.choice(rng.choice(list(base.fields[what].values())))
        data = bytearray(base.image.data)
        old = int.from_bytes(data[f.offset : f.offset + f.size], "little")
        small = what in ("value_type", "array_type", "type") and rng.random() < 0.7
        new = rng.randrange(45) if small else other_number(rng, old, 8 * f.size, len(data) - f.offset)
        data[f.offset : f.offset + f.size] = new.to_bytes(f.size, "little")
        return bytes(data)

    return change


def change_bytes(what: str) -> Callable[[random.Random, Base], bytes]:
    def change(rng: random.Random, base: Base) -> bytes:
        owners = [[f for f in fields if f.size] for fields in base.fields[what].values()]
        f = rng.choice(rng.choice([fields for fields in owners if fields]))
        data = bytearray(base.image.data)
        for _ in range(rng.choice([1, 1, 1, 2, 8])):
            data[f.offset + rng.randrange(f.size)] = rng.choice(
                [0, 0x20, 0x41, 0x7F, 0x80, 0xC0, 0xFF, rng.randrange(256)]
            )
        return bytes(data)

    return change


def other_value(rng: random.Random, old: Any) -> Any:
    """Of another kind, or of the same kind and another size."""
    plain = old.value if isinstance(old, Value) else old
    kind = rng.choice(["same", "same", "same", "u64", "i32", "f32", "f64", "bool", "string", "array", "u8"])
    if kind == "string" or (kind == "same" and isinstance(plain, str)):
        return rng.choice(TEXTS)
    if kind in ("f32", "f64") or (kind == "same" and isinstance(plain, float)):
        value = rng.choice(REALS)
        return Value("f64" if kind == "f64" else "f32", value)
    if kind == "bool" or (kind == "same" and isinstance(plain, bool)):
        return bool(rng.getrandbits(1))
    if kind == "array":
        return Value(
            rng.choice(["u32", "i32", "f32"]),
            [rng.choice([0, 1, 2, 32]) for _ in range(rng.choice([0, 1, 2, 3, 9]))],
        )
    if kind == "same" and isinstance(plain, list):
        return plain[: rng.randrange(len(plain) + 1)]
    width = kind if kind in ("u64", "i32", "u8") else "u32"
    bits = 8 * struct.calcsize(KINDS[width][1])
    number = (
        rng.choice([*NUMBERS, (plain if isinstance(plain, int) else 0) + rng.choice([-1, 1]), 32, 96])
        % 2**bits
    )
    return Value(width, number - 2**bits if width == "i32" and number >= 2 ** (bits - 1) else number)


def with_key(base: Base, key: str, value: Any) -> bytes:
    keys = [encode(key, value) if k == key else raw for k, raw in base.encoded.items()]
    return assemble(base, keys, base.tensors)


def change_config(rng: random.Random, base: Base) -> bytes:
    key = rng.choice([k for k in base.metadata if k.startswith(("hy_v3.", "general."))])
    return with_key(base, key, other_value(rng, base.metadata[key]))


def change_tokenizer(rng: random.Random, base: Base) -> bytes:
    key = rng.choice([k for k in base.metadata if k.startswith("tokenizer.")])
    old = base.metadata[key]
    if not isinstance(old, list) or rng.random() < 0.2:
        return with_key(base, key, other_value(rng, old))
    items = list(old)
    at = rng.randrange(len(items))
    if isinstance(old[0], str):
        items[at] = rng.choice(
            [*TEXTS, rng.choice(old).encode(), rng.choice(old).encode() + b"x", b"a" * 50_000]
        )
    else:
        items[at] = rng.choice([0, -1, 1, 3, 4, 5, 6, 7, 2**31 - 1, -(2**31)])
    if rng.random() < 0.3:
        items = rng.choice(
            [items[:at], items + items[:at], items[:at] + items[at + 1 :], [items[at]] * len(items), []]
        )
    return with_key(base, key, items)


def change_keys(rng: random.Random, base: Base) -> bytes:
    keys = list(base.encoded.values())
    key, raw = rng.choice(list(base.encoded.items()))
    at = keys.index(raw)
    do = rng.choice(["drop", "double", "rename", "shuffle"])
    if do == "drop":
        del keys[at]
    elif do == "double":
        keys.insert(rng.randrange(len(keys)), rng.choice([raw, encode(key, 1)]))
    elif do == "rename":
        keys[at] = encode(rng.choice([key[:-1], key + "x", key.upper(), *TEXTS]), base.metadata[key])
    else:
        rng.shuffle(keys)
    return assemble(base, keys, base.tensors)


def change_tensor(rng: random.Random, base: Base) -> bytes:
    """A sound file: another shape, type or name with the bytes that it takes; or a tensor less or more."""
    tensors = list(base.tensors)
    at = rng.randrange(len(tensors))
    name, shape, type_name, raw = tensors[at]
    do = rng.choice(["drop", "double", "rename", "swap", "transpose", "shape", "type", "shuffle"])
    if do == "drop":
        del tensors[at]
    elif do == "double":
        tensors.append(tensors[at])
    elif do == "rename":
        new = rng.choice(
            [
                name + "x",
                name.replace("blk.0", "blk.7"),
                name.removesuffix(".weight"),
                "blk.0.\udcff",
                "x" * 255,
            ]
        )
        tensors[at] = (new, shape, type_name, raw)
    elif do == "swap":
        other = rng.randrange(len(tensors))
        tensors[at] = (tensors[other][0], shape, type_name, raw)
        tensors[other] = (name, *tensors[other][1:])
    elif do == "shuffle":
        rng.shuffle(tensors)
    else:
        new_shape, new_type = list(shape), type_name
        if do == "transpose":
            new_shape.reverse()
        elif do == "shape":
            i = rng.randrange(len(new_shape))
            new_shape[i] = rng.choice([1, new_shape[i] * 2, new_shape[i] + 1, new_shape[i] + 31, 32, 256])
            new_shape = rng.choice([new_shape, new_shape, [1, *new_shape][:4], new_shape[1:] or [32]])
        else:
            new_type = rng.choice(list(TYPES))
        size = tensor_bytes(new_shape, new_type)
        tensors[at] = (name, new_shape, new_type, (raw * (size // len(raw) + 1))[:size])
    return assemble(base, list(base.encoded.values()), tensors)


def change_data(rng: random.Random, base: Base) -> bytes:
    """NaN, infinities or noise among the weights: it loads, and must not crash when it runs."""
    f = rng.choice(rng.choice(list(base.fields["data"].values())))
    data = bytearray(base.image.data)
    junk = rng.choice(
        [b"\xff" * 8, struct.pack("<2f", float("inf"), float("-inf")), rng.randbytes(8), b"\0" * 8]
    )
    start = f.offset + rng.randrange(0, f.size, 8)
    data[start : start + 8] = junk[: len(data) - start]
    return bytes(data)


def change_length(rng: random.Random, base: Base) -> bytes:
    data = bytes(base.image.data)
    if rng.random() < 0.2:
        return data + rng.randbytes(rng.choice([1, 31, 32, 4096]))
    borders = [rng.choice(base.image.fields).offset + rng.randrange(-1, 9), rng.randrange(1, len(data))]
    return data[: max(1, rng.choice(borders))]


def overlap_tensors(rng: random.Random, base: Base) -> bytes:
    data = bytearray(base.image.data)
    first, second = rng.sample(list(base.fields["offset"].values()), 2)
    moved = int.from_bytes(data[second[0].offset :][:8], "little") + rng.choice(
        [0, 0, 1, -base.alignment, base.alignment]
    )
    data[first[0].offset : first[0].offset + 8] = (moved % 2**64).to_bytes(8, "little")
    return bytes(data)


# label: how
CHANGES: dict[str, Callable[[random.Random, Base], bytes]] = {
    "header magic": change_bytes("magic"),
    **{f"header {what}": change_number(what) for what in ("version", "n_tensors", "n_keys")},
    **{
        f"metadata {what}": change_number(what)
        for what in (
            "key_length",
            "value_type",
            "value",
            "string_length",
            "array_type",
            "array_count",
            "item_length",
        )
    },
    **{f"metadata {what}": change_bytes(what) for what in ("key", "string", "item")},
    "metadata keys": change_keys,
    **{f"tensor {what}": change_number(what) for what in ("name_length", "n_dims", "dim", "type", "offset")},
    "tensor name": change_bytes("name"),
    "tensor overlap": overlap_tensors,
    "tensor rebuilt": change_tensor,
    "tensor data": change_data,
    "config value": change_config,
    "tokenizer value": change_tokenizer,
    "file length": change_length,
}


def make_case(seed: int, number: int) -> Case:
    """Case `number` of a seed: the kinds of change take turns."""
    rng = random.Random(f"{seed}/{number}")
    label = list(CHANGES)[number % len(CHANGES)]
    return Case(label, CHANGES[label](rng, rng.choice(bases())))


def cases(seed: int, count: int) -> Iterator[Case]:
    return (make_case(seed, number) for number in range(count))


if __name__ == "__main__":
    case = make_case(int(sys.argv[1]), int(sys.argv[2]))
    Path(sys.argv[3]).write_bytes(case.data)
    print(case.label, len(case.data), "bytes")
