"""What a hy_v3 model consists of: its dimensions, and from them every GGUF tensor with shape and role, in
file order.

Shapes are in ggml's order, the row length first: a matrix y = W x with `rows` outputs and `cols` inputs is
(cols, rows), the routed experts of a layer are (cols, rows, experts).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass


class Role(enum.Enum):
    """What a tensor does, which decides the type it is stored in (layouts.py)."""

    EMBEDDING = "embedding"
    OUTPUT = "output"
    ATTENTION = "attention"  # with the MTP layer's eh_proj
    DENSE = "dense FFN"
    SHARED = "shared expert"
    EXPERTS = "routed experts"
    EXACT = "norm, router or selection bias"  # float32 whatever the layout: 16 bits flip the router's choices


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    role: Role
    optional: bool = False

    @property
    def cols(self) -> int:
        return self.shape[0]

    @property
    def rows(self) -> int:
        rows = 1
        for size in self.shape[1:]:
            rows *= size
        return rows


@dataclass(frozen=True)
class Model:
    """The dimensions. Tuples have one entry per block: the trunk's layers, then the MTP layers."""

    n_layers: int
    n_mtp: int
    hidden: int
    vocab: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_experts: int
    n_experts_used: int
    n_shared_experts: int
    ffn: tuple[int, ...]
    expert_ffn: tuple[int, ...]
    shared_ffn: int
    sparse: tuple[bool, ...]
    tied: bool
    selection_bias: bool

    @property
    def n_blocks(self) -> int:
        return self.n_layers + self.n_mtp

    def tensors(self, *, trunk: bool = True) -> Iterator[Tensor]:
        """Every tensor, in file order. Without `trunk` the MTP layers and what they borrow: embedding, norm,
        head."""
        hidden = self.hidden
        yield Tensor("token_embd.weight", (hidden, self.vocab), Role.EMBEDDING)
        yield Tensor("output_norm.weight", (hidden,), Role.EXACT)
        if not self.tied:
            yield Tensor("output.weight", (hidden, self.vocab), Role.OUTPUT)
        for block in range(0 if trunk else self.n_layers, self.n_blocks):
            yield from self._block(block)
            if block >= self.n_layers:
                yield from self._glue(block)

    def _block(self, block: int) -> Iterator[Tensor]:
        hidden, at = self.hidden, f"blk.{block}."
        q, kv = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        yield Tensor(at + "attn_norm.weight", (hidden,), Role.EXACT)
        yield Tensor(at + "attn_q.weight", (hidden, q), Role.ATTENTION)
        yield Tensor(at + "attn_k.weight", (hidden, kv), Role.ATTENTION)
        yield Tensor(at + "attn_v.weight", (hidden, kv), Role.ATTENTION)
        yield Tensor(at + "attn_output.weight", (q, hidden), Role.ATTENTION)
        yield Tensor(at + "attn_q_norm.weight", (self.head_dim,), Role.EXACT)
        yield Tensor(at + "attn_k_norm.weight", (self.head_dim,), Role.EXACT)
        yield Tensor(at + "ffn_norm.weight", (hidden,), Role.EXACT)
        if not self.sparse[block]:
            yield from self._ffn(at, "", self.ffn[block], Role.DENSE)
            return
        yield Tensor(at + "ffn_gate_inp.weight", (hidden, self.n_experts), Role.EXACT)
        if self.selection_bias:
            yield Tensor(at + "exp_probs_b", (self.n_experts,), Role.EXACT)
        yield from self._ffn(at, "_exps", self.expert_ffn[block], Role.EXPERTS, (self.n_experts,))
        if self.n_shared_experts:
            yield from self._ffn(at, "_shexp", self.shared_ffn, Role.SHARED)

    def _ffn(
        self, at: str, suffix: str, ffn: int, role: Role, experts: tuple[int, ...] = ()
    ) -> Iterator[Tensor]:
        yield Tensor(f"{at}ffn_gate{suffix}.weight", (self.hidden, ffn, *experts), role)
        yield Tensor(f"{at}ffn_up{suffix}.weight", (self.hidden, ffn, *experts), role)
        yield Tensor(f"{at}ffn_down{suffix}.weight", (ffn, self.hidden, *experts), role)

    def _glue(self, block: int) -> Iterator[Tensor]:
        hidden, at = self.hidden, f"blk.{block}.nextn."
        yield Tensor(at + "eh_proj.weight", (2 * hidden, hidden), Role.ATTENTION)
        yield Tensor(at + "enorm.weight", (hidden,), Role.EXACT)
        yield Tensor(at + "hnorm.weight", (hidden,), Role.EXACT)
        yield Tensor(at + "shared_head_norm.weight", (hidden,), Role.EXACT)
        yield Tensor(at + "embed_tokens.weight", (hidden, self.vocab), Role.EMBEDDING, optional=True)
        yield Tensor(at + "shared_head_head.weight", (hidden, self.vocab), Role.OUTPUT, optional=True)
