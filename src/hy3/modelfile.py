"""What a model file says about itself, without loading it: shapes, parameter counts, the memory it will take.

Works on whatever `hy3core.GGUF` can read, so also on files that `hy3core.Model` refuses; what a file does not
say is None here, not an error.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hy3core import GGUF, TensorInfo

ARCHITECTURES = ("hy_v3", "hy-v3")  # the second is that of the ds4 forks; the tensors are the same
# Of the KV cache: bits of an element; bytes of a scale, and how many columns of a head share one (0: all).
KV_TYPES = {"f32": (32, 0, 0), "f16": (16, 0, 0), "q8": (8, 4, 0), "q4": (4, 2, 32)}

# The parts of a tensor's name that tell what it is.
ROUTED_EXPERTS = re.compile(r"^blk\.\d+\.ffn_(gate|up|down|gate_up)_exps\.")
ORIGINAL_EXPERT = re.compile(r"^blk\.\d+\.ffn_(gate|up|down)_exps\.\d+\.(gate|up|down)_proj\.weight$")
BLOCK = re.compile(r"^blk\.(\d+)\.")


@dataclass(frozen=True)
class Shapes:
    """The architecture's numbers, from the metadata. `layers` leaves out the MTP layers."""

    layers: int | None
    mtp_layers: int
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    dense_layers: int | None
    dense_ffn: int | None
    experts: int | None
    experts_used: int | None
    experts_shared: int | None
    expert_ffn: int | None
    vocab: int | None
    ctx: int | None
    rope_base: float | None
    rope_scaling: str | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def kv_head_bytes(head_dim: int, kv: str) -> int:
    """The keys, or the values, of one head at one position."""
    bits, scale, columns = KV_TYPES[kv]
    return head_dim * bits // 8 + scale * (head_dim // columns if columns else 1)


class ModelFile:
    """A view of an open GGUF."""

    def __init__(self, gguf: "GGUF") -> None:
        self.metadata: Mapping[str, Any] = gguf.metadata
        self.tensors: Sequence[TensorInfo] = gguf.tensors
        self.architecture = str(self.metadata.get("general.architecture", "none"))
        self.shapes = self._shapes()

    @property
    def name(self) -> str | None:
        name = self.metadata.get("general.name")
        return name if isinstance(name, str) else None

    @property
    def dialect(self) -> str:
        """`hy3` is what this engine runs, `original` the first hy3 engine's files, `foreign` other models."""
        if self.architecture not in ARCHITECTURES:
            return "foreign"
        if any(ORIGINAL_EXPERT.match(tensor.name) for tensor in self.tensors):
            return "original"
        return "hy3"

    @property
    def mtp(self) -> str:
        """`present`; `declared` where the keys have an MTP layer and the tensors do not; `none`."""
        if not self.shapes.mtp_layers:
            return "none"
        return "present" if any(self._is_mtp(tensor.name) for tensor in self.tensors) else "declared"

    @property
    def weights_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def types(self) -> dict[str, dict[str, int]]:
        """Per tensor type, most bytes first: how many tensors and bytes."""
        totals: dict[str, dict[str, int]] = {}
        for tensor in self.tensors:
            total = totals.setdefault(str(tensor.type), {"tensors": 0, "bytes": 0})
            total["tensors"] += 1
            total["bytes"] += tensor.nbytes
        return dict(sorted(totals.items(), key=lambda item: -item[1]["bytes"]))

    def parameters(self) -> dict[str, int]:
        """`total` and `active` leave the MTP layer out, as published sizes do (295B-A21B); `mtp` is its own.

        `active` is what one token passes through: of the routed experts, only as many as are used.
        """
        counts = {"total": 0, "active": 0, "mtp": 0}
        for tensor in self.tensors:
            size = prod(tensor.shape)
            if self._is_mtp(tensor.name):
                counts["mtp"] += size
                continue
            counts["total"] += size
            used, of = self.shapes.experts_used, self.shapes.experts
            if ROUTED_EXPERTS.match(tensor.name) and used and of:
                size = size * used // of
            counts["active"] += size
        return counts

    def passed_through(self, experts: int | None = None) -> Iterator[tuple["TensorInfo", float]]:
        """The tensors that one token of the trunk passes through, and how much of each: of the routed experts
        those used (`experts`, or as many as the file says), of the embedding one row.
        """
        used, of = experts or self.shapes.experts_used, self.shapes.experts
        tied = not any(tensor.name == "output.weight" for tensor in self.tensors)
        for tensor in self.tensors:
            if self._is_mtp(tensor.name):
                continue
            if ROUTED_EXPERTS.match(tensor.name) and used and of:
                yield tensor, min(used, of) / of
            elif tensor.name == "token_embd.weight" and not tied:
                yield tensor, 1 / tensor.shape[-1]
            else:
                yield tensor, 1.0

    def token_bytes(self, depth: int, kv: str, experts: int | None = None) -> int:
        """What decoding one token after `depth` others must read, each byte once: weights and KV cache."""
        weights = sum(tensor.nbytes * part for tensor, part in self.passed_through(experts))
        layers, mtp = self.shapes.layers or 0, self.shapes.mtp_layers if self.mtp == "present" else 0
        cache = (self.kv_bytes(depth, kv) or 0) * layers / max(1, layers + mtp)
        return round(weights + cache)

    def token_ops(self, experts: int | None = None) -> int:
        """Multiplications and additions of one token's products with the weights; attention not counted."""
        through = self.passed_through(experts)
        return round(sum(2 * prod(tensor.shape) * part for tensor, part in through if len(tensor.shape) > 1))

    def kv_bytes(self, ctx: int, kv: str) -> int | None:
        """Keys and values of `ctx` positions in every layer, the MTP layer's included where there is one."""
        shapes = self.shapes
        if shapes.layers is None or shapes.kv_heads is None or shapes.head_dim is None:
            return None
        layers = shapes.layers + (shapes.mtp_layers if self.mtp == "present" else 0)
        return 2 * shapes.kv_heads * kv_head_bytes(shapes.head_dim, kv) * layers * ctx

    def _is_mtp(self, name: str) -> bool:
        block = BLOCK.match(name)
        return block is not None and self.shapes.layers is not None and int(block[1]) >= self.shapes.layers

    def _shapes(self) -> Shapes:
        mtp_layers = self._int("nextn_predict_layers") or 0
        blocks = self._int("block_count")
        heads, hidden = self._int("attention.head_count"), self._int("embedding_length")
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        base = self.metadata.get(self._key("rope.freq_base"))
        scaling = self.metadata.get(self._key("rope.scaling.type"))
        return Shapes(
            layers=None if blocks is None else blocks - mtp_layers,
            mtp_layers=mtp_layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self._int("attention.head_count_kv"),
            head_dim=self._int("attention.key_length") or (hidden // heads if hidden and heads else None),
            dense_layers=self._int("leading_dense_block_count"),
            dense_ffn=self._int("feed_forward_length"),
            experts=self._int("expert_count"),
            experts_used=self._int("expert_used_count"),
            experts_shared=self._int("expert_shared_count"),
            expert_ffn=self._int("expert_feed_forward_length"),
            vocab=len(tokens) if tokens is not None and hasattr(tokens, "__len__") else None,
            ctx=self._int("context_length"),
            rope_base=float(base) if isinstance(base, (int, float)) else None,
            rope_scaling=scaling if isinstance(scaling, str) else None,
        )

    def _key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def _int(self, name: str) -> int | None:
        """An integer key, or the largest entry of a per-layer array."""
        value = self.metadata.get(self._key(name))
        if isinstance(value, int):
            return value
        try:
            return max(int(entry) for entry in value)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            return None
