"""mlock and use_mmap do what they say: looked up in what Linux tells of the process."""

import ctypes
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support.gguf_files import tiny_hy3

import hy3core

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_hy3(tmp_path_factory.mktemp("model") / "tiny.gguf")


def locked_bytes() -> int:
    found = re.search(r"VmLck:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_mapped_by_default_and_not_on_request(tiny: Path) -> None:
    model = hy3core.Model(tiny)
    assert is_mapped(tiny)
    del model
    model = hy3core.Model(tiny, use_mmap=False)
    assert not is_mapped(tiny)
    logits = model.session(ctx=8).eval([1, 2, 3])
    assert (logits == hy3core.Model(tiny).session(ctx=8).eval([1, 2, 3])).all()


@pytest.mark.parametrize("use_mmap", [True, False])
def test_mlock_pins_the_whole_file(tiny: Path, use_mmap: bool) -> None:
    size = tiny.stat().st_size
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] < size:
        pytest.skip("this user may not pin that much")
    before = locked_bytes()
    model = hy3core.Model(tiny, use_mmap=use_mmap, mlock=True)
    assert locked_bytes() - before >= size
    del model
    assert locked_bytes() == before


def test_a_refused_mlock_is_an_error_that_says_what_to_do(tiny: Path) -> None:
    def forbid() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)  # root alone could still pin

    argv = [sys.executable, "-m", "hy3", "run", "-m", str(tiny), "--mlock", "-p", "x", "-n", "1"]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, preexec_fn=forbid)
    assert result.returncode == 1
    assert f"hy3: error: {tiny}: the system refuses to pin {tiny.stat().st_size} bytes" in result.stderr
    assert "ulimit -l" in result.stderr
