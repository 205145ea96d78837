"""The MTP layer in torch, written from the published description; `transformers` has none.

Its decoder block is `transformers`' own HYV3DecoderLayer, so only the glue is new here: u[t] =
final_layernorm(block(eh_proj(concat(enorm(embed[x[t + 1]]), hnorm(H[t]))))) with H the model's post-norm
hidden states; the model's lm_head on u[t] predicts x[t + 2].
"""

from typing import Any

import torch
from live.torch_hy3 import packed_experts, rename
from support.random_hy3 import Weights
from transformers import HYV3Config, HYV3ForCausalLM
from transformers.cache_utils import DynamicCache
from transformers.models.hy_v3.modeling_hy_v3 import HYV3DecoderLayer, HYV3RMSNorm

GLUE = ("eh_proj", "enorm", "hnorm", "final_layernorm")


class ReferenceMtp(torch.nn.Module):
    def __init__(self, model: HYV3ForCausalLM, config: dict[str, Any], weights: Weights) -> None:
        super().__init__()
        self.trunk = [model]  # in a list: not a submodule, whose parameters load_state_dict would ask for
        index, hidden = config["num_hidden_layers"], config["hidden_size"]
        block_config = HYV3Config(**config, attn_implementation="eager", experts_implementation="eager")
        block_config.mlp_layer_types = ["sparse"]
        self.block = HYV3DecoderLayer(block_config, layer_idx=0)
        self.eh_proj = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.enorm = HYV3RMSNorm(hidden, config["rms_norm_eps"])
        self.hnorm = HYV3RMSNorm(hidden, config["rms_norm_eps"])
        self.final_layernorm = HYV3RMSNorm(hidden, config["rms_norm_eps"])

        prefix = f"model.layers.{index}."
        state = {}
        for name, array in weights.items():
            if name.startswith(prefix) and ".experts." not in name:
                name = rename(name.removeprefix(prefix))
                state[name if name.startswith(GLUE) else f"block.{name}"] = torch.from_numpy(array)
        for name, value in packed_experts(config, weights, index).items():
            state[name.replace(prefix, "block.")] = value
        self.load_state_dict(state)
        self.eval()

    def combine(self, e: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return torch.cat([e, g], dim=-1)

    def forward(self, next_tokens: list[int], hidden: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        """u float32[n, hidden] of n rows that follow those in the cache: (token t + 1, hidden state t)."""
        past, n = cache.get_seq_length(), len(next_tokens)
        e = self.enorm(self.trunk[0].model.embed_tokens(torch.tensor(next_tokens)))
        u = self.eh_proj(self.combine(e, self.hnorm(hidden)))[None]
        positions = torch.arange(past, past + n)[None]
        mask = torch.full((n, past + n), -torch.inf).triu(past + 1)[None, None]
        u = self.block(
            u,
            attention_mask=mask,
            position_ids=positions,
            cache=cache,
            use_cache=True,
            position_embeddings=self.trunk[0].model.rotary_emb(u, positions),
        )
        return self.final_layernorm(u[0])

    @torch.no_grad()
    def teacher_forced(self, tokens: list[int], hidden: torch.Tensor) -> torch.Tensor:
        """Logits [n - 1, vocab] of the rows (x[t + 1], H[t]) of a text and its model's hidden states."""
        return self.trunk[0].lm_head(self(tokens[1:], hidden[: len(tokens) - 1], DynamicCache()))

    @torch.no_grad()
    def draft(self, tokens: list[int], hidden: torch.Tensor, depth: int) -> list[torch.Tensor]:
        """Logits of `depth` greedy drafts; tokens[-1] is chosen but not in the context, hidden that of the
        others.
        """
        cache = DynamicCache()
        u = self(tokens[1:], hidden[: len(tokens) - 1], cache)[-1:]
        drafts = [self.trunk[0].lm_head(u)[0]]
        while len(drafts) < depth:
            u = self([int(drafts[-1].argmax())], u, cache)
            drafts.append(self.trunk[0].lm_head(u)[0])
        return drafts
