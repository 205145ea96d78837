"""hy3.bench: what the numbers are made of."""

import pytest
from support.gguf_files import tensor_bytes
from support.random_hy3 import gguf_shapes

import hy3core
from eval import synth
from hy3.bench import LEAST_SPAN, SPAN, Measurement, Work, machine_span, measure, spread
from hy3.modelfile import ModelFile

CONFIG = synth.slice_config(
    "hy3",
    2,
    mtp=True,
    vocab_size=300,
    hidden_size=256,
    intermediate_size=512,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_experts=16,
    moe_intermediate_size=256,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> hy3core.Model:
    path = tmp_path_factory.mktemp("bench") / "x.gguf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synth, "POOL_BYTES", 1 << 16)
        synth.write_slice(path, CONFIG, "q4_k", "q8_0")
    return hy3core.Model(path)


def measurement(what: str) -> Measurement:
    return Measurement(what, 10, 0, 8, (1.0, 0.5, 0.4), token_bytes=1_000_000_000, token_ops=5_000_000_000)


def test_speeds_and_shares() -> None:
    machine = hy3core.MachineSpeed(read_bytes=40e9, int8_ops=1e12)
    decode, prefill = measurement("decode"), measurement("prefill")
    assert decode.rates == [10, 20, 25]
    assert (decode.rate, decode.read_bytes, prefill.read_bytes) == (20, 20e9, None)
    assert decode.share(machine) == pytest.approx(0.5)
    assert prefill.share(machine) == pytest.approx(0.1)
    assert decode.to_json(machine)["tokens_per_s"] == 20
    assert spread(decode.rates) == pytest.approx(15 / 2 / 20)


def test_what_a_token_reads(model: hy3core.Model) -> None:
    """Counted by hand: all but the embedding, the MTP layer and the experts that are not used."""
    file = ModelFile(model.gguf)
    wanted = 0.0
    for name, shape in gguf_shapes(CONFIG).items():
        kind = synth.type_of(name, shape, "q4_k", "q8_0")
        if name == "token_embd.weight":
            wanted += 256 * 2
        elif not name.startswith("blk.3."):
            wanted += tensor_bytes(shape, kind) * (8 / 16 if "_exps." in name else 1)
    cache = 3 * 2 * 2 * 128 * 2  # layers, K and V, heads, head_dim, bytes
    assert file.token_bytes(0, "f16") == wanted
    assert file.token_bytes(100, "f16") == wanted + 100 * cache
    assert file.token_bytes(0, "f16", experts=4) == wanted - 2 * 3 * 4 * 256 * 256 * 144 // 256
    per_expert = 2 * 3 * 256 * 256
    assert file.token_ops() - file.token_ops(experts=4) == 2 * 4 * per_expert


def test_every_work_at_every_depth(model: hy3core.Model) -> None:
    work = Work(prompt=5, decode=3, depths=(70, 0), rounds=2)
    session = model.session(ctx=work.ctx, chunk=16)
    found = list(measure(session, ModelFile(model.gguf), work, experts=None))
    assert [(one.what, one.tokens, one.depth) for one in found] == [
        ("prefill", 5, 0),
        ("decode", 3, 0),
        ("prefill", 5, 70),
        ("decode", 3, 70),
    ]
    assert all(len(one.seconds) == 2 and min(one.seconds) > 0 and one.experts == 8 for one in found)
    assert session.position == 70


def test_the_span_leaves_the_model_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, wanted in ((None, SPAN), (64 << 30, SPAN), (12 << 30, 1 << 30), (10 << 30, LEAST_SPAN)):
        monkeypatch.setattr("hy3.bench.available", lambda free=free: free)
        assert machine_span(10 << 30) == wanted


def test_the_machine_is_measured() -> None:
    speed = hy3core.measure_machine(threads=1, span=16 << 20)
    assert speed.read_bytes > 1e8 and speed.int8_ops > 1e8
    for options in ({"threads": -1}, {"span": 1 << 20}, {"span": 1 << 40}):
        with pytest.raises(hy3core.InvalidArgumentError, match="is out of range"):
            hy3core.measure_machine(**options)
