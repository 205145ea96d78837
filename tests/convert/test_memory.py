"""The memory a conversion takes does not grow with its tensors: measured from outside, on one large packed
tensor."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from support.checkpoints import PACKED_NAMES, config_in, write_tokenizer
from support.convert_files import command, tensors
from support.random_hy3 import make_config, make_weights

BOUND = 256 << 20  # bytes; 1 GiB is promised, for tensors of any size
SIZE = {"hidden_size": 2048, "moe_intermediate_size": 1024, "num_experts": 48, "num_experts_per_tok": 2}


def write_large(path: Path) -> int:
    """One sparse layer, experts packed: a gate_up_proj of 384 MiB; written piece by piece, as repeated random
    rows."""
    path.mkdir()
    config = make_config(num_hidden_layers=1, mlp_layer_types=["sparse"], **SIZE)
    small = make_weights(config | {"num_experts": 1, "num_experts_per_tok": 1}, seed=0)
    rng = np.random.default_rng(0)
    hidden, ffn, experts = config["hidden_size"], config["moe_intermediate_size"], config["num_experts"]
    shapes: dict[str, tuple[int, ...]] = {}
    for name, array in small.items():
        if ".experts." in name:
            continue
        for hub, packed in PACKED_NAMES.items():
            name = name.replace(hub, packed)
        per_expert = name.endswith(("mlp.gate.weight", "e_score_correction_bias"))
        shapes[name] = (experts, *array.shape[1:]) if per_expert else array.shape
    shapes["model.layers.0.mlp.experts.gate_up_proj"] = (experts, 2 * ffn, hidden)
    shapes["model.layers.0.mlp.experts.down_proj"] = (experts, hidden, ffn)
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    block = (rng.integers(0, 128, 1 << 20) + 0x3C00).astype(np.uint16).tobytes()  # finite bf16 numbers
    with (path / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for left in range(at, 0, -len(block)):
            file.write(block[:left])
    (path / "config.json").write_text(json.dumps(config_in("5.x", config)))
    write_tokenizer(path, config["vocab_size"])
    return at


def peak_of(process: "subprocess.Popen[bytes]") -> dict[str, int]:
    """Largest values of a running process, in bytes: its own memory, and with it the mapped pages."""
    peak = {"RssAnon": 0, "VmRSS": 0}
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except FileNotFoundError:
            break
        for key in peak:
            if key in lines:
                peak[key] = max(peak[key], int(lines[key].split()[0]) * 1024)
        time.sleep(0.01)
    return peak


def test_memory_is_bounded(tmp_path: Path, report: Callable[[str], None]) -> None:
    size = write_large(tmp_path / "m")
    assert size > 2 * BOUND
    idle = peak_of(subprocess.Popen([sys.executable, "-c", "import hy3.convert"]))
    began = time.monotonic()
    process = subprocess.Popen(command(tmp_path / "m", "-o", tmp_path / "x.gguf", "-t", "q8_0", "--quiet"))
    peak = peak_of(process)
    seconds = time.monotonic() - began
    assert process.returncode == 0
    assert tensors(tmp_path / "x.gguf")["blk.0.ffn_up_exps.weight"].type == "q8_0"
    report(
        f"convert: {size / 2**20:.0f} MiB of bf16 to q8_0 in {seconds:.1f} s; largest private memory "
        f"{peak['RssAnon'] / 2**20:.0f} MiB (of it {idle['RssAnon'] / 2**20:.0f} the interpreter's), "
        f"resident {peak['VmRSS'] / 2**20:.0f} MiB"
    )
    assert peak["RssAnon"] < BOUND
    assert peak["VmRSS"] < BOUND

    # A GGUF as the source.
    process = subprocess.Popen(
        command(
            tmp_path / "x.gguf",
            "-o",
            tmp_path / "y.gguf",
            "-t",
            "copy",
            "--split-max-size",
            "300M",
            "--quiet",
        )
    )
    peak = peak_of(process)
    assert process.returncode == 0
    report(f"convert: the same file split: private {peak['RssAnon'] / 2**20:.0f} MiB")
    assert peak["RssAnon"] < BOUND
