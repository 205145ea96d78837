"""What clients do to connections, byte by byte: pipelines, slow senders and readers, odd heads and bodies."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import hy3core
from eval.server.process import Server, resident_bytes

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def question(text: str, **options: Any) -> bytes:
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 6, **options}
    return json.dumps(body).encode()


BODY = question("1+2=?")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(None, "--ctx", "4096", "--parallel", "4") as found:
        yield found


@contextlib.contextmanager
def connected(server: Server, timeout: float = 20.0) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout) as connection:
        yield connection


def receive(connection: socket.socket, until: bytes) -> bytes:
    """What comes until these bytes, or the end."""
    found = b""
    while until not in found and (data := connection.recv(65536)):
        found += data
    return found


def status_of(server: Server, request: bytes) -> int:
    with connected(server) as connection:
        connection.sendall(request)
        return int(receive(connection, b"\r\n").split()[1])


def sized(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def works(server: Server) -> bool:
    return server.alive and status_of(server, sized(BODY)) == 200


def test_requests_in_a_pipeline_are_answered_in_order(server: Server) -> None:
    bodies = [question(f"1+{number}=?") for number in range(3)]
    url = server.url + "/v1/chat/completions"
    alone = [httpx.post(url, json=json.loads(body)).json()["choices"] for body in bodies]
    with connected(server) as connection:
        connection.sendall(b"".join(map(sized, bodies)))
        found = b""
        while found.count(b"HTTP/1.1 200") < 3 or not found.endswith(b"}"):
            found += connection.recv(65536)
    parts = [part.split(b"\r\n\r\n", 1)[1] for part in found.split(b"HTTP/1.1 200 OK")[1:]]
    assert [json.loads(part)["choices"] for part in parts] == alone


def test_a_body_in_chunks(server: Server) -> None:
    chunks = b"".join(b"%x\r\n%c\r\n" % (1, byte) for byte in BODY) + b"0\r\n\r\n"
    assert status_of(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks) == 200


def test_a_client_that_asks_before_it_sends(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(BODY))
        assert receive(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert receive(connection, b"\r\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"GET / FTP/1.1\r\n\r\n", id="protocol"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 64, id="TLS"),
        pytest.param(HEAD + b"Content-Length: -1\r\n\r\n", id="negative length"),
        pytest.param(HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", id="two lengths"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", id="chunk size"),
        pytest.param(HEAD + b"X: " + b"y" * (2 << 20) + b"\r\n\r\n", id="head of 2 MiB"),
        pytest.param(HEAD + b"X: y\r\n" * 50_000 + b"\r\n", id="50,000 fields"),
        pytest.param(b"GET /" + b"a" * (2 << 20) + b" HTTP/1.1\r\n\r\n", id="path of 2 MiB"),
    ],
)
def test_what_is_no_request_is_refused(server: Server, request_bytes: bytes) -> None:
    with connected(server) as connection:
        found = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(request_bytes)
        with contextlib.suppress(ConnectionError):
            found = receive(connection, b"\r\n")
    assert not found or found.split()[1].startswith(b"4"), found
    assert works(server)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "BREW"])
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/models", "/health", "/", "/nowhere", "/%00%ff/../x"]
)
def test_other_methods_and_paths(server: Server, method: str, path: str) -> None:
    status = status_of(server, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert status == 200 or 400 <= status < 500


def test_many_idle_connections_and_half_requests(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(200):
            connection = stack.enter_context(connected(server))
            connection.sendall([b"", b"POST", HEAD, sized(BODY)[:-1]][number % 4])
        assert works(server)


def test_a_reader_that_does_not_read(server: Server) -> None:
    """Its answer waits in buffers of a bounded size, and the others go on."""
    letter = hy3core.Tokenizer(Path(__file__).parents[2] / "src/hy3/models/hy3-tiny.gguf").token_id("a")
    letters = {str(letter): 100}
    body = question("a", max_tokens=4000, logit_bias=letters, stream=True, logprobs=True, top_logprobs=5)
    before = resident_bytes(server.process.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            connection = stack.enter_context(connected(server))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(sized(body))
        time.sleep(3)
        assert works(server)
        assert resident_bytes(server.process.pid) - before < 100 << 20
    assert works(server)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_reads_why_its_large_body_is_refused(server: Server, chunked: bool) -> None:
    """Also one that first sends all of it."""
    body = b" " * (20 << 20)
    head = HEAD + (
        b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n" % len(body)
    )
    with connected(server) as connection:
        connection.sendall(head + (b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body))
        assert receive(connection, b"\r\n").startswith(b"HTTP/1.1 413 ")


def test_a_large_body_that_was_asked_for_first_is_not_sent(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(HEAD + b"Content-Length: 20000000\r\nExpect: 100-continue\r\n\r\n")
        assert receive(connection, b"\r\n").startswith(b"HTTP/1.1 413 ")
