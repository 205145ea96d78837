"""Importance matrices across the `gguf` package: we read what it writes, and it reads what we write."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from click.testing import CliRunner
from support.gguf_files import tiny_hy3

import hy3core
from hy3.cli import main

pytestmark = pytest.mark.live


def test_what_gguf_writes_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    sums, counts = rng.random((4, 96), np.float32), np.array([[3.0], [0.0], [7.0], [1.0]], np.float32)
    writer = gguf.GGUFWriter(tmp_path / "i.gguf", "")
    writer.kv_data[0].clear()  # an importance matrix has no general.architecture
    writer.add_type(gguf.GGUFType.IMATRIX)
    writer.add_array(gguf.Keys.IMatrix.DATASETS, ["calibration.txt"])
    writer.add_uint32(gguf.Keys.IMatrix.CHUNK_COUNT, 12)
    writer.add_uint32(gguf.Keys.IMatrix.CHUNK_SIZE, 512)
    writer.add_tensor("blk.1.ffn_up_exps.weight.in_sum2", sums)
    writer.add_tensor("blk.1.ffn_up_exps.weight.counts", counts)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = hy3core.ImportanceMatrix(tmp_path / "i.gguf")
    assert (file.names, file.chunks, file.datasets) == (
        ("blk.1.ffn_up_exps.weight",),
        12,
        ("calibration.txt",),
    )
    for expert, (row, count) in enumerate(zip(sums, counts[:, 0], strict=True)):
        got = file.mean_squares("blk.1.ffn_up_exps.weight", 96, 4, expert)
        assert got is None if count == 0 else got.tobytes() == (row / count).tobytes()


def test_what_we_write_gguf_reads(tmp_path: Path) -> None:
    model = tiny_hy3(tmp_path / "m.gguf")
    (tmp_path / "t.txt").write_text("Some text to read. " * 9)
    out = tmp_path / "i.gguf"
    args = ["imatrix", "-m", str(model), "-f", str(tmp_path / "t.txt"), "-o", str(out), "-c", "32"]
    assert CliRunner().invoke(main, args).exit_code == 0
    reader = gguf.GGUFReader(out)
    assert reader.get_field(gguf.Keys.General.TYPE).contents() == gguf.GGUFType.IMATRIX
    assert reader.get_field(gguf.Keys.IMatrix.DATASETS).contents() == ["t.txt"]
    assert reader.get_field(gguf.Keys.IMatrix.CHUNK_SIZE).contents() == 32
    assert reader.get_field(gguf.Keys.IMatrix.CHUNK_COUNT).contents() == hy3core.ImportanceMatrix(out).chunks
    arrays = {tensor.name: tensor.data for tensor in reader.tensors}
    assert arrays["blk.1.ffn_down_exps.weight.in_sum2"].shape == (4, 32)
    assert arrays["blk.1.ffn_down_exps.weight.counts"].shape == (4, 1)
    tokens = len(hy3core.Tokenizer(str(model)).encode("Some text to read. " * 9))
    assert arrays["blk.1.ffn_down_exps.weight.counts"].sum() == 2 * tokens
