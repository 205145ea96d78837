"""The training of hy3-tiny: its fast step against `transformers`, its checkpoint, and that a resumed run is
the same run.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoTokenizer, HYV3ForCausalLM

from train import fused, tasks, template, tokenizer, tools
from train.batches import ROW_LENGTHS, collate, pack
from train.chat import Chat
from train.export import build, export, load
from train.model import HY3Tiny, Step

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tok() -> Tokenizer:
    return tokenizer.train()


@pytest.fixture(scope="module")
def model(tok: Tokenizer) -> HY3Tiny:
    """Random weights with norms and biases away from their initial values, so that each one shows."""
    out = build(tok)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in out.named_parameters():
            if weight.ndim == 1:
                weight.uniform_(0.5, 1.5)
            elif "norm" not in name:
                weight.mul_(1.5)
        for moe in out.moes():
            moe.e_score_correction_bias.uniform_(-0.2, 0.2)
    return out


@pytest.fixture(scope="module")
def checkpoint(model: HY3Tiny, tok: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny") / "checkpoint"
    export(model, tok, out)
    return out


def conversations() -> list[tasks.Conversation]:
    rng = random.Random(0)
    return [
        tasks.sums(rng, False),
        tasks.worked_sums(rng, False),
        tasks.talk(rng, False),
        tasks.recall(rng, False, 300),
        tools.tool_calls(rng, False),
        tasks.sums(rng, False),
    ]


def test_prompts_are_those_of_the_golden_file_and_of_transformers(checkpoint: Path) -> None:
    tok = AutoTokenizer.from_pretrained(checkpoint)
    cases = json.loads((ROOT / "tests/data/chat_template.json").read_text(encoding="utf-8"))
    rendered = [c for c in cases if c["error"] is None]
    assert len(rendered) == 12
    for case in rendered:
        args = dict(case["args"])
        assert tok.apply_chat_template(args.pop("messages"), tokenize=False, **args) == case["expected"]


def test_special_tokens_are_one_token_and_digits_stay_apart(tok: Tokenizer) -> None:
    assert tok.get_vocab_size() == 1000
    for text in template.CONTROL + template.TAGS:
        assert tok.encode(text).ids == [tok.token_to_id(text)]
    assert tok.encode("9876543210").tokens == list("9876543210")
    text = "naïve 東京 🙂\r\n\tx=1"
    assert tok.decode(tok.encode(text).ids) == text


def test_the_mask_covers_what_the_assistant_writes(tok: Tokenizer) -> None:
    chat = Chat(tok)
    for conversation in conversations():
        ids, mask = chat.example(conversation)
        written = tok.decode(ids[mask].tolist(), skip_special_tokens=False)
        assert written.count(template.EOS) == sum(m["role"] == "assistant" for m in conversation.messages)
        assert written.endswith(conversation.messages[-1]["content"] + template.EOS)
        assert chat.prompt(conversation) + chat.answer(conversation) == ids.tolist()
        assert mask[len(chat.prompt(conversation)) :].all()


def test_packing_loses_and_joins_nothing() -> None:
    lengths = [20] * 50 + [130, 300, 700, 1088, 60, 128, 129]
    rows = pack(lengths)
    assert sorted(i for docs in rows.values() for row in docs for i in row) == list(range(len(lengths)))
    for length in ROW_LENGTHS:
        assert all(sum(lengths[i] for i in row) <= length for row in rows[length])


def test_the_step_computes_what_transformers_computes(
    model: HY3Tiny, checkpoint: Path, tok: Tokenizer, report: Callable[[str], None]
) -> None:
    """Documents packed together, in float32, against one at a time through the library."""
    trunk = HYV3ForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    examples = [Chat(tok).example(c) for c in conversations()]
    batch = collate(examples, pad=0)
    worst = 0.0
    with torch.no_grad():
        step = Step(model, batch, torch.float32)
        logits = step.head(step.hidden())
        for ids, _ in examples:
            want = trunk(torch.from_numpy(ids.astype("int64"))[None]).logits[0]
            starts = [
                i
                for i in range(len(batch.ids) - len(ids) + 1)
                if batch.ids[i : i + len(ids)].tolist() == ids.tolist() and batch.positions[i] == 0
            ]
            got = logits[starts[0] : starts[0] + len(ids)]
            worst = max(worst, float((got - want).abs().max() / want.abs().max()))
    report(f"training step against transformers, float32: {worst:.1e} of the largest logit")
    assert worst < 1e-4


def test_gradients_are_those_of_autograd() -> None:
    """Every hand-written backward pass against the plain formula, in float32."""
    torch.manual_seed(2)
    rows, length, dim = 3, 300, 64
    document = (torch.arange(length) // 110).expand(rows, length)
    hidden = (document[:, :, None] != document[:, None, :]) | torch.ones(length, length).triu(1).bool()
    mask = torch.zeros(rows, length, length).masked_fill(hidden, float("-inf"))
    total = rows * length

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        parts = [t.view(rows, length, -1, dim).transpose(1, 2) for t in (q, k, v)]
        out = F.scaled_dot_product_attention(*parts, attn_mask=mask[:, None], enable_gqa=True)
        return out.transpose(1, 2).reshape(total, -1, dim)

    def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (dim,), w, 1e-5)

    angles = torch.randn(total, 1, dim // 2)
    cos, sin = angles.cos(), angles.sin()

    def rope(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def swiglu(x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up

    heads, kv = torch.randn(total, 4, dim), torch.randn(total, 2, dim)
    cases = {
        "attention": (
            lambda *t: fused.Attention.apply(*t, [mask]),
            attention,
            [heads, kv, torch.randn_like(kv)],
        ),
        "norm": (lambda x, w: fused.Norm.apply(x, w, 1e-5, x.dtype), norm, [heads, torch.rand(dim) + 0.5]),
        "rope": (lambda x: fused.Rope.apply(x, cos, sin), rope, [heads]),
        "swiglu": (fused.SwiGLU.apply, swiglu, [torch.randn(total, dim)]),
    }
    for name, (ours, plain, inputs) in cases.items():
        results = []
        for function in (ours, plain):
            leaves = [t.clone().requires_grad_() for t in inputs]
            out = function(*leaves)
            weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
            (out * weight).sum().backward()
            results.append([out.detach(), *(leaf.grad for leaf in leaves)])
        for got, want in zip(*results, strict=True):
            error = float((got - want).abs().max() / want.abs().max())
            assert error < 1e-5, (name, error)


def test_the_checkpoint_is_in_the_hub_layout_with_its_mtp_layer(checkpoint: Path, model: HY3Tiny) -> None:
    names = set(load_file(checkpoint / "model.safetensors"))
    block = {name.split("layers.5.")[1] for name in names if ".layers.5." in name}
    like = {name.split("layers.4.")[1] for name in names if ".layers.4." in name}
    assert block == like | {f"{g}.weight" for g in ("eh_proj", "enorm", "hnorm", "final_layernorm")}
    assert {"mlp.router.gate.weight", "mlp.expert_bias", "mlp.shared_mlp.up_proj.weight"} <= block
    assert {f"mlp.experts.{e}.down_proj.weight" for e in range(8)} <= block
    _, info = HYV3ForCausalLM.from_pretrained(checkpoint, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    assert all(".layers.5." in name for name in info["unexpected_keys"])
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["num_nextn_predict_layers"] == 1
    again = load(checkpoint).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


def test_a_resumed_run_is_the_uninterrupted_run(tmp_path: Path) -> None:
    def train(out: Path, *extra: str) -> dict[str, torch.Tensor]:
        command = [sys.executable, "-m", "train.run", "--out", str(out), "--steps", "2", "--tokens", "200"]
        subprocess.run([*command, "--eval-every", "0", *extra], cwd=ROOT, check=True, capture_output=True)
        return torch.load(out / "state.pt", weights_only=True)

    whole = train(tmp_path / "whole")
    half = train(tmp_path / "parts", "--stop-at", "1")
    assert half["step"] == 1
    parts = train(tmp_path / "parts", "--resume")
    assert parts["step"] == whole["step"] == 2
    assert all(torch.equal(value, parts["model"][name]) for name, value in whole["model"].items())
    assert not all(torch.equal(value, half["model"][name]) for name, value in whole["model"].items())
    assert (tmp_path / "parts/checkpoint/model.safetensors").exists()
