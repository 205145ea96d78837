"""Work that may take any time or memory, done by a script in a process of its own, which can be killed.

Protocol: one line of JSON in, one line out; the script's first line, an empty object, says that it is ready.
The script limits itself as it can; what it cannot interrupt, the clock here does.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

START_SECONDS = 30.0  # for the process to come up on a busy machine


class WorkerError(Exception):
    """No answer came. `reason` says why, of "it"."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Worker:
    """Answers one request at a time; killed when late, started when needed."""

    def __init__(self, script: str, seconds: float, most_bytes: int, died: str) -> None:
        """seconds: for an answer. most_bytes: that it may have. died: the reason when the process ends."""
        self._script, self._seconds, self._most_bytes, self._died = script, seconds, most_bytes, died
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            line = json.dumps(request).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise WorkerError(f"its arguments are not JSON: {error}") from None
        with self._lock:
            try:
                return self._ask(line)
            except BaseException:  # Ctrl-C as well: a half-read reply must not be taken for the next one's
                self.close()
                raise

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, line: bytes) -> dict[str, Any]:
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            # A session of its own, so that Ctrl-C at the terminal does not reach it.
            process = self._process = subprocess.Popen(
                [sys.executable, "-I", self._script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                self._read_line(process, START_SECONDS)
            except WorkerError:
                raise WorkerError("the process for it does not start") from None
        assert process.stdin is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._died) from None
        return self._read_line(process, self._seconds)

    def _read_line(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        deadline = time.monotonic() + seconds
        data = bytearray()
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise WorkerError(f"it took longer than {self._seconds:g} seconds")
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                raise WorkerError(self._died)
            data += chunk
            if len(data) > self._most_bytes:
                raise WorkerError(f"its answer is longer than {self._most_bytes} bytes")
        answer = json.loads(data)
        assert isinstance(answer, dict)
        return answer
