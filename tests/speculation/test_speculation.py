"""Drafts change how fast the tokens come, and nothing else: the ids, the session after each of them and what
can be done with it next are those of a generation without drafts, compared with ==.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from support.alarm import Alarm, alarms
from support.compare import same_bytes
from support.draft_models import agreeing_weights, write_draft_model
from support.every_type import KV_TYPES, TYPES
from support.numpy_hy3 import Hy3
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model

import hy3core

CONFIG = make_config(num_nextn_predict_layers=1)
PROMPT = make_tokens(CONFIG, 60, seed=71)
SAMPLINGS = {
    "greedy": {},
    "penalty": {"repeat_penalty": 1.3},
    "warm": {"temperature": 0.7, "seed": 5, "top_k": 30, "repeat_penalty": 1.1},
    "hot": {"temperature": 1.5, "seed": 6, "top_p": 0.9, "min_p": 0.01},
}
# Some drafts are right, all are, next to none is; and a head that is the embedding.
MODELS = {"some": {"share": 0.05}, "all": {"share": 0.0}, "none": {"share": None},
          "tied": {"share": 0.1, "tie_word_embeddings": True}}  # fmt: skip


@pytest.fixture(scope="module")
def path_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("drafts")

    def path(name: str) -> Path:
        file = folder / f"{name}.gguf"
        if not file.exists():
            write_draft_model(file, **MODELS[name])
        return file

    return path


@pytest.fixture(scope="module")
def some(path_of: Callable[[str], Path]) -> hy3core.Model:
    return hy3core.Model(path_of("some"), threads=1)


def text_of(
    session: hy3core.Session, prompt: list[int], n: int, name: str = "greedy", **options: object
) -> list[tuple[int, list[int]]]:
    """Each id with the session's tokens at the time it came."""
    sampling = hy3core.Sampling(**SAMPLINGS[name])
    options = {"stop_ids": [], **options}
    return [(token, session.tokens) for token in session.generate(prompt, n, sampling, **options)]


@pytest.mark.parametrize("kv", KV_TYPES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_same_text(
    path_of: Callable[[str], Path], name: str, backend: str, kv: str, report: Callable[[str], None]
) -> None:
    model = hy3core.Model(path_of(name), backend=backend, threads=1)
    quick = backend == "cpu"
    for sampling in SAMPLINGS if quick else ("greedy", "warm"):
        expected = text_of(model.session(ctx=160, kv=kv), PROMPT[:50], 24, sampling)
        for depth in (1, 2, 3, 4) if quick else (2, 4):
            session = model.session(ctx=160, kv=kv, mtp=True, chunk=7)
            assert text_of(session, PROMPT[:50], 24, sampling, mtp=depth, mtp_always=True) == expected
            stats = session.stats
            if (depth, kv) == (2, "f16") and quick:
                report(f"{name}, {sampling}: {stats['accepted']} of {stats['drafted']} drafts accepted")
            if name == "all" and sampling == "greedy":
                assert stats["accepted"] == stats["drafted"] > 0
            # The session goes on as one that never drafted.
            assert same_bytes(session.mtp_logits(3), fresh_mtp_logits(model, session, 3))
        session = model.session(ctx=160, kv=kv, mtp=True)
        assert text_of(session, PROMPT[:50], 24, sampling, mtp=-1) == expected


@pytest.mark.parametrize("type_name", TYPES)
def test_same_text_with_every_weight_type(
    tmp_path: Path, type_name: str, report: Callable[[str], None]
) -> None:
    """Through the kernels for two to five rows, which verify drafts, on two threads; with each KV type and
    each sampling in turn.
    """
    wide = {"hidden_size": 256, "intermediate_size": 256, "moe_intermediate_size": 256}
    path = write_draft_model(tmp_path / "model.gguf", share=0.05, type_name=type_name, **wide)
    model = hy3core.Model(path, threads=2)
    right = drafted = 0
    for i, kv in enumerate(KV_TYPES):
        sampling, depth = list(SAMPLINGS)[(i + TYPES.index(type_name)) % 4], 1 + i
        session = model.session(ctx=160, kv=kv, mtp=True)
        got = text_of(session, PROMPT[:50], 20, sampling, mtp=depth, mtp_always=True)
        assert got == text_of(model.session(ctx=160, kv=kv), PROMPT[:50], 20, sampling), kv
        right, drafted = right + session.stats["accepted"], drafted + session.stats["drafted"]
    report(f"{type_name}: {right} of {drafted} drafts accepted")
    assert 0 < right < drafted  # else the test would have seen only one way to go on


def fresh_mtp_logits(model: hy3core.Model, session: hy3core.Session, token: int) -> np.ndarray:
    other = model.session(ctx=session.ctx, kv=session.kv, mtp=True)
    other.eval(session.tokens, logits="none")
    return other.mtp_logits(token)


def test_drafts_are_accepted(path_of: Callable[[str], Path]) -> None:
    """The models above are what they are called, or the other tests say little."""
    shares = {}
    for name in MODELS:
        session = hy3core.Model(path_of(name), threads=1).session(ctx=400, mtp=True)
        list(session.generate(PROMPT, 300, hy3core.Sampling(temperature=0.7, seed=1), [], 2, mtp_always=True))
        judged, right = session.stats["drafts"][0]
        shares[name] = right / judged
    assert shares["all"] == 1.0
    assert 0.3 < shares["some"] < 0.97
    assert shares["none"] < 0.2


def test_drafts_are_chained_through_the_layers_own_state(tmp_path: Path) -> None:
    """How many drafts of each depth are right is what NumPy says, which drafts from the post-norm states."""
    config = make_config(num_nextn_predict_layers=1)
    weights = agreeing_weights(config, 74, 0.1)
    path = write_model(tmp_path / "model.gguf", config, weights, in_type("f32"))
    session = hy3core.Model(path, backend="reference").session(ctx=160, kv="f32", mtp=True)
    prompt, depth = PROMPT[:10], 3
    text = [*prompt, *session.generate(prompt, 30, stop_ids=[], mtp=depth, mtp_always=True)]
    oracle = Hy3(config, weights)
    judged, right, drafted = [0] * depth, [0] * depth, 0
    at = len(prompt)  # of the token that the next step appends
    while at < len(text) - 1:
        limit = min(depth, len(text) - at - 2)  # no use drafting beyond what will be asked for
        drafts = [int(logits.argmax()) for logits in oracle.draft(text[: at + 1], limit)] if limit else []
        drafted += limit
        same = 0
        while same < limit and drafts[same] == text[at + 1 + same]:
            right[same] += 1
            same += 1
        for i in range(min(same + 1, limit)):
            judged[i] += 1
        at += same + 1
    assert 0 < right[2] <= right[1] < right[0]
    assert session.stats["drafts"] == list(zip(judged, right, strict=True))
    assert (session.stats["drafted"], session.stats["accepted"]) == (drafted, sum(right))


# --- ends


@pytest.mark.parametrize("depth", [1, 3])
def test_stop_ids(some: hy3core.Model, depth: int) -> None:
    everything = [token for token, _ in text_of(some.session(ctx=160), PROMPT, 40)]
    for stop in dict.fromkeys(everything):
        plain, session = some.session(ctx=160), some.session(ctx=160, mtp=True)
        expected = text_of(plain, PROMPT, 40, stop_ids=[stop])
        assert text_of(session, PROMPT, 40, stop_ids=[stop], mtp=depth, mtp_always=True) == expected
        assert session.tokens == plain.tokens
        for key in ("finish_reason", "stop_id", "generated_tokens"):
            assert session.stats[key] == plain.stats[key]


@pytest.mark.parametrize("depth", [1, 4])
def test_max_tokens(some: hy3core.Model, depth: int) -> None:
    for n in range(12):
        plain, session = some.session(ctx=160), some.session(ctx=160, mtp=True)
        expected = text_of(plain, PROMPT, n)
        assert text_of(session, PROMPT, n, mtp=depth, mtp_always=True) == expected
        assert session.tokens == plain.tokens
        assert session.stats["finish_reason"] == "length"
        if n <= 2:  # the first token comes from the prompt, the second from a step that nothing follows
            assert session.stats["drafted"] == 0


def until_full(session: hy3core.Session, prompt: list[int], **options: object) -> list[tuple[int, list[int]]]:
    got = []
    with pytest.raises(hy3core.ContextFullError, match="32"):
        for token in session.generate(prompt, 40, stop_ids=[], **options):
            got.append((token, session.tokens))
    return got


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_end_of_the_context(some: hy3core.Model, depth: int) -> None:
    for length in (26, 27, 28, 29):
        session, plain = some.session(ctx=32, mtp=True), some.session(ctx=32)
        got = until_full(session, PROMPT[:length], mtp=depth, mtp_always=True)
        assert got == until_full(plain, PROMPT[:length])
        assert len(got) == 32 - length + 1


# --- what the consumer does in the middle


def act_truncate(session: hy3core.Session) -> None:
    session.truncate(session.position - 3)


def act_eval(session: hy3core.Session) -> np.ndarray:
    return session.eval([7, 8])


def act_score(session: hy3core.Session) -> np.ndarray:
    return session.score([7, 8])


def act_fork(session: hy3core.Session) -> np.ndarray:
    fork = session.fork()
    session.reset()
    return fork.eval([9])


def act_generate(session: hy3core.Session) -> list[int]:
    prompt = [*session.tokens[:-2], 4, 5]
    got = list(session.generate(prompt, 6, stop_ids=[]))
    assert session.stats["reused_tokens"] == len(prompt) - 2
    return got


ACTS = [act_truncate, act_eval, act_score, act_fork, act_generate]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", ["some", "all"])
def test_stopping_in_the_middle_of_drafts(
    path_of: Callable[[str], Path], name: str, act: Callable[[hy3core.Session], object]
) -> None:
    """After any number of tokens the session is as without drafts, and works as there."""
    model = hy3core.Model(path_of(name), threads=1)
    for n in range(1, 8):
        results = []
        for options in ({}, {"mtp": 3, "mtp_always": True}):
            session = model.session(ctx=160, mtp=True)
            generation = session.generate(PROMPT, 40, stop_ids=[], **options)
            got = [next(generation) for _ in range(n)]
            tokens = session.tokens
            result = act(session)
            # Not sensible, but no reason to crash or to go on with what was evaluated for another text.
            after = [next(generation) for _ in range(5)]
            mtp = session.mtp_logits(3)
            assert same_bytes(mtp, fresh_mtp_logits(model, session, 3))
            results.append((got, tokens, np.asarray(result).tobytes(), after, session.tokens))
        assert results[0] == results[1]


def test_two_generations_on_one_session(path_of: Callable[[str], Path]) -> None:
    """Each knows its own guesses."""

    def run(**options: object) -> list[tuple[int, int]]:
        session = hy3core.Model(path_of("all"), threads=1).session(ctx=160, mtp=True)
        a = session.generate(PROMPT, 30, stop_ids=[], **options)
        b = session.generate(PROMPT[:20], 30, stop_ids=[], **options)
        return [(next(a), next(b)) for _ in range(12)]

    assert run(mtp=3, mtp_always=True) == run()


def test_interrupts_leave_no_trace(tmp_path: Path, report: Callable[[str], None]) -> None:
    """Stopped at any point, drafting or verifying, the call can be repeated and the text is the same."""
    config = make_config(
        num_nextn_predict_layers=1, hidden_size=256, num_hidden_layers=3, intermediate_size=2048,
        num_experts=8, num_experts_per_tok=8, moe_intermediate_size=512,
    )  # fmt: skip
    path = write_model(tmp_path / "m.gguf", config, agreeing_weights(config, 73, 0.1), in_type("f32"))
    model = hy3core.Model(path, backend="reference")
    expected = text_of(model.session(ctx=64), PROMPT[:5], 8)

    session = model.session(ctx=64, mtp=True)
    generation = session.generate(PROMPT[:5], 8, stop_ids=[], mtp=3, mtp_always=True)
    ids: list[int] = []
    stopped, delay = 0, 0.002
    with alarms() as set_alarm:
        while len(ids) < 8:
            before = len(ids), session.tokens
            try:
                set_alarm(delay)
                ids.extend(islice(generation, 1))  # nothing is lost if the signal comes right after the call
                set_alarm(0)
            except Alarm:
                stopped += 1
            if len(ids) == before[0]:
                assert session.tokens == before[1]
                delay *= 1.3  # so that every part of a call is hit, and it ends at last
            else:
                assert (ids[-1], session.tokens) == expected[len(ids) - 1]
                delay = max(0.002, delay / 3)
    report(f"speculation interrupted {stopped} times, {session.stats['accepted']} drafts accepted")
    assert stopped > 4
    assert same_bytes(session.mtp_logits(3), fresh_mtp_logits(model, session, 3))


# --- prefix reuse, sharing


def test_turns_of_a_conversation(some: hy3core.Model) -> None:
    """Each turn reuses all that the one before left, at the cost of nothing that drafts left out."""
    plain, session = some.session(ctx=512), some.session(ctx=512, mtp=True)
    text = list(PROMPT[:30])
    for turn in range(4):
        expected = [token for token, _ in text_of(plain, text, 25)]
        assert [token for token, _ in text_of(session, text, 25, mtp=3, mtp_always=True)] == expected
        assert session.stats["accepted"] > 0
        assert session.stats["reused_tokens"] == plain.stats["reused_tokens"]
        assert session.tokens == plain.tokens
        text += [*expected, *PROMPT[turn : turn + 9]]


def test_a_long_time_without_drafts(path_of: Callable[[str], Path]) -> None:
    """The MTP layer's rows that wait to be written stay few and are not forgotten."""
    model = hy3core.Model(path_of("none"), threads=1)
    session = model.session(ctx=600, mtp=True)
    assert text_of(session, PROMPT, 300, mtp=2) == text_of(model.session(ctx=600), PROMPT, 300)
    assert session.stats["drafted"] < 100  # it has learned that drafts do not pay
    assert same_bytes(session.mtp_logits(3), fresh_mtp_logits(model, session, 3))


def test_forks_in_the_middle_of_drafts(some: hy3core.Model) -> None:
    session = some.session(ctx=160, mtp=True)
    generation = session.generate(PROMPT, 40, stop_ids=[], mtp=4, mtp_always=True)
    got = [next(generation) for _ in range(6)]
    fork = session.fork()
    got += [next(generation) for _ in range(20)]
    assert got == [token for token, _ in text_of(some.session(ctx=160), PROMPT, 26)]
    assert [t for t, _ in text_of(fork, [*PROMPT, *got[:6]], 20, mtp=4, mtp_always=True)] == got[6:]


# --- weights that spoil drafts, and what is refused


@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38])
def test_an_mtp_layer_that_overflows(tmp_path: Path, value: float) -> None:
    weights = make_weights(CONFIG, 74)
    weights["model.layers.3.final_layernorm.weight"][:] = value
    path = write_model(tmp_path / "model.gguf", CONFIG, weights, in_type("f32"))
    model = hy3core.Model(path, threads=1)
    session = model.session(ctx=160, mtp=True)
    assert text_of(session, PROMPT, 20, mtp=2, mtp_always=True) == text_of(model.session(ctx=160), PROMPT, 20)
    assert not np.isfinite(session.mtp_logits(3)).all()


@pytest.mark.parametrize("depth", [-2, 9, 1 << 30])
def test_depths_that_make_no_sense(some: hy3core.Model, depth: int) -> None:
    with pytest.raises(hy3core.InvalidArgumentError, match=f"mtp is {depth}"):
        some.session(ctx=64, mtp=True).generate(PROMPT[:5], mtp=depth)


def test_a_session_without_mtp(some: hy3core.Model) -> None:
    session = some.session(ctx=160)
    with pytest.raises(hy3core.InvalidArgumentError, match="mtp=True"):
        session.generate(PROMPT, mtp=1)
    assert text_of(session, PROMPT, 9, mtp=-1) == text_of(some.session(ctx=160), PROMPT, 9)
    assert session.stats["drafts"] == []


# --- the bundled model


@pytest.fixture(scope="module")
def bundled() -> Iterator[hy3core.Model]:
    yield hy3core.Model(Path(__file__).parents[2] / "src/hy3/models/hy3-tiny.gguf")


@pytest.mark.parametrize("name", SAMPLINGS)
def test_the_bundled_model(bundled: hy3core.Model, name: str, report: Callable[[str], None]) -> None:
    prompt = bundled.tokenizer.encode("The quick brown fox jumps over the lazy dog. 12 + 34 = ")
    expected = text_of(bundled.session(ctx=256), prompt, 32, name)
    for options in ({"mtp": 1, "mtp_always": True}, {"mtp": -1}, {"mtp": 3, "mtp_always": True}):
        session = bundled.session(ctx=256, mtp=True)
        assert text_of(session, prompt, 32, name, **options) == expected
    report(f"hy3-tiny, {name}: judged and right by depth {session.stats['drafts']}")
