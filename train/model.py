"""hy3-tiny: `transformers`' own HYV3ForCausalLM, the MTP layer it lacks, and a fast training step over both.

The parameters are the modules' own, so that what is trained is a true checkpoint; only the computation is
written anew (`Step`), because the library's spends most of a step of this size outside the matrix
products. Products run in bfloat16, the residual stream, norms' statistics, router and loss in float32.
tests/live/test_tiny_training.py
compares it with the library's forward pass.

Shapes: T tokens of a batch, one after the other. A batch is a list of rectangles [B, L] that only attention
has to know about; a row of a rectangle holds several documents. The product library compiles a kernel for
every new shape, so sizes that vary are padded to coarse steps.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import HYV3Config, HYV3ForCausalLM
from transformers.models.hy_v3.modeling_hy_v3 import HYV3DecoderLayer, HYV3MoE, HYV3RMSNorm

from train.fused import Attention, Collect, Dispatch, Norm, Rope, SwiGLU

VOCAB_ROWS = 1024  # 1,000 tokens and 24 padding rows: a multiple of 64, as the published models pad


def make_config(bos: int | None, eos: int | None, pad: int | None, eod: int | None) -> HYV3Config:
    config: Any = HYV3Config  # takes keys beyond its own fields, as checkpoints have them
    out: HYV3Config = config(
        vocab_size=VOCAB_ROWS,
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=5,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=64,
        num_experts=8,
        num_experts_per_tok=2,
        num_shared_experts=1,
        moe_intermediate_size=256,
        mlp_layer_types=["dense"] + ["sparse"] * 4,
        router_scaling_factor=2.826,
        rope_parameters={"rope_type": "default", "rope_theta": 11158840.0},
        max_position_embeddings=262144,
        rms_norm_eps=1e-5,
        initializer_range=0.04,
        tie_word_embeddings=False,
        bos_token_id=bos,
        eos_token_id=eos,
        pad_token_id=pad,
        eod_token_id=eod,
        num_nextn_predict_layers=1,
        qk_norm=True,
        route_norm=True,
        moe_router_use_sigmoid=True,
        moe_router_enable_expert_bias=True,
        enable_lm_head_fp32=True,
        dtype="float32",
    )
    return out


class MTP(nn.Module):
    """The multi-token prediction layer: a sparse decoder block and its glue, named as the checkpoint names
    them.
    """

    def __init__(self, config: HYV3Config) -> None:
        super().__init__()
        block_config = copy.deepcopy(config)
        block_config.mlp_layer_types = ["sparse"]
        self.block = HYV3DecoderLayer(block_config, layer_idx=0)
        self.eh_proj = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.enorm = HYV3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.hnorm = HYV3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.final_layernorm = HYV3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class HY3Tiny(nn.Module):
    def __init__(self, config: HYV3Config, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.config = config
        self.trunk = HYV3ForCausalLM(config)
        self.mtp = MTP(config)
        std = config.initializer_range
        residual_std = std / (2 * config.num_hidden_layers) ** 0.5
        moe: Any = self.mtp.block.mlp
        for weight in (self.mtp.eh_proj.weight, moe.gate.weight, moe.experts.gate_up_proj):
            nn.init.normal_(weight, std=std)
        for module in self.mtp.block.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=std)
        # What writes to the residual stream starts smaller, by the number of its writers (Radford et al.
        # 2019).
        for name, weight in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", "experts.down_proj")):
                nn.init.normal_(weight, std=residual_std)

    def moes(self) -> list[HYV3MoE]:
        blocks = [*self.trunk.model.layers, self.mtp.block]
        return [block.mlp for block in blocks if isinstance(block.mlp, HYV3MoE)]


@dataclass
class Batch:
    ids: Tensor  # int64 [T]
    positions: Tensor  # int64 [T], within the document
    documents: list[
        Tensor
    ]  # int64 [B, L] a rectangle: which document of its row a token is of; sum of B * L <= T
    targets: Tensor  # int64 [N]: positions t whose x[t + 1] is trained on; -1 pads
    mtp_targets: Tensor  # int64 [M]: positions t whose x[t + 1] and x[t + 2] both are; -1 pads


def masks(documents: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Additive masks [B, L, L]: a token sees those before it in its own document, and itself."""
    out = []
    for doc in documents:
        hidden = doc[:, :, None] != doc[:, None, :]
        hidden |= torch.ones(doc.shape[1], doc.shape[1], dtype=torch.bool).triu_(1)
        out.append(torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf")))
    return out


class Step:
    """The forward pass of one training step. Weights are cast once, on first use."""

    def __init__(self, model: HY3Tiny, batch: Batch, dtype: torch.dtype = torch.bfloat16) -> None:
        self.model, self.batch, self.dtype = model, batch, dtype
        self.eps = model.config.rms_norm_eps
        self.loads: list[Tensor] = []  # tokens per expert, in the order of HY3Tiny.moes
        angles = batch.positions[:, None].float() * model.trunk.model.rotary_emb.inv_freq
        self.cos = angles.cos().to(dtype)[:, None, :]
        self.sin = angles.sin().to(dtype)[:, None, :]
        self.masks = masks(batch.documents, dtype)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight.to(self.dtype))

    def norm(self, x: Tensor, module: Any) -> Tensor:
        out: Tensor = Norm.apply(x, module.weight, self.eps, self.dtype)
        return out

    def rope(self, x: Tensor) -> Tensor:
        out: Tensor = Rope.apply(x, self.cos, self.sin)
        return out

    def attention(self, x: Tensor, attn: Any) -> Tensor:
        dim = attn.head_dim
        weight = torch.cat((attn.q_proj.weight, attn.k_proj.weight, attn.v_proj.weight))
        n_q, n_kv = attn.q_proj.weight.shape[0] // dim, attn.k_proj.weight.shape[0] // dim
        q, k, v = self.linear(x, weight).view(-1, n_q + 2 * n_kv, dim).split((n_q, n_kv, n_kv), 1)
        q, k = self.rope(self.norm(q, attn.q_norm)), self.rope(self.norm(k, attn.k_norm))
        out = Attention.apply(q, k, v.contiguous(), self.masks)
        return self.linear(out.view(len(x), -1), attn.o_proj.weight)

    def swiglu(self, x: Tensor, mlp: Any) -> Tensor:
        gate_up = torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight))
        return self.linear(SwiGLU.apply(self.linear(x, gate_up)), mlp.down_proj.weight)

    def moe(self, x: Tensor, moe: Any) -> Tensor:
        k = moe.top_k
        scores = torch.sigmoid(F.linear(x.float(), moe.gate.weight))
        chosen = (scores + moe.e_score_correction_bias).topk(k, dim=-1).indices
        weights = scores.gather(1, chosen)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * moe.gate.router_scaling_factor
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        counts = flat.bincount(minlength=moe.gate.num_experts)
        self.loads.append(counts)
        # Each expert's share starts at a multiple of `quantum`; `places` says where each (row, choice) goes.
        quantum = 64 if len(x) > 2048 else 32
        shares = (counts + quantum - 1) // quantum * quantum
        shift = (shares.cumsum(0) - shares) - (counts.cumsum(0) - counts)
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order)) + shift.repeat_interleave(counts)
        source = torch.zeros(int(shares.sum()), dtype=torch.int64)
        source[places] = torch.arange(len(order)) // k
        gate_up = moe.experts.gate_up_proj.to(self.dtype).unbind(0)
        down = moe.experts.down_proj.to(self.dtype).unbind(0)
        outs = [
            F.linear(SwiGLU.apply(F.linear(rows, gate_up[e])), down[e])
            for e, rows in enumerate(Dispatch.apply(x, source, places, k).split(shares.tolist()))
        ]
        routed = Collect.apply(torch.cat(outs), places).view(-1, k, x.shape[1])
        routed = torch.einsum("tk,tkh->th", weights.to(self.dtype), routed)
        return routed + self.swiglu(x, moe.shared_experts)

    def ffn(self, x: Tensor, mlp: Any) -> Tensor:
        return self.moe(x, mlp) if isinstance(mlp, HYV3MoE) else self.swiglu(x, mlp)

    def block(self, h: Tensor, block: Any, rows: Tensor | None = None) -> Tensor:
        """One decoder block; with `rows`, only those rows go on after attention."""
        h = h + self.attention(self.norm(h, block.input_layernorm), block.self_attn)
        if rows is not None:
            h = h.index_select(0, rows)
        return h + self.ffn(self.norm(h, block.post_attention_layernorm), block.mlp)

    def head(self, x: Tensor) -> Tensor:
        return self.linear(x.to(self.dtype), self.model.trunk.lm_head.weight).float()

    def hidden(self) -> Tensor:
        """Post-norm states, float32 [T, H]."""
        trunk = self.model.trunk.model
        h = F.embedding(self.batch.ids, trunk.embed_tokens.weight)
        for block in trunk.layers:
            h = self.block(h, block)
        return F.rms_norm(h, (h.shape[-1],), trunk.norm.weight, self.eps)

    def mtp_hidden(self, hidden: Tensor, rows: Tensor) -> Tensor:
        mtp = self.model.mtp
        following = self.batch.ids.roll(-1)  # wrong in the last column, which nothing trained on attends to
        e = self.norm(F.embedding(following, self.model.trunk.model.embed_tokens.weight), mtp.enorm)
        g = self.norm(hidden, mtp.hnorm)
        u = self.linear(torch.cat((e, g), -1), mtp.eh_proj.weight).float()
        return self.norm(self.block(u, mtp.block, rows), mtp.final_layernorm)

    def cross_entropy(self, x: Tensor, targets: Tensor, ahead: int) -> Tensor:
        """Per token; the padding of `targets` is cut off."""
        real = int((targets >= 0).sum())
        return F.cross_entropy(self.head(x)[:real], self.batch.ids[targets[:real] + ahead], reduction="none")

    def losses(self) -> tuple[Tensor, Tensor]:
        """Per-token cross entropies: of x[t + 1] at `targets`, of x[t + 2] at `mtp_targets`."""
        batch = self.batch
        hidden = self.hidden()
        near = self.cross_entropy(hidden.index_select(0, batch.targets.clamp(min=0)), batch.targets, 1)
        far = self.cross_entropy(
            self.mtp_hidden(hidden, batch.mtp_targets.clamp(min=0)), batch.mtp_targets, 2
        )
        return near, far


@torch.no_grad()
def balance(model: HY3Tiny, loads: Sequence[Tensor], rate: float) -> None:
    """Moves the selection bias towards even loads, without a loss for it (Wang et al. 2024)."""
    for moe, load in zip(model.moes(), loads, strict=True):
        load = load.float()
        bias: Any = moe.e_score_correction_bias
        bias += rate * torch.sign(load.mean() - load)
