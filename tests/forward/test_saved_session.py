"""A saved session goes on bit for bit, and a file that does not fit is refused with a reason and no trace."""

import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.compare import same_bytes
from support.every_type import KV_TYPES, TYPES, common_tokens
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model
from support.session_files import sealed

import hy3core

CONFIG = make_config(num_nextn_predict_layers=1)
TOKENS = make_tokens(CONFIG, 200, seed=41)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("saved") / "model.gguf"
    return write_model(file, CONFIG, make_weights(CONFIG, seed=40), in_type("f16"))


@pytest.fixture(scope="module")
def model(path: Path) -> hy3core.Model:
    return hy3core.Model(str(path), threads=1)


@pytest.fixture
def saved(model: hy3core.Model, tmp_path: Path) -> Path:
    """70 tokens in f16, and b"extra" beside them."""
    session = model.session(ctx=256)
    session.eval(TOKENS[:70], logits="none")
    session.save(tmp_path / "saved", b"extra")
    return tmp_path / "saved"


# --- going on


@pytest.mark.parametrize("mtp", [False, True])
@pytest.mark.parametrize("kv", KV_TYPES)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_it_goes_on_bit_for_bit(path: Path, tmp_path: Path, backend: str, kv: str, mtp: bool) -> None:
    """At every place in a page where something could be cut off: and the file does not change on its way."""
    model = hy3core.Model(str(path), backend=backend, threads=1)
    file, again = tmp_path / "saved", tmp_path / "again"
    for n in (1, 64, 65, 130) if backend == "cpu" else (65,):
        session = model.session(ctx=256, kv=kv, mtp=mtp)
        session.eval(TOKENS[:n], logits="none")
        session.save(file)
        # In another process: nothing is left of the first model's memory, and another chunk and thread count.
        other = hy3core.Model(str(path), backend=backend, threads=2)
        loaded = other.session(ctx=200, kv=kv, mtp=mtp, chunk=16)
        loaded.eval(TOKENS[100:133], logits="none")
        assert loaded.load(file) == b""
        assert list(loaded.tokens) == TOKENS[:n]
        assert same_bytes(loaded.hidden, session.hidden)
        if mtp:
            assert same_bytes(loaded.mtp_logits(7), session.mtp_logits(7))
        loaded.save(again)
        assert again.read_bytes() == file.read_bytes()
        rest = TOKENS[n : n + 40]
        assert same_bytes(loaded.eval(rest, logits="all"), session.eval(rest, logits="all"))
        if mtp:
            assert same_bytes(loaded.mtp_logits(3), session.mtp_logits(3))


@pytest.mark.parametrize("type_name", TYPES)
def test_with_every_weight_and_cache_type(
    type_name: str, open_model: Callable[..., hy3core.Model], tmp_path: Path
) -> None:
    """The page of the last positions is not full, nor is it the first."""
    one, other = open_model(type_name, threads=1), open_model(type_name, threads=2)
    tokens = common_tokens(100, seed=42)
    wrong = []
    for kv, mtp in product(KV_TYPES, (False, True)):
        session, loaded = (
            one.session(ctx=256, kv=kv, mtp=mtp),
            other.session(ctx=256, kv=kv, mtp=mtp, chunk=7),
        )
        session.eval(tokens[:75], logits="none")
        session.save(tmp_path / "saved")
        loaded.load(tmp_path / "saved")
        pairs = [(loaded.hidden, session.hidden)]
        pairs += [tuple(s.eval(tokens[75:], logits="all") for s in (loaded, session))]
        if mtp:
            pairs += [tuple(s.mtp_logits(3) for s in (loaded, session))]
        wrong += [] if all(same_bytes(*pair) for pair in pairs) else [(kv, mtp)]
    assert wrong == []


@pytest.mark.parametrize("mtp", [False, True])
def test_after_a_truncation_there_is_no_state_to_save(
    model: hy3core.Model, tmp_path: Path, mtp: bool
) -> None:
    session = model.session(ctx=256, mtp=mtp)
    session.eval(TOKENS[:100], logits="none")
    session.truncate(70)
    session.save(tmp_path / "saved")
    loaded = model.session(ctx=256, mtp=mtp)
    loaded.load(tmp_path / "saved")
    with pytest.raises(hy3core.Error, match="no hidden state"):
        _ = loaded.hidden
    assert same_bytes(loaded.score(TOKENS[70:90]), session.score(TOKENS[70:90]))


@pytest.mark.parametrize("kv", KV_TYPES)
def test_nothing_forgotten_is_in_the_file(model: hy3core.Model, tmp_path: Path, kv: str) -> None:
    """The place of what was truncated away is not saved with the page."""
    session, plain = model.session(ctx=256, kv=kv), model.session(ctx=256, kv=kv)
    plain.eval(TOKENS[:70], logits="none")
    plain.save(tmp_path / "plain")
    session.eval(TOKENS[:69] + TOKENS[150:200], logits="none")
    session.truncate(69)
    session.eval(TOKENS[69:70], logits="none")
    session.save(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == (tmp_path / "plain").read_bytes()


def test_an_empty_session(model: hy3core.Model, tmp_path: Path) -> None:
    model.session(ctx=64).save(tmp_path / "saved", b"\0\xff")
    session = model.session(ctx=64)
    session.eval(TOKENS[:10], logits="none")
    assert session.load(tmp_path / "saved") == b"\0\xff"
    assert session.position == 0
    assert same_bytes(session.eval(TOKENS[:5]), model.session(ctx=64).eval(TOKENS[:5]))


def test_a_jump_is_saved(model: hy3core.Model, tmp_path: Path) -> None:
    session = model.session(ctx=256)
    session.eval(TOKENS[:30], logits="none")
    session.jump(1000)
    session.eval(TOKENS[30:50], logits="none")
    session.jump(7)
    session.save(tmp_path / "saved")
    loaded = model.session(ctx=256)
    loaded.load(tmp_path / "saved")
    expected = session.eval(TOKENS[50:60])
    assert same_bytes(loaded.eval(TOKENS[50:60]), expected)
    loaded.truncate(30)
    assert not same_bytes(loaded.eval(TOKENS[30:60]), expected)  # the jumps are gone


def test_a_fork_goes_on_after_its_parent_loads(model: hy3core.Model, saved: Path) -> None:
    session = model.session(ctx=256)
    session.eval(TOKENS[100:150], logits="none")
    fork = session.fork()
    assert session.load(saved) == b"extra"
    assert same_bytes(fork.eval(TOKENS[:5]), model.session(ctx=256).eval(TOKENS[100:150] + TOKENS[:5]))
    assert same_bytes(session.eval(TOKENS[70:75]), model.session(ctx=256).eval(TOKENS[:75]))


def test_generate_computes_only_what_is_new(model: hy3core.Model, saved: Path) -> None:
    session = model.session(ctx=256)
    session.load(saved)
    got = list(session.generate(TOKENS[:90], max_tokens=10, stop_ids=[]))
    assert session.stats["reused_tokens"] == 70
    assert got == list(model.session(ctx=256).generate(TOKENS[:90], max_tokens=10, stop_ids=[]))


def test_the_file_holds_the_pages_in_use(model: hy3core.Model, saved: Path) -> None:
    row = 2 * CONFIG["num_key_value_heads"] * CONFIG["head_dim"] * 2  # keys and values, float16
    pages = 2 * 64 * 3 * row
    assert saved.stat().st_size == 96 + 70 * 4 + CONFIG["hidden_size"] * 4 + 5 + pages + 8
    assert saved.stat().st_mode & 0o777 == 0o600  # what somebody talked about is nobody else's business


def test_the_checksum_is_xxh64(saved: Path) -> None:
    data = saved.read_bytes()
    assert sealed(data[:-8]) == data


# --- refusals


def refused(session: hy3core.Session, file: Path, kind: type[Exception], words: str) -> None:
    """load raises that, and the session is as before."""
    session.eval(TOKENS[:20], logits="none")
    before = session.hidden.copy()
    with pytest.raises(kind, match=words) as error:
        session.load(file)
    assert str(file) in str(error.value)
    assert list(session.tokens) == TOKENS[:20]
    assert same_bytes(session.hidden, before)
    expected = session.model.session(ctx=64, kv=session.kv, mtp=session.mtp).eval(TOKENS[:25])
    assert same_bytes(session.eval(TOKENS[20:25]), expected)


@pytest.mark.parametrize("change", ["one weight", "one name's bytes", "experts", "rope"])
def test_another_model_is_refused(path: Path, saved: Path, tmp_path: Path, change: str) -> None:
    options: dict[str, Any] = {}
    weights = make_weights(CONFIG, seed=40)
    if change == "one weight":
        weights["model.layers.1.self_attn.k_norm.weight"][5] += 0.01
    elif change == "one name's bytes":
        weights["model.layers.2.mlp.experts.4.up_proj.weight"][-1, -1] += 1.0
    elif change == "experts":
        options = {"experts": 1}
    else:
        options = {"rope_factor": 2.0}
    other = write_model(tmp_path / "other.gguf", CONFIG, weights, in_type("f16"))
    session = hy3core.Model(str(other), threads=1, **options).session(ctx=256)
    refused(session, saved, hy3core.UnsupportedError, "another model")


def test_the_same_model_elsewhere_is_not_another_model(path: Path, saved: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.gguf"
    moved.write_bytes(path.read_bytes())
    assert hy3core.Model(str(moved)).session(ctx=256).load(saved) == b"extra"


@pytest.mark.parametrize("kv", ["f32", "q8", "q4"])
def test_another_kv_type_is_refused(model: hy3core.Model, saved: Path, kv: str) -> None:
    session = model.session(ctx=256, kv=kv)
    refused(session, saved, hy3core.UnsupportedError, f"saved with KV type f16, .* has {kv}")


def test_another_backend_is_refused(path: Path, saved: Path) -> None:
    session = hy3core.Model(str(path), backend="reference").session(ctx=256)
    refused(session, saved, hy3core.UnsupportedError, "backend")


def test_without_the_mtp_layers_cache_there_is_none_to_go_on_with(model: hy3core.Model, saved: Path) -> None:
    refused(model.session(ctx=256, mtp=True), saved, hy3core.UnsupportedError, "without the MTP layer")


def test_a_context_that_is_too_small(model: hy3core.Model, saved: Path) -> None:
    refused(model.session(ctx=69), saved, hy3core.ContextFullError, "70 tokens, and the context 69")


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], type[Exception], str]] = {
    "no session": (lambda data: b"GGUF" + data[4:], hy3core.FormatError, "not a saved session"),
    "too short for a name": (lambda data: data[:5], hy3core.FormatError, "not a saved session"),
    "cut in the header": (lambda data: data[:50], hy3core.FormatError, "ends within its header"),
    "of the future": (lambda d: d[:8] + b"\2" + d[9:], hy3core.UnsupportedError, "version 2"),
    "cut": (lambda data: data[:-100], hy3core.FormatError, "bytes"),
    "cut and sealed": (lambda data: sealed(data[:-108]), hy3core.FormatError, "bytes"),
    "longer": (lambda data: data + b"x", hy3core.FormatError, "bytes"),
    "a bit of a key": (lambda d: d[:5000] + bytes([d[5000] ^ 1]) + d[5001:], hy3core.FormatError, "checksum"),
    "the checksum": (lambda d: d[:-1] + bytes([d[-1] ^ 128]), hy3core.FormatError, "checksum"),
    "a token of no vocabulary": (
        lambda d: sealed(d[:96] + struct.pack("<i", CONFIG["vocab_size"]) + d[100:-8]),
        hy3core.FormatError,
        "token 301",
    ),
    "a negative token": (
        lambda d: sealed(d[:96] + struct.pack("<i", -1) + d[100:-8]),
        hy3core.FormatError,
        "token -1",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(model: hy3core.Model, saved: Path, name: str) -> None:
    damage, kind, words = DAMAGED[name]
    saved.write_bytes(damage(saved.read_bytes()))
    refused(model.session(ctx=256), saved, kind, words)


def test_every_byte_counts(model: hy3core.Model, saved: Path) -> None:
    data = saved.read_bytes()
    session = model.session(ctx=256)
    session.eval(TOKENS[:3], logits="none")
    for at in [*range(160), *np.random.default_rng(1).integers(160, len(data), 300).tolist()]:
        saved.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(hy3core.Error):
            session.load(saved)
    assert list(session.tokens) == TOKENS[:3]


def test_files_that_are_none(model: hy3core.Model, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in [("nowhere", "No such file"), (".", "directory"), ("pipe", "regular file")]:
        refused(model.session(ctx=64), tmp_path / name, hy3core.FileError, words)
    with pytest.raises(hy3core.Error, match="zero byte"):
        model.session(ctx=64).load("a\0b")


# --- the writing


def test_a_failed_save_leaves_the_old_file(model: hy3core.Model, saved: Path) -> None:
    before = saved.read_bytes()
    session = model.session(ctx=256)
    session.eval(TOKENS[:70], logits="none")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # as a disk that becomes full
    try:
        with pytest.raises(hy3core.FileError, match="saved: cannot be written: File too large"):
            session.save(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert saved.read_bytes() == before
    with pytest.raises(hy3core.FileError, match="Check the path"):
        session.save(saved.parent / "nowhere" / "saved")
    with pytest.raises(hy3core.FileError, match="cannot be put in its place: Is a directory"):
        session.save(saved.parent)
    assert [file.name for file in saved.parent.iterdir()] == ["saved"]
    assert not list(saved.parent.parent.glob(f"{saved.parent.name}.*"))


SAVER = """
import sys, hy3core
session = hy3core.Model(sys.argv[1], threads=1).session(ctx=256)
session.eval([int(sys.argv[3])] * 70, logits="none")
for _ in range(100):
    session.save(sys.argv[2])
"""


def test_two_processes_save_to_one_file(model: hy3core.Model, path: Path, tmp_path: Path) -> None:
    """Whoever looks finds a whole session, of one or the other."""
    file = tmp_path / "saved"
    savers = [
        subprocess.Popen([sys.executable, "-c", SAVER, path, file, token], stderr=subprocess.PIPE)
        for token in ("3", "5")
    ]
    session = model.session(ctx=256)
    seen = set()
    while any(saver.poll() is None for saver in savers):
        if file.exists():
            session.load(file)
            seen.add(tuple(session.tokens))
    assert [saver.communicate()[1].decode() for saver in savers] == ["", ""]
    assert set() < seen <= {(3,) * 70, (5,) * 70}
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def test_a_save_takes_the_place_of_the_old_file(model: hy3core.Model, saved: Path) -> None:
    model.session(ctx=64).save(saved)
    assert sorted(file.name for file in saved.parent.iterdir()) == ["saved"]
    session = model.session(ctx=64)
    session.load(saved)
    assert session.position == 0


@pytest.mark.parametrize("drafts", [1, 3])
def test_in_the_middle_of_speculation(model: hy3core.Model, tmp_path: Path, drafts: int) -> None:
    """Then rows of the MTP layer are still to be written, and the states for them are in the file."""
    session = model.session(ctx=256, mtp=True)
    for count, _ in enumerate(
        session.generate(TOKENS[:60], max_tokens=40, stop_ids=[], mtp=drafts, mtp_always=True)
    ):
        if count in (1, 5, 12):
            session.save(tmp_path / "saved")
            loaded = model.session(ctx=256, mtp=True)
            loaded.load(tmp_path / "saved")
            plain = model.session(ctx=256, mtp=True)
            plain.eval(session.tokens, logits="none")
            assert same_bytes(loaded.mtp_logits(5), plain.mtp_logits(5))
            rest = TOKENS[100:130]
            assert same_bytes(loaded.eval(rest, logits="all"), plain.eval(rest, logits="all"))
            assert same_bytes(loaded.mtp_logits(5), plain.mtp_logits(5))
