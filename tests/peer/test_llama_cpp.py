"""llama.cpp loads every type of file that `hy3 convert` writes, and computes the same with it.

Needs llama-cpp-python 0.3.36 in the environment. The comparison itself is eval/compare_llama.py, which also
runs on any file from the command line.
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model

from eval.compare_llama import compare_logits
from eval.peer import Remote
from eval.tiny.grade import SUITES, Question, questions
from eval.tiny.score import MAX_TOKENS
from hy3 import template
from hy3.cli import main

pytestmark = pytest.mark.peer

ROOT = Path(__file__).parents[2]
THREADS = len(os.sched_getaffinity(0))
TYPES = (
    "f32", "f16", "bf16", "q8_0", "q6_k", "q5_k", "q4_k", "q3_k", "q2_k", "q4_0", "iq4_nl", "iq4_xs", "mxfp4",
)  # fmt: skip
# Rows of 256 and 512, which every block divides; with an MTP layer, as real files have. Eight experts a
# token, as in Hy3: the engines round activations differently, and where that flips one of only two experts of
# a random model, the row says nothing about either engine.
CONFIG = make_config(
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_experts=16,
    num_experts_per_tok=8,
    moe_intermediate_size=256,
    num_nextn_predict_layers=1,
)
TINY = ROOT / "src/hy3/models/hy3-tiny.gguf"


def convert(source: Path, target: Path, type_name: str, *options: str) -> Path:
    main(["convert", str(source), "-o", str(target), "-t", type_name, *options], standalone_mode=False)
    return target


@pytest.fixture(scope="module")
def random_f32(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("peer") / "random.gguf"
    return write_model(path, CONFIG, make_weights(CONFIG, seed=50), in_type("f32"))


@pytest.mark.parametrize("type_name", TYPES)
def test_random_model(
    random_f32: Path, tmp_path: Path, type_name: str, report: Callable[[str], None]
) -> None:
    path = convert(random_f32, tmp_path / "model.gguf", type_name)
    result = compare_logits(str(path), [make_tokens(CONFIG, 300, seed=51)], THREADS)
    report(f"llama.cpp, random model at {type_name}: {result}")
    assert result.holds


@pytest.mark.parametrize("type_name", [name for name in TYPES if name not in ("f32", "f16", "bf16")])
def test_every_matrix_at_a_type(
    random_f32: Path, tmp_path: Path, type_name: str, report: Callable[[str], None]
) -> None:
    """The layouts keep attention and head at Q8_0; here they are at the type as well."""
    dense = [f"*.ffn_{kind}.weight" for kind in ("gate", "up", "down")]
    patterns = ["*.attn_[qkvo].weight", "*.attn_output.weight", "*_shexp.weight", *dense, "output.weight"]
    options = [word for pattern in patterns for word in ("--type", f"{pattern}={type_name}")]
    path = convert(random_f32, tmp_path / "model.gguf", type_name, *options)
    result = compare_logits(str(path), [make_tokens(CONFIG, 300, seed=51)], THREADS)
    report(f"llama.cpp, random model, every matrix at {type_name}: {result}")
    assert result.holds


def prompt_of(question: Question) -> str:
    return template.render(
        question.messages,
        tools=question.tools,
        add_generation_prompt=True,
        reasoning_effort=question.reasoning_effort,
    )


@pytest.mark.parametrize("type_name", TYPES)
def test_hy3_tiny(tmp_path: Path, type_name: str, report: Callable[[str], None]) -> None:
    """Held-out conversations with the expected answers, what the model is made for: five of each suite."""
    path = convert(TINY, tmp_path / "tiny.gguf", type_name)
    with Remote("Hy3", str(path), THREADS, 1) as hy3:
        chosen = [question for suite in SUITES for question in questions(suite)[:5]]
        texts = [hy3.encode(prompt_of(question) + question.expected) for question in chosen]
    result = compare_logits(str(path), texts, THREADS)
    report(f"llama.cpp, hy3-tiny at {type_name}: {result}")
    assert result.positions > 300
    assert result.holds


@pytest.mark.parametrize("type_name", ["f32", "q8_0"])
def test_same_greedy_text(tmp_path: Path, type_name: str, report: Callable[[str], None]) -> None:
    """On every prompt that the README's scores are measured on."""
    path = str(convert(TINY, tmp_path / "tiny.gguf", type_name))
    prompts = [prompt_of(question) for suite in SUITES for question in questions(suite)]
    different = []
    with (
        Remote("Hy3", path, THREADS, 2048) as hy3,
        Remote("Hy3", path, 1, 2048, "reference") as reference,
        Remote("Llama", path, THREADS, 2048) as llama,
    ):
        stop_ids = hy3.eos_ids()
        for prompt in prompts:
            tokens = hy3.encode(prompt)
            ours, theirs = (engine.greedy(tokens, MAX_TOKENS, stop_ids) for engine in (hy3, llama))
            if ours != theirs:
                different.append(prompt)
                common = [
                    a
                    for a, b in itertools.takewhile(
                        lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)
                    )
                ]
                rows = [engine.logits(tokens + common)[-1] for engine in (hy3, llama, reference)]
                report(f"llama.cpp, hy3-tiny at {type_name}, {prompt[-120:]!r}: {describe_fork(rows)}")
    same = len(prompts) - len(different)
    report(f"llama.cpp, hy3-tiny at {type_name}: same greedy text on {same} of {len(prompts)} prompts")
    assert different == []


def describe_fork(rows: list[np.ndarray]) -> str:
    """Where two texts part: by how much each engine, and the float32 reference, prefers hy3's token."""
    ours, theirs = int(rows[0].argmax()), int(rows[1].argmax())
    hy3, llama, reference = (f"{float(row[ours] - row[theirs]):+.3f}" for row in rows)
    return f"the lead of hy3's token is {hy3} in hy3, {llama} in llama.cpp, {reference} in the reference"
