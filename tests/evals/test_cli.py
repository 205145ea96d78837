"""`hy3 eval` as a command, on the bundled model and against a server."""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hy3.cli import main


def invoke(*args: str) -> Result:
    return CliRunner().invoke(main, ["eval", *args], prog_name="hy3")


class Server(BaseHTTPRequestHandler):
    """Says 66 to everything, and calls `now` when there are tools."""

    seen: list[dict[str, Any]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.reply({"data": [{"id": "fake"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Server.seen.append(body | {"path": self.path, "key": self.headers["Authorization"]})
        if self.path == "/tokenize":
            self.reply({"tokens": body["content"].split()})
            return
        message: dict[str, Any] = {"role": "assistant", "content": "Answer: 66"}
        if "tools" in body:
            function = {"name": "now", "arguments": "{}"}
            message |= {"content": None, "tool_calls": [{"type": "function", "function": function}]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.reply({"choices": [choice], "usage": {"completion_tokens": 3}})

    def reply(self, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Server.seen.clear()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


def test_tiny_on_the_bundled_model(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = invoke("--suite", "tiny", "--limit", "5", "--json", str(out))
    assert result.exit_code == 0, result.output
    assert re.search(r"tiny +all +5 +(100|80)\.0%", result.stdout)
    saved = json.loads(out.read_text())
    assert saved["about"]["effort"] == "no_think"
    transcripts = saved["suites"]["tiny"]["transcripts"]
    assert [t["id"] for t in transcripts] == [f"sum2-{i}" for i in range(5)]
    assert transcripts[0]["answer"]["text"].isdecimal()


def test_texts(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("Hello, who are you? " * 10)
    result = invoke("--suite", "perplexity", "-f", str(text), "--window", "32")
    assert re.search(r"perplexity +perplexity +\d", result.stdout), result.output
    saved = tmp_path / "saved"
    assert invoke("--suite", "kl", "-f", str(text), "--save", str(saved), "--kv", "f32").exit_code == 0
    result = invoke("--suite", "kl", "--reference", str(saved))
    assert re.search(r"kl +top1_agreement +(1|0\.9\d*)\s", result.stdout), result.output


def test_a_server_is_asked(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    args = ["--url", url, "--api-key", "k", "--json", str(out)]
    result = invoke(
        *args, "--suite", "reasoning", "--suite", "tools", "--limit", "2", "--temp", "0.5", "--seeds", "2"
    )
    assert result.exit_code == 0, result.output
    chats = [body for body in Server.seen if body["path"] == "/v1/chat/completions"]
    assert len(chats) == 8
    assert {body["key"] for body in chats} == {"Bearer k"}
    assert {body["seed"] for body in chats} == {0, 1}
    assert {body["reasoning_effort"] for body in chats} == {"none"}
    transcripts = json.loads(out.read_text())["suites"]["tools"]["transcripts"]
    assert transcripts[0]["answer"]["calls"] == [{"name": "now", "arguments": {}}]
    Server.seen.clear()
    assert invoke("--url", url, "--suite", "needle", "--tokens", "200", "--depth", "0.5").exit_code == 0
    assert any(
        len(b["messages"][0]["content"].split("\n\n")[0].split()) == 200
        for b in Server.seen
        if "messages" in b
    )


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["--suite", "nothing"], 2, "'nothing' is not one of"),
        (["--suite", "tiny", "--resume"], 2, "--resume goes on from a file"),
        (["--suite", "perplexity"], 2, "Give it with -f FILE"),
        (["--suite", "kl"], 2, "kl takes either"),
        (["--suite", "tiny", "--url", "http://x/v1", "-m", "y"], 2, "--url takes no -m"),
        (
            ["--suite", "perplexity", "-f", "x", "--window", "8", "--stride", "9"],
            2,
            "--stride 9 is more than",
        ),
        (["--suite", "needle", "--depth", "2"], 2, "2 is out of range"),
        (["--suite", "needle", "--tokens", "1000,x"], 2, "'x' is not a whole number"),
        (["--suite", "tiny", "--url", "http://127.0.0.1:1/v1"], 1, "Is the server running"),
    ],
)
def test_wrong_use(args: list[str], status: int, message: str) -> None:
    result = invoke(*args)
    assert result.exit_code == status
    assert message in result.output
