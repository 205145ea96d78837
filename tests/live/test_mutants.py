"""The comparison with `transformers` can fail: each classic mistake, made in the torch model, misses it
100-fold.

The engine is right or wrong only relative to its reference; here the reference is wrong in one way at a time,
and the engine (which agrees with the right one, in the same test) must be far from it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from live.reference_mtp import ReferenceMtp
from live.torch_hy3 import convert, forward, make_model, save_checkpoint
from support.compare import relative_error
from support.random_hy3 import make_config, make_tokens, make_weights
from transformers import HYV3ForCausalLM
from transformers.models.hy_v3 import modeling_hy_v3

import hy3core

pytestmark = pytest.mark.live

TOLERANCE = 1e-4
Report = Callable[[str], None]


class Case(NamedTuple):
    make: Callable[[], HYV3ForCausalLM]
    mtp: Callable[[HYV3ForCausalLM], ReferenceMtp]
    tokens: list[int]
    logits: dict[str, np.ndarray]  # the engine's, by backend
    mtp_logits: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    config = make_config(hidden_size=128, num_hidden_layers=3, num_experts=8, num_nextn_predict_layers=1)
    weights = make_weights(config, seed=7)
    folder = tmp_path_factory.mktemp("mutants")
    save_checkpoint(make_model(config, weights), config, weights, folder / "checkpoint")
    gguf: Path = convert(folder / "checkpoint", folder / "model.gguf")
    tokens = make_tokens(config, 65, seed=7)
    logits, mtp_logits = {}, {}
    for backend in ("reference", "cpu"):
        session = hy3core.Model(str(gguf), backend=backend).session(ctx=128, kv="f32", mtp=True)
        logits[backend] = session.eval(tokens[:-1], logits="all")
        mtp_logits[backend] = session.mtp_logits(tokens[-1])
    return Case(
        make=lambda: make_model(config, weights),
        mtp=lambda model: ReferenceMtp(model, config, weights),
        tokens=tokens,
        logits=logits,
        mtp_logits=mtp_logits,
    )


def interleaved_rope(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
    """Turns dims 2i and 2i + 1 together, as GPT-J does, where Hy3 turns d and d + head_dim / 2."""
    half = cos.shape[-1] // 2
    cos = cos[..., :half].repeat_interleave(2, dim=-1).unsqueeze(unsqueeze_dim)
    sin = sin[..., :half].repeat_interleave(2, dim=-1).unsqueeze(unsqueeze_dim)

    def turn(x: torch.Tensor) -> torch.Tensor:
        swapped = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
        return x * cos + swapped * sin

    return turn(q), turn(k)


def biased_weights(self: Any, hidden: torch.Tensor, bias: torch.Tensor) -> Any:
    """The router with the weights taken from the scores it chose by, selection bias included."""
    logits = torch.nn.functional.linear(hidden.reshape(-1, self.hidden_dim), self.weight)
    weights, chosen = torch.topk(torch.sigmoid(logits) + bias, self.top_k, dim=-1)
    return logits, weights / weights.sum(dim=-1, keepdim=True) * self.router_scaling_factor, chosen


def unbiased_choice(self: Any, hidden: torch.Tensor, bias: torch.Tensor) -> Any:
    return RIGHT_ROUTER(self, hidden, torch.zeros_like(bias))


RIGHT_ROUTER = modeling_hy_v3.HYV3TopKRouter.forward


def break_rope(model: HYV3ForCausalLM, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(modeling_hy_v3, "apply_rotary_pos_emb", interleaved_rope)


def break_q_norm(model: HYV3ForCausalLM, patch: pytest.MonkeyPatch) -> None:
    for layer in model.model.layers:
        layer.self_attn.q_norm = torch.nn.Identity()


def break_weights(model: HYV3ForCausalLM, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(modeling_hy_v3.HYV3TopKRouter, "forward", biased_weights)


def break_choice(model: HYV3ForCausalLM, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(modeling_hy_v3.HYV3TopKRouter, "forward", unbiased_choice)


def break_scale(model: HYV3ForCausalLM, patch: pytest.MonkeyPatch) -> None:
    for layer in model.model.layers[1:]:
        layer.mlp.gate.router_scaling_factor = 1.0


MUTANTS = {
    "interleaved RoPE": break_rope,
    "no q_norm": break_q_norm,
    "weights from the biased scores": break_weights,
    "no selection bias": break_choice,
    "no 2.826": break_scale,
}


def check(what: str, right: float, wrong: float, report: Report) -> None:
    report(
        f"mutant {what}: error {wrong:.1e} (above {100 * TOLERANCE:.0e}), "
        f"unmutated {right:.1e} (below {TOLERANCE:.0e})"
    )
    assert right < TOLERANCE
    assert wrong > 100 * TOLERANCE


@pytest.mark.parametrize("name", MUTANTS)
def test_trunk(case: Case, name: str, monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    tokens = case.tokens[:-1]
    right = forward(case.make(), tokens).logits
    mutant = case.make()
    MUTANTS[name](mutant, monkeypatch)
    wrong = forward(mutant, tokens).logits
    check(
        name,
        max(relative_error(logits, right) for logits in case.logits.values()),
        min(relative_error(logits, wrong) for logits in case.logits.values()),
        report,
    )


@pytest.mark.parametrize("name", ["swapped concat", "pre-norm H"])
def test_mtp(case: Case, name: str, report: Report) -> None:
    model = case.make()
    tokens = case.tokens
    norm_input = []
    hook = model.model.norm.register_forward_pre_hook(lambda norm, args: norm_input.append(args[0][0]))
    hidden = torch.from_numpy(forward(model, tokens[:-1]).hidden)
    hook.remove()
    right = case.mtp(model).teacher_forced(tokens, hidden)[-1].numpy()

    mutant = case.mtp(model)
    if name == "swapped concat":
        mutant.combine = lambda e, g: torch.cat([g, e], dim=-1)
    else:
        hidden = norm_input[0]
    wrong = mutant.teacher_forced(tokens, hidden)[-1].numpy()
    check(
        f"MTP {name}",
        max(relative_error(logits, right) for logits in case.mtp_logits.values()),
        min(relative_error(logits, wrong) for logits in case.mtp_logits.values()),
        report,
    )
