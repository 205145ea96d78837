"""`hy3 serve` as a process of its own, on a free port of the loopback interface.

with Server(model, "--ctx", "2048") as server:
    httpx.get(server.url + "/health")
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

START_S = 300.0  # a large model is mapped, and may be locked in memory
STOP_S = 30.0


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """`model` None: the bundled one. Leaving the `with` block ends it; `log` is what it wrote so far."""

    def __init__(self, model: Path | str | None = None, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # A file: a pipe that nobody reads would stop the server.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        named = [] if model is None else ["-m", str(model)]
        command = [sys.executable, "-m", "hy3", "serve", *named, "--port", str(self.port), *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if not self.alive:
                raise RuntimeError(f"hy3 serve ended with {self.process.returncode}: {self.log}")
            with contextlib.suppress(OSError), urllib.request.urlopen(self.url + "/health", timeout=5):
                return
            time.sleep(0.05)
        raise RuntimeError(f"hy3 serve is not ready after {START_S:.0f} s: {self.log}")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def log(self) -> str:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = STOP_S) -> int:
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.alive:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def resident_bytes(pid: int) -> int:
    """Memory of a process, the touched pages of its mapped files included."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def memory_curve(pid: int, every_s: float) -> Iterator[list[tuple[float, int]]]:
    """(seconds since the start, bytes), growing while the context lasts."""
    samples: list[tuple[float, int]] = []
    began = time.monotonic()
    stop = threading.Event()

    def sample() -> None:
        with contextlib.suppress(OSError, StopIteration):  # it has ended: others will say so
            while not stop.wait(every_s):
                samples.append((time.monotonic() - began, resident_bytes(pid)))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()
