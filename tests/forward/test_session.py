"""What a session promises besides right logits: its bookkeeping, its errors, and that a failed call leaves no
trace.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.compare import same_bytes
from support.numpy_hy3 import log_softmax
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model

import hy3core

CONFIG = make_config(num_nextn_predict_layers=1)
TOKENS = make_tokens(CONFIG, 130, seed=31)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> hy3core.Model:
    path = tmp_path_factory.mktemp("session") / "model.gguf"
    write_model(path, CONFIG, make_weights(CONFIG, seed=30), in_type("f16"))
    return hy3core.Model(str(path), threads=1)


# --- bookkeeping


def test_eval_returns_what_was_asked_for(model: hy3core.Model) -> None:
    session = model.session(ctx=256)
    everything = session.eval(TOKENS[:5], logits="all")
    assert everything.shape == (5, CONFIG["vocab_size"])
    assert everything.dtype == np.float32
    assert session.eval(TOKENS[5:7], logits="none") is None
    last = session.eval(TOKENS[7:9])
    assert last.shape == (CONFIG["vocab_size"],)
    assert session.position == 9
    assert list(session.tokens) == TOKENS[:9]
    again = model.session(ctx=256).eval(TOKENS[:9], logits="all")
    assert same_bytes(again[8], last)
    assert same_bytes(again[:5], everything)


def test_unknown_logits_word(model: hy3core.Model) -> None:
    with pytest.raises((ValueError, hy3core.Error), match="some"):
        model.session(ctx=64).eval(TOKENS[:2], logits="some")


def test_eval_of_nothing(model: hy3core.Model) -> None:
    session = model.session(ctx=64)
    session.eval(TOKENS[:3], logits="none")
    with pytest.raises((ValueError, hy3core.Error), match="token"):
        session.eval([])
    assert session.eval([], logits="all").shape == (0, CONFIG["vocab_size"])
    assert session.position == 3


@pytest.mark.parametrize("bad", [-1, CONFIG["vocab_size"], 2**31])
def test_token_outside_the_vocabulary(model: hy3core.Model, bad: int) -> None:
    session = model.session(ctx=64)
    session.eval(TOKENS[:3], logits="none")
    with pytest.raises((ValueError, OverflowError, hy3core.Error)):
        session.eval([1, bad, 2])
    assert list(session.tokens) == TOKENS[:3]


def test_truncate_and_reset(model: hy3core.Model) -> None:
    session = model.session(ctx=256)
    first = session.eval(TOKENS[:100])
    session.truncate(40)
    assert session.position == 40
    assert list(session.tokens) == TOKENS[:40]
    for bad in (-1, 41):
        with pytest.raises((ValueError, hy3core.Error)):
            session.truncate(bad)
    assert same_bytes(session.eval(TOKENS[40:100]), first)
    session.reset()
    assert session.position == 0
    assert list(session.tokens) == []
    assert same_bytes(session.eval(TOKENS[:100]), first)


def test_hidden_needs_an_evaluated_token(model: hy3core.Model) -> None:
    session = model.session(ctx=64)
    with pytest.raises((ValueError, hy3core.Error), match=r"[Ee]valuate"):
        _ = session.hidden
    session.eval(TOKENS[:3], logits="none")
    state = session.hidden
    assert state.shape == (CONFIG["hidden_size"],)
    session.eval(TOKENS[3:5], logits="none")
    assert not same_bytes(session.hidden, state)


def test_mtp_needs_to_be_asked_for(model: hy3core.Model) -> None:
    session = model.session(ctx=64)
    session.eval(TOKENS[:3], logits="none")
    with pytest.raises((ValueError, hy3core.Error), match="mtp"):
        session.mtp_logits(1)


def test_fork_is_independent(model: hy3core.Model) -> None:
    session = model.session(ctx=256)
    session.eval(TOKENS[:50], logits="none")
    fork = session.fork()
    assert list(fork.tokens) == TOKENS[:50]
    fork.eval([1, 2, 3], logits="none")
    assert session.position == 50
    assert fork.position == 53
    session.reset()
    del session
    assert list(fork.tokens) == [*TOKENS[:50], 1, 2, 3]
    fork.truncate(50)
    assert same_bytes(fork.eval(TOKENS[50:60]), model.session(ctx=256).eval(TOKENS[:60]))


def test_session_outlives_the_name_of_its_model(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", CONFIG, make_weights(CONFIG, seed=30), in_type("f16"))
    session = hy3core.Model(str(path)).session(ctx=64)
    assert np.isfinite(session.eval(TOKENS[:5])).all()


# --- several sessions in a step


def test_step_results_in_order(model: hy3core.Model) -> None:
    a, b, c = (model.session(ctx=256) for _ in range(3))
    results = hy3core.step([(a, TOKENS[:4], "last"), (b, TOKENS[4:9], "none"), (c, TOKENS[9:12], "all")])
    assert len(results) == 3
    assert same_bytes(results[0], model.session(ctx=256).eval(TOKENS[:4]))
    assert results[1] is None
    assert same_bytes(results[2], model.session(ctx=256).eval(TOKENS[9:12], logits="all"))
    assert [s.position for s in (a, b, c)] == [4, 5, 3]
    assert hy3core.step([]) == []


def test_step_refuses_a_session_twice(model: hy3core.Model) -> None:
    session = model.session(ctx=64)
    with pytest.raises((ValueError, hy3core.Error), match="once"):
        hy3core.step([(session, [1], "last"), (session, [2], "last")])
    assert session.position == 0


def test_step_fails_as_a_whole(model: hy3core.Model) -> None:
    roomy, full = model.session(ctx=256), model.session(ctx=4)
    full.eval([1, 2, 3], logits="none")
    with pytest.raises(hy3core.ContextFullError):
        hy3core.step([(roomy, TOKENS[:10], "last"), (full, [4, 5], "last")])
    assert roomy.position == 0
    assert list(full.tokens) == [1, 2, 3]
    assert full.eval([4]).shape == (CONFIG["vocab_size"],)


# --- the end of the context


def test_context_full(model: hy3core.Model) -> None:
    session = model.session(ctx=70)
    session.eval(TOKENS[:68], logits="none")
    with pytest.raises(hy3core.ContextFullError, match="70"):
        session.eval(TOKENS[68:71])
    assert list(session.tokens) == TOKENS[:68]
    filled = session.eval(TOKENS[68:70])
    assert same_bytes(filled, model.session(ctx=256).eval(TOKENS[:70]))
    with pytest.raises(hy3core.ContextFullError):
        session.eval([1])
    assert issubclass(hy3core.ContextFullError, hy3core.Error)


@pytest.mark.parametrize("ctx", [-1, CONFIG["max_position_embeddings"] + 1])
def test_context_beyond_the_models(model: hy3core.Model, ctx: int) -> None:
    with pytest.raises((ValueError, hy3core.Error), match=r"ctx|context"):
        model.session(ctx=ctx)


# --- score


def test_score_is_the_log_probability(model: hy3core.Model, report: Callable[[str], None]) -> None:
    logits = model.session(ctx=256).eval(TOKENS, logits="all")
    expected = log_softmax(logits.astype(np.float64))[np.arange(len(TOKENS) - 1), TOKENS[1:]]
    session = model.session(ctx=256, chunk=32)
    first = session.score(TOKENS[:70])
    assert np.isnan(first[0])  # nothing precedes it
    second = session.score(TOKENS[70:])
    error = float(np.abs(np.concatenate([first[1:], second]) - expected).max())
    report(f"score: largest difference {error:.1e} from log-softmax of the logits")
    assert error < 1e-5
    assert list(session.tokens) == TOKENS
    session.truncate(70)
    assert same_bytes(session.score(TOKENS[70:]), second)


# --- generate


def greedy(model: hy3core.Model, prompt: list[int], n: int) -> list[int]:
    session = model.session(ctx=256)
    out: list[int] = []
    logits = session.eval(prompt)
    while len(out) < n:
        out.append(int(logits.argmax()))
        logits = session.eval(out[-1:])
    return out


def test_generate_greedy(model: hy3core.Model) -> None:
    expected = greedy(model, TOKENS[:20], 30)
    session = model.session(ctx=256)
    assert list(session.generate(TOKENS[:20], max_tokens=30, stop_ids=[])) == expected
    assert session.stats["prompt_tokens"] == 20
    assert session.stats["generated_tokens"] == 30


def test_generate_stops(model: hy3core.Model) -> None:
    expected = greedy(model, TOKENS[:20], 30)
    stop = expected[12]
    session = model.session(ctx=256)
    assert (
        list(session.generate(TOKENS[:20], max_tokens=30, stop_ids=[stop]))
        == expected[: expected.index(stop)]
    )
    assert list(model.session(ctx=256).generate(TOKENS[:20], max_tokens=0)) == []


def test_generate_reuses_the_longest_prefix(model: hy3core.Model) -> None:
    session = model.session(ctx=256)
    session.eval(TOKENS[:50], logits="none")
    prompt = [*TOKENS[:45], 9, 8, 7]
    assert prompt[45] != TOKENS[45]
    got = list(session.generate(prompt, max_tokens=8, stop_ids=[]))
    assert session.stats["reused_tokens"] == 45
    assert got == greedy(model, prompt, 8)
    # The whole prompt is there already: its last token is evaluated again.
    assert list(session.generate(prompt, max_tokens=8, stop_ids=[])) == got
    assert session.stats["reused_tokens"] == len(prompt) - 1


def test_generate_with_a_seed_repeats(model: hy3core.Model) -> None:
    def run(seed: int) -> list[int]:
        sampling = hy3core.Sampling(temperature=1.0, seed=seed)
        return list(
            model.session(ctx=256).generate(TOKENS[:9], max_tokens=20, sampling=sampling, stop_ids=[])
        )

    assert run(1) == run(1)
    assert run(1) != run(2)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_generate_draws_as_sample_does(model: hy3core.Model, temperature: float) -> None:
    """The position of a draw is that of the token drawn, and the penalty sees prompt and answer."""
    sampling = hy3core.Sampling(temperature=temperature, top_k=40, top_p=0.95, repeat_penalty=1.2, seed=3)
    session = model.session(ctx=256)
    text = TOKENS[:70]
    logits = session.eval(text)
    for _ in range(20):
        text = [*text, hy3core.sample(logits, sampling, text, len(text))]
        logits = session.eval(text[-1:])
    got = model.session(ctx=256).generate(TOKENS[:70], max_tokens=20, sampling=sampling, stop_ids=[])
    assert list(got) == text[70:]


def test_generate_up_to_the_end_of_the_context(model: hy3core.Model) -> None:
    session = model.session(ctx=32)
    got = []
    with pytest.raises(hy3core.ContextFullError):
        for token in session.generate(TOKENS[:28], max_tokens=20, stop_ids=[]):
            got.append(token)
    assert got == greedy(model, TOKENS[:28], len(got))
    assert len(got) == 5  # the fifth needs no place of its own until the sixth is wanted


# --- threads


def test_a_model_shared_by_threads(model: hy3core.Model) -> None:
    """Four threads with a session each compute what they would alone."""
    prompts = [make_tokens(CONFIG, 100, seed=40 + i) for i in range(4)]
    expected = [model.session(ctx=128).eval(prompt, logits="all") for prompt in prompts]
    got: list[np.ndarray | None] = [None] * 4

    def run(i: int) -> None:
        for _ in range(5):
            session = model.session(ctx=128, chunk=8)
            got[i] = np.concatenate(
                [session.eval(prompts[i][at : at + 20], logits="all") for at in range(0, 100, 20)]
            )

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(
        result is not None and same_bytes(result, want) for result, want in zip(got, expected, strict=True)
    )
