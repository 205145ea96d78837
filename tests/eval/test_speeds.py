"""eval/speeds.py: medians, ratios and shares, on numbers made up for it."""

import json
from pathlib import Path

from eval.speeds import Machine, Pairs, Report, plot_depths
from hy3.bench import Measurement

MACHINE = Machine(read_bytes=40e9, int8_ops=1e12, span=1 << 30)


def measurement(what: str, depth: int, *seconds: float) -> Measurement:
    return Measurement(what, 10, depth, 8, seconds, token_bytes=1_000_000_000, token_ops=5_000_000_000)


def pairs(what: str = "decode", depth: int = 0) -> Pairs:
    return Pairs(
        hy3=measurement(what, depth, 1.0, 0.5, 0.4),  # 10, 20, 25 tokens a second
        llama=measurement(what, depth, 1.0, 1.0, 2.0),  # 10, 10, 5
        llama_variant="flash attention on, not repacked",
        machine=MACHINE,
    )


def test_ratios() -> None:
    assert pairs().ratio == 2.0  # of the medians, not the median of the ratios
    assert pairs().ratios == [1.0, 2.0, 5.0]


def test_the_line_has_all_numbers() -> None:
    assert str(pairs(depth=512)) == (
        "decode 10 at depth 512: hy3 20.00 tokens/s (50% of the read bandwidth), llama.cpp 10.00 (25%; flash "
        "attention on, not repacked); ratio 2.00 (from 1.00 to 5.00 in 3 pairs); this minute 40.0 GB/s over "
        "1.0 GiB, 1000 GOPS int8"
    )


def test_json_has_what_follows_from_the_numbers() -> None:
    report = Report("x.gguf", 1, 2, "f16", "avx2", [pairs()], private_bytes=5)
    entry = report.to_json()["pairs"][0]
    assert (entry["name"], entry["ratio"], entry["hy3"]["share"]) == ("decode 10", 2.0, 0.5)
    assert entry["machine"]["read_bytes"] == 40e9


def test_a_report_is_read_back_as_it_was() -> None:
    report = Report("x.gguf", 1, 2, "f16", "avx2", [pairs(), pairs("prefill", 3)], private_bytes=5)
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_the_plot(tmp_path: Path) -> None:
    path = tmp_path / "speed.png"
    plot_depths(path, [pairs(depth=0), pairs(depth=512), pairs("prefill")], "x")
    assert path.stat().st_size > 1000
