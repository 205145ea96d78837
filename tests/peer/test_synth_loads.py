"""What eval/synth.py writes loads and computes in llama.cpp too, in every type, with the MTP layer."""

from pathlib import Path

import pytest
from support.llama_load import load

from eval import synth

pytestmark = pytest.mark.peer

SMALL = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 256, "num_experts": 16}


@pytest.mark.parametrize("kind", synth.WEIGHT_TYPES)
def test_every_type(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synth, "POOL_BYTES", 1 << 16)
    config = synth.slice_config("hy3", 2, mtp=True, vocab_size=300, **SMALL)
    synth.write_slice(tmp_path / "x.gguf", config, kind, kind)
    result = load(tmp_path / "x.gguf")
    assert result["finite"]
    assert result["vocab"] == 300
