"""`hy3 serve` as a process: how it starts, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
LONG = {
    "messages": [{"role": "user", "content": "hello"}],
    "stream": True,
    "max_tokens": 100_000,
    "temperature": 2.0,
}
ENDS = (977, 981, 982, 983)  # the bundled model's end tokens


class Process:
    """A running `hy3 serve`; its stderr is collected."""

    def __init__(self, *args: str, **environment: str) -> None:
        env = {**os.environ, **environment}
        command = [sys.executable, "-m", "hy3", "serve", "--threads", "1", *args]
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    @property
    def url(self) -> str:
        return self.wait_for(r"http://[^ ]+")

    def wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for line in self.lines:
                if found := re.search(pattern, line):
                    return found.group()
            assert self.process.poll() is None, self.lines
            time.sleep(0.02)
        raise AssertionError(self.lines)

    def ready(self) -> "Process":
        self.wait_for("ready")
        return self

    def end(self, seconds: float = 20) -> int:
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """start("--port", "0", HY3_SERVE_X="y"): a server, gone after the test."""
    started: list[Process] = []

    def run(*args: str, **environment: str) -> Process:
        started.append(Process(*args, **environment))
        return started[-1]

    yield run
    for each in started:
        each.process.kill()
        each.process.wait()


def long_stream(url: str) -> Any:
    bias = {str(token): -100 for token in ENDS}
    return httpx.stream("POST", url + CHAT, json={**LONG, "logit_bias": bias}, timeout=60)


def test_it_says_where_it_is_and_a_signal_ends_it(start: Callable[..., Process]) -> None:
    server = start("--port", "0").ready()
    assert httpx.get(server.url + "/health").json() == {"status": "ok"}
    assert httpx.get(server.url + "/v1/models").json()["data"][0]["id"] == "hy3-tiny"
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0
    assert not any("Traceback" in line or "warning" in line for line in server.lines)


def test_ctrl_c_is_an_interrupt(start: Callable[..., Process]) -> None:
    server = start("--port", "0").ready()
    server.process.send_signal(signal.SIGINT)
    assert server.end() == 130
    assert server.lines[-1] == "hy3: interrupted"


def test_what_runs_may_finish(start: Callable[..., Process]) -> None:
    server = start("--port", "0", "--ctx", "2048", "--grace", "60").ready()
    with httpx.Client(base_url=server.url) as other, long_stream(server.url) as stream:
        lines = stream.iter_lines()
        next(lines)
        other.get("/health")
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: other.get("/health").status_code == 503)
        assert other.get("/health").json() == {"status": "draining"}
        refused = other.post(CHAT, json={"messages": [{"role": "user", "content": "x"}]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert server.end() == 0


def test_the_grace_is_limited(start: Callable[..., Process]) -> None:
    server = start("--port", "0", "--ctx", "100k", "--grace", "0.3").ready()
    with long_stream(server.url) as stream:
        lines = stream.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert "shutting down" in rest[-1] and "error" in rest[-1]
    assert server.end() == 0


def test_a_second_signal_ends_it_at_once(start: Callable[..., Process]) -> None:
    server = start("--port", "0", "--ctx", "100k", "--grace", "60").ready()
    with long_stream(server.url) as stream:
        lines = stream.iter_lines()  # kept: httpx closes a stream whose iterator is gone
        next(lines)
        server.process.send_signal(signal.SIGINT)
        with httpx.Client(base_url=server.url) as other:
            wait_until(lambda: other.get("/health").status_code == 503)
        server.process.send_signal(signal.SIGINT)
        assert server.end(5) == 130


def test_a_port_in_use_is_named(start: Callable[..., Process]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = start("--port", str(port))
        assert server.end() == 1
    assert server.lines == [
        f"hy3: error: Cannot listen at 127.0.0.1 port {port}: Address already in use. "
        "Give another --host or --port."
    ]


def test_a_broken_model_ends_it_with_one_line(start: Callable[..., Process], tmp_path: Path) -> None:
    bundled = (ROOT / "src/hy3/models/hy3-tiny.gguf").read_bytes()
    file = tmp_path / "cut.gguf"
    file.write_bytes(bundled[: len(bundled) // 2])
    server = start("--port", "0", "-m", str(file))
    assert server.end() == 1
    assert server.lines[-1].startswith("hy3: error: ") and "cut.gguf" in server.lines[-1]
    assert not any("Traceback" in line for line in server.lines)


def test_strangers_without_a_key_are_warned_of(start: Callable[..., Process]) -> None:
    server = start("--port", "0", "--host", "0.0.0.0").ready()
    assert any("warning: anyone who reaches 0.0.0.0" in line for line in server.lines)
    with_key = start("--port", "0", "--host", "0.0.0.0", HY3_SERVE_API_KEY="k").ready()
    assert not any("warning" in line for line in with_key.lines)
    url = with_key.url.replace("0.0.0.0", "127.0.0.1")
    assert httpx.get(url + "/v1/models").status_code == 401
    assert httpx.get(url + "/v1/models", headers={"authorization": "Bearer k"}).status_code == 200


def test_without_the_extra_it_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['uvicorn'] = None; from hy3.cli import main; main(['serve'])"
    result = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 1
    assert result.stderr == (
        "hy3: error: The server needs uvicorn, not installed here. Install it: pip install 'hy3[serve]'.\n"
    )


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
