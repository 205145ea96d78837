"""The target for tests/fuzz/campaign.py that goes through hy3core.Model, as a user's program does.

Speaks the protocol described there. While a model loads, the process may not grow by more than twice the file
and 1 MiB (RLIMIT_DATA); one that hits the limit is answered as "excess". PEAK and LARGEST are 0: counting is
for the native target.
"""

import resource
import struct
import sys
import tempfile
from pathlib import Path

import hy3core

SLACK = 2**20  # what the interpreter and malloc take in steps of their own, besides the reader
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
Refusal = (hy3core.FormatError, hy3core.UnsupportedError)


def data_size() -> int:
    """Bytes that count against RLIMIT_DATA now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmData in /proc/self/status")


def limited_to(size: int) -> None:
    limit = data_size() + 2 * size + 2**20 + SLACK
    resource.setrlimit(resource.RLIMIT_DATA, (limit, UNLIMITED[1]))


def readable(path: Path) -> bool:
    try:
        hy3core.GGUF(path)
    except Refusal:
        return False
    return True


def compute(model: hy3core.Model) -> None:
    """A few tokens through the tokenizer and the layers; refusing is fine, crashing is not."""
    try:
        ids = model.tokenizer.encode("Hi, 12 × 3 = ?")[:6]
        model.tokenizer.decode(ids)
        model.session(ctx=8).eval(ids)
    except hy3core.Error:
        pass


def run_case(path: Path, data: bytes) -> tuple[str, str]:
    path.write_bytes(data)
    try:
        limited_to(len(data))
        model = hy3core.Model(path, threads=1)
    except MemoryError as error:
        return "excess", str(error)
    except Refusal as error:
        resource.setrlimit(resource.RLIMIT_DATA, UNLIMITED)
        if readable(path):
            return "model", str(error)
        # The same metadata before no tensors: readable, then the fault is behind them (or their number).
        path.write_bytes(data[:8] + bytes(8) + data[16:])
        return ("tensors" if len(data) >= 24 and readable(path) else "metadata"), str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, UNLIMITED)
    compute(model)
    return "ok", ""


def main() -> None:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        while head := sys.stdin.buffer.read(8):
            data = sys.stdin.buffer.read(struct.unpack("<Q", head)[0])
            stage, message = run_case(Path(folder) / "case.gguf", data)
            print(stage, 0, 0, message.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
