"""The target for tests/fuzz/session_cases.py that goes through hy3core.Session, as a user's program does.

    load_session.py MODEL FOLDER

First it writes a saved session of each KV type to FOLDER/base-KV; then it takes cases.

While one loads, the process may not grow by more than a few times the case and 2 MiB (RLIMIT_DATA).
"""

import contextlib
import resource
import struct
import sys
import tempfile
from pathlib import Path

import hy3core

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.load_model import UNLIMITED, limited_to

CTX = 512
Refusal = (hy3core.FormatError, hy3core.UnsupportedError, hy3core.ContextFullError)


def load(session: hy3core.Session, path: Path) -> str:
    """What the session has against the file; "" when it is loaded."""
    before = session.tokens
    try:
        limited_to(path.stat().st_size)
        session.load(path)
    except Refusal as error:
        assert session.tokens == before
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, UNLIMITED)
    with contextlib.suppress(hy3core.Error):
        session.eval([1, 2])  # any bytes are keys and values
    return ""


def run_case(sessions: list[hy3core.Session], path: Path) -> tuple[str, str]:
    message = ""
    for session in sessions:
        try:
            message = load(session, path)
        except MemoryError as error:
            return "excess", str(error)
        if not message:
            return "ok", ""
    return "refused", message


def main() -> None:
    model, folder = hy3core.Model(sys.argv[1], threads=1), Path(sys.argv[2])
    sessions = [model.session(ctx=CTX, kv=kv, mtp=True) for kv in ("f32", "f16", "q8", "q4")]
    for session in sessions:
        session.eval(list(range(69)), logits="none")
        session.jump(100)
        session.eval([3], logits="none")
        session.save(folder / f"base-{session.kv}", b"extra")
    with tempfile.NamedTemporaryFile() as file:
        path = Path(file.name)
        while head := sys.stdin.buffer.read(8):
            path.write_bytes(sys.stdin.buffer.read(struct.unpack("<Q", head)[0]))
            stage, message = run_case(sessions, path)
            print(stage, 0, 0, message.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
