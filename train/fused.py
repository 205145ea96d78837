"""Autograd functions that replace chains of small operations; on a CPU the chains cost more than the matrix
products.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class Dispatch(torch.autograd.Function):
    """Rows to the experts' places; each row goes to k places, so that the gradient is a gather and a sum of
    k.

    `source` [P] names the row of each place (row 0 for places that pad an expert's share), `places` [T * k]
    the place of each (row, choice).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, source: Tensor, places: Tensor, k: int) -> Any:
        ctx.save_for_backward(places)
        ctx.k = k
        return x.index_select(0, source)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (places,) = ctx.saved_tensors
        return grad.index_select(0, places).view(-1, ctx.k, grad.shape[1]).sum(1), None, None, None


class Collect(torch.autograd.Function):
    """Rows back from the experts' places; places that pad get no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Any:
        ctx.save_for_backward(places)
        ctx.count = len(x)
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (places,) = ctx.saved_tensors
        out = grad.new_zeros(ctx.count, grad.shape[1])
        return out.index_copy_(0, places, grad), None


class Norm(torch.autograd.Function):
    """RMSNorm over the last dimension, output in `dtype`; x may be float32 or bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Any:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        inverse = (norm.square() / x.shape[-1] + eps).rsqrt()
        normed = (x * inverse.to(x.dtype)).to(dtype)
        ctx.save_for_backward(normed, inverse, weight)
        ctx.input_dtype = x.dtype
        return normed * weight.to(dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        normed, inverse, weight = ctx.saved_tensors
        product = grad * normed
        ones = product.new_ones(1, product.numel() // product.shape[-1])
        grad_weight = (ones @ product.view(-1, product.shape[-1])).view(-1).to(weight.dtype)
        w = weight.to(grad.dtype)
        mean = (product @ w)[..., None] / normed.shape[-1]
        grad_x = torch.addcmul(grad * w, normed, mean, value=-1).to(ctx.input_dtype)
        return grad_x.mul_(inverse.to(ctx.input_dtype)), grad_weight, None, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    out = torch.empty_like(x)
    half = a.shape[-1]
    torch.addcmul(a * cos, b, sin, value=-1, out=out[..., :half])
    torch.addcmul(b * cos, a, sin, out=out[..., half:])
    return out


class Rope(torch.autograd.Function):
    """Rotates pairs (d, d + head_dim / 2); the gradient is the rotation backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Any:
        ctx.save_for_backward(cos, sin)
        return rotate(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        return rotate(grad, cos, -sin), None, None


CHUNK = 256  # query positions in one product


def attention_chunks(masks: list[Tensor]) -> Iterator[tuple[slice, Tensor, int, int]]:
    """(rows of T, mask, first query, end) of each product: one long row at a time, its queries in chunks.

    A chunk needs no keys past its own end, and its probabilities stay small enough to be reused memory.
    """
    start = 0
    for whole in masks:
        length = whole.shape[1]
        together = max(1, (1 << 20) // (length * length))
        for mask in whole.split(together):
            cut = slice(start, start + len(mask) * length)
            start = cut.stop
            for first in range(0, length, CHUNK):
                yield cut, mask, first, min(first + CHUNK, length)


class Attention(torch.autograd.Function):
    """Attention of each rectangle [B, L], q [T, heads, D], k and v [T, kv_heads, D]; the probabilities are
    kept.

    `masks` holds one additive mask [B, L, L] a rectangle: causal, and apart for the documents of a row. The
    query heads that share a KV head are rows of one product. Rows of T past the last rectangle come out as
    zeros.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, masks: list[Tensor]) -> Any:
        n_kv, dim = k.shape[1:]
        group = q.shape[1] // n_kv
        out = torch.zeros(q.shape, dtype=q.dtype)
        saved = []
        for cut, mask, first, end in attention_chunks(masks):
            rows, length = mask.shape[:2]
            q1 = q[cut].view(rows, length, n_kv, group, dim)[:, first:end].permute(0, 2, 3, 1, 4)
            q1 = q1.reshape(rows * n_kv, -1, dim) * dim**-0.5
            k1, v1 = (
                t[cut].view(rows, length, n_kv, dim)[:, :end].transpose(1, 2).reshape(-1, end, dim)
                for t in (k, v)
            )
            scores = torch.bmm(q1, k1.transpose(1, 2)).view(rows, -1, end - first, end)
            p = F.softmax(scores.add_(mask[:, None, first:end, :end]), -1).view(rows * n_kv, -1, end)
            o = torch.bmm(p, v1).view(rows, n_kv, group, end - first, dim)
            out[cut].view(rows, length, n_kv, group, dim)[:, first:end].copy_(o.permute(0, 3, 1, 2, 4))
            saved += [q1, k1, v1, p]
        ctx.save_for_backward(*saved)
        ctx.masks, ctx.dims = masks, (n_kv, group, dim)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        n_kv, group, dim = ctx.dims
        saved = iter(ctx.saved_tensors)
        dq = torch.zeros(grad.shape, dtype=grad.dtype)
        dk = torch.zeros((len(grad), n_kv, dim), dtype=grad.dtype)
        dv = torch.zeros_like(dk)
        for cut, mask, first, end in attention_chunks(ctx.masks):
            rows, length = mask.shape[:2]
            q1, k1, v1, p = next(saved), next(saved), next(saved), next(saved)
            g = grad[cut].view(rows, length, n_kv, group, dim)[:, first:end].permute(0, 2, 3, 1, 4)
            g = g.reshape(rows * n_kv, -1, dim)
            ds = torch._softmax_backward_data(torch.bmm(g, v1.transpose(1, 2)), p, -1, p.dtype)
            dq1 = torch.bmm(ds, k1).mul_(dim**-0.5).view(rows, n_kv, group, end - first, dim)
            dq[cut].view(rows, length, n_kv, group, dim)[:, first:end].copy_(dq1.permute(0, 3, 1, 2, 4))
            for whole, part in (
                (dk, torch.bmm(ds.transpose(1, 2), q1)),
                (dv, torch.bmm(p.transpose(1, 2), g)),
            ):
                part = part.view(rows, n_kv, end, dim).transpose(1, 2)
                whole[cut].view(rows, length, n_kv, dim)[:, :end].add_(part)
        return dq, dk, dv, None


class SwiGLU(torch.autograd.Function):
    """silu(gate) * up of x = [gate | up]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        gate, up = x.chunk(2, -1)
        ctx.save_for_backward(x)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        gate, up = x.chunk(2, -1)
        out = torch.empty_like(x)
        half = gate.shape[-1]
        torch.mul(grad, F.silu(gate), out=out[:, half:])
        out[:, :half] = torch.ops.aten.silu_backward(grad * up, gate)
        return out
