"""The target for tests/fuzz/test_session_fuzz.py: loads saved sessions, as a user's program does.

    load_session.py MODEL FOLDER

First it writes a saved session to FOLDER/base; then it takes cases, in the way of campaign.py.

While one loads, the process may not grow by more than a few times the case and 2 MiB (RLIMIT_DATA).
"""

import contextlib
import resource
import struct
import sys
from pathlib import Path

import hy3core

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.load_model import UNLIMITED, limited_to

CTX = 512
Refusal = (hy3core.FormatError, hy3core.UnsupportedError, hy3core.ContextFullError)


def run_case(session: hy3core.Session, path: Path, data: bytes) -> tuple[str, str]:
    path.write_bytes(data)
    before = session.tokens
    try:
        limited_to(len(data))
        session.load(path)
    except MemoryError as error:
        return "excess", str(error)
    except Refusal as error:
        assert session.tokens == before
        return "refused", str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, UNLIMITED)
    with contextlib.suppress(hy3core.Error):
        session.eval([1, 2])  # any bytes are keys and values
    return "ok", ""


def main() -> None:
    model, folder = hy3core.Model(sys.argv[1], threads=1), Path(sys.argv[2])
    session = model.session(ctx=CTX, mtp=True)
    session.eval(list(range(9)), logits="none")
    session.jump(100)
    session.eval([3], logits="none")
    session.save(folder / "base", b"extra")
    while head := sys.stdin.buffer.read(8):
        data = sys.stdin.buffer.read(struct.unpack("<Q", head)[0])
        stage, message = run_case(session, folder / "case", data)
        print(stage, 0, 0, message.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
