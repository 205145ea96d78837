"""Perplexity and divergence against plain NumPy, and the files they leave."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model

import hy3core
from hy3.errors import Hy3Error
from hy3.evals import text

CONFIG = make_config()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> hy3core.Session:
    path = tmp_path_factory.mktemp("evals") / "random.gguf"
    write_model(path, CONFIG, make_weights(CONFIG, seed=5), in_type("f32"))
    return hy3core.Model(str(path), backend="cpu", threads=1).session(ctx=256, kv="f32")


def ignore(done: int, total: int) -> None:
    pass


@pytest.mark.parametrize(
    ("n", "window", "stride"), [(100, 32, 16), (100, 32, 32), (100, 31, 7), (5, 32, 1), (2, 2, 1)]
)
def test_windows_measure_each_token_once(n: int, window: int, stride: int) -> None:
    measured: list[int] = []
    for at in text.windows(n, window, stride):
        assert 0 <= at.begin < at.first < at.end <= n
        assert at.end - at.begin <= window
        assert at.begin == 0 or at.first - at.begin >= window - stride
        measured += range(at.first, at.end)
    assert measured == list(range(1, n))


def test_perplexity(session: hy3core.Session, report: Callable[[str], None]) -> None:
    tokens = make_tokens(CONFIG, 90, seed=6)
    result = text.perplexity(session, tokens, 40, 20, ignore)
    losses = []
    for at in text.windows(90, 40, 20):
        session.reset()
        logits = session.eval(tokens[at.begin : at.end], logits="all").astype(np.float64)
        for place in range(at.first, at.end):
            row = logits[place - 1 - at.begin]
            losses.append(np.log(np.exp(row - row.max()).sum()) + row.max() - row[tokens[place]])
    assert result["tokens"] == len(losses) == 89
    assert result["mean_nll"] == pytest.approx(np.mean(losses), abs=1e-5)
    assert result["perplexity"] == pytest.approx(np.exp(np.mean(losses)), rel=1e-5)


def test_a_model_does_not_diverge_from_itself(session: hy3core.Session, tmp_path: Path) -> None:
    tokens = make_tokens(CONFIG, 70, seed=7)
    text.save(tmp_path / "ref", session, tokens, 40, 20, ignore)
    result = text.divergence(session, text.Reference.open(tmp_path / "ref"), ignore)
    assert result["tokens"] == 69
    assert result["top1_agreement"] == 1.0
    assert abs(result["mean_kl"]) < 1e-5
    assert [path.name for path in tmp_path.iterdir()] == ["ref"]


def test_divergence(session: hy3core.Session, tmp_path: Path) -> None:
    """From another model, against the formula over the exact distributions."""
    path = tmp_path / "other.gguf"
    write_model(path, CONFIG, make_weights(CONFIG, seed=8), in_type("f32"))
    other = hy3core.Model(str(path), backend="cpu", threads=1).session(ctx=256, kv="f32")
    tokens = make_tokens(CONFIG, 50, seed=9)
    text.save(tmp_path / "ref", other, tokens, 50, 50, ignore)
    result = text.divergence(session, text.Reference.open(tmp_path / "ref"), ignore)
    p, q = (
        np.stack([row for _, row in text.log_probabilities(s, tokens, 50, 50)]).astype(np.float64)
        for s in (other, session)
    )
    each = (np.exp(p) * (p - q)).sum(1)
    assert result["mean_kl"] == pytest.approx(each.mean(), rel=1e-3)
    assert result["kl_99"] == pytest.approx(np.quantile(each, 0.99), rel=1e-3)
    assert result["top1_agreement"] == np.mean(p.argmax(1) == q.argmax(1))


def test_damaged_references_are_refused(session: hy3core.Session, tmp_path: Path) -> None:
    text.save(tmp_path / "ref", session, make_tokens(CONFIG, 10, seed=1), 10, 5, ignore)
    whole = (tmp_path / "ref").read_bytes()
    for name, broken in {
        "empty": b"",
        "cut": whole[:-1],
        "magic": b"x" + whole[1:],
        "count": whole[:8] + b"\xff" * 8 + whole[16:],
        "stride": whole[:32] + bytes(8) + whole[40:],
    }.items():
        (tmp_path / name).write_bytes(broken)
        with pytest.raises(Hy3Error, match=name):
            text.Reference.open(tmp_path / name)
