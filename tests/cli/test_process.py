"""The real program on the real engine: signals, pipes, permissions, terminals, broken files."""

import ctypes
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
from support.gguf_files import Value, build_gguf, tiny_hy3, tiny_hy3_parts, write_gguf

HY3 = [sys.executable, "-m", "hy3"]
LONG = ["-c", "200000", "--backend", "reference", "--temp", "0.01"]
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_hy3(
        tmp_path_factory.mktemp("model") / "tiny.gguf",
        num_nextn_predict_layers=1,
        max_position_embeddings=1 << 18,
    )


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that, nearly greedy, never draws an end token: their logits are 0, and the largest is not."""
    metadata, tensors = tiny_hy3_parts(max_position_embeddings=1 << 18)
    tokens = metadata["tokenizer.ggml.tokens"]
    for number, (name, shape, kind, raw) in enumerate(tensors):
        if name == "output.weight":
            data, row = bytearray(raw), len(raw) // shape[0]
            for token, text in enumerate(tokens):
                if "_eos" in text or "_end_of_" in text:
                    data[token * row : (token + 1) * row] = bytes(row)
            tensors[number] = (name, shape, kind, bytes(data))
    return write_gguf(tmp_path_factory.mktemp("model") / "endless.gguf", metadata, tensors)


def hy3(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HY3, *map(str, args)],
        **{"capture_output": True, "text": True, "timeout": 60, "stdin": subprocess.DEVNULL} | options,
    )


def test_the_same_prompt_gives_the_same_answer(tiny: Path) -> None:
    results = [hy3("run", "-m", tiny, "-p", "hello", "-n", 20, "-t", threads) for threads in (1, 2)]
    assert [result.returncode for result in results] == [0, 0]
    assert results[0].stdout == results[1].stdout
    assert re.fullmatch(
        r"hy3: prompt \d+ tokens, [\d.]+ tok/s; answer \d+ tokens, [\d.]+ tok/s"
        r"(; \d+ of \d+ drafts accepted \(by depth \d+%(, \d+%)*\))?\n",
        results[0].stderr,
    )


def test_version() -> None:
    result = hy3("--version")
    assert result.returncode == 0
    assert re.match(r"hy3 \d+\.\d+\.\d+\nbackends: .*reference.*\ninstruction set: \w+ ", result.stdout)


def test_inspect_and_tokenize(tiny: Path) -> None:
    facts = json.loads(hy3("inspect", tiny, "--json").stdout)
    assert (facts["dialect"], facts["mtp"]) == ("hy3", "present")
    assert facts["parameters"]["active"] < facts["parameters"]["total"]
    tokens = json.loads(hy3("tokenize", "-m", tiny, "hello", "--json").stdout)
    assert "".join(tokens["pieces"]) == "hello"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_ends_the_program_quietly(unbuffered: str, endless: Path) -> None:
    with subprocess.Popen(
        [*HY3, "run", "-m", str(endless), "-p", "x", *LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, PYTHONUNBUFFERED=unbuffered),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(30) == 1
        assert re.fullmatch(rb"hy3: seed \d+\n", process.stderr.read())


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_no_space_left_for_the_answer(unbuffered: str, tiny: Path) -> None:
    with open("/dev/full", "w") as full:
        result = hy3(
            *("run", "-m", tiny, "-p", "x", "-n", 4),
            env=dict(os.environ, PYTHONUNBUFFERED=unbuffered),
            capture_output=False,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert result.returncode == 1
    assert (
        result.stderr == "hy3: error: No space left on device. Free some space, or write to another disk.\n"
    )


@pytest.mark.parametrize("command", [["--version"], ["run", "-p", "x", "-n", "4"]])
def test_closed_streams(command: list[str]) -> None:
    words = [*HY3, *command]
    result = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words], capture_output=True, timeout=60)
    assert (result.returncode, b"Traceback" in result.stderr) == (0, False)
    result = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *words], capture_output=True, timeout=60)
    assert result.returncode == 0
    assert result.stdout


def test_no_permission(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "secret.gguf"
    file.write_bytes(tiny.read_bytes())
    file.chmod(0)
    libc = ctypes.CDLL(None)

    def as_others() -> None:  # root may read anything, unless it gives that up
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)

    result = hy3("run", "-m", file, "-p", "x", preexec_fn=as_others)
    assert result.returncode == 1
    assert result.stderr == f"hy3: error: {file}: Permission denied. Check the file's permissions (ls -l).\n"


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("phase", ["prompt", "answer"])
def test_ctrl_c_at_any_moment_exits_130(endless: Path, tmp_path: Path, phase: str, delay: float) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("x" * (50_000 if phase == "prompt" else 1))
    with subprocess.Popen(
        [*HY3, "run", "-m", str(endless), "-f", str(prompt), *LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        (process.stderr if phase == "prompt" else process.stdout).read(1)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, stderr = process.communicate(timeout=30)
        assert time.monotonic() - start < 5.0  # a busy machine; without other work it is a tenth of a second
        assert process.returncode == 130
        assert stderr.decode().endswith("\nhy3: interrupted\n")


def test_a_long_prompt_says_so_after_two_seconds(endless: Path, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("x" * 50_000)
    with subprocess.Popen(
        [*HY3, "run", "-m", str(endless), "-f", str(prompt), *LONG], stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline().decode() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert re.fullmatch(r"hy3: computing a prompt of 50\d{3} tokens\n", lines[1])
        assert process.wait(30) == 130


def test_a_chat_is_kept_in_a_file_and_gone_on_with(tiny: Path, tmp_path: Path) -> None:
    """The second run computes only what is new, and says what one run would have said."""
    file = tmp_path / "kept"
    common = ["chat", "-m", tiny, "-n", "5", "--seed", "3"]
    whole = hy3(*common, stdin=None, input="hello\nagain\n")
    file.touch()  # as mktemp does
    first = hy3(*common, "--session", file, stdin=None, input="hello\n")
    second = hy3(*common, "--session", file, stdin=None, input="again\n/stats\n")
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    assert first.stdout + second.stdout == whole.stdout
    kept = re.search(rf"Kept 2 messages \((\d+) tokens\) in {file}\.", first.stderr)
    assert kept is not None
    assert f"Went on from 2 messages ({kept[1]} tokens) in {file}." in second.stderr
    stats = re.search(r"prompt \d+ tokens \+ (\d+) reused", second.stderr)
    assert stats is not None
    assert stats[1] == kept[1]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["kept"]
    assert b'"content": "again"' in file.read_bytes()


def test_a_kept_chat_of_another_kind_is_refused_and_left_alone(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    hy3("chat", "-m", tiny, "-n", "2", "--session", file, stdin=None, input="hello\n")
    before = file.read_bytes()
    result = hy3("chat", "-m", tiny, "--session", file, "--kv", "f32", stdin=None, input="hello\n")
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(
        rf"hy3: error: {file}: was saved with KV type f16, and this session has f32\. [^\n]+\n",
        result.stderr,
    )
    assert file.read_bytes() == before
    result = hy3("chat", "-m", tiny, "--session", tmp_path / "no" / "kept", stdin=None, input="hello\n")
    assert result.stderr == f"hy3: error: There is no folder {tmp_path}/no. Check the path of --session.\n"


def test_what_is_given_anew_changes_a_kept_chat(tiny: Path, tmp_path: Path) -> None:
    def run(*options: str) -> dict[str, Any]:
        lines = f"x\n/save {tmp_path}/messages.json\n"
        hy3("chat", "-m", tiny, "-n", "2", "--session", tmp_path / "kept", *options, stdin=None, input=lines)
        saved: dict[str, Any] = json.loads((tmp_path / "messages.json").read_text())
        return {key: saved[key] for key in ("system", "think")} | {"turns": len(saved["turns"])}

    assert run("--system", "Be brief.", "--think", "low") == {
        "system": "Be brief.",
        "think": "low",
        "turns": 2,
    }
    assert run() == {"system": "Be brief.", "think": "low", "turns": 4}
    assert run("--think", "off") == {"system": "Be brief.", "think": "off", "turns": 6}


Break = Callable[[bytearray], bytearray]

BROKEN: dict[str, Break] = {
    "empty": lambda _: bytearray(),
    "wrong magic": lambda data: bytearray(b"GGML") + data[4:],
    "cut in the header": lambda data: data[:1000],
    "cut in the tensors": lambda data: data[: len(data) * 2 // 3],
    "absurd counts": lambda data: data[:8] + bytearray(b"\xff" * 8) + data[16:],
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("command", [["run", "-p", "x", "-m"], ["inspect"], ["tokenize", "x", "-m"]])
def test_broken_files_are_named_in_one_line(
    tiny: Path, tmp_path: Path, name: str, command: list[str]
) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(BROKEN[name](bytearray(tiny.read_bytes())))
    result = hy3(*command, file)
    assert result.returncode == 1
    assert re.fullmatch(r"hy3: error: [^\n]*broken\.gguf[^\n]*\. [^\n]+\.\n", result.stderr), result.stderr


def refused(file: Path, words: str) -> None:
    """`hy3 run` says in one line what is wrong, with these words (a pattern), and nothing else."""
    result = hy3("run", "-m", file, "-p", "x")
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(rf"hy3: error: [^\n]*{words}[^\n]*\.\n", result.stderr), result.stderr


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    metadata, tensors = tiny_hy3_parts()
    tensors = [tensor for tensor in tensors if tensor[0] != "blk.1.attn_q.weight"]
    refused(write_gguf(tmp_path / "broken.gguf", metadata, tensors), r"blk\.1\.attn_q\.weight")


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    metadata, tensors = tiny_hy3_parts()
    del metadata["hy_v3.block_count"]
    refused(write_gguf(tmp_path / "broken.gguf", metadata, tensors), r"hy_v3\.block_count")


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    metadata, tensors = tiny_hy3_parts()
    wrong = ("output_norm.weight", (32,), "f32", bytes(4 * 32))
    tensors = [wrong if tensor[0] == wrong[0] else tensor for tensor in tensors]
    refused(write_gguf(tmp_path / "broken.gguf", metadata, tensors), r"output_norm\.weight")


def test_a_missing_part_of_a_split_model_is_named(tmp_path: Path) -> None:
    metadata, tensors = tiny_hy3_parts()
    parts = {"split.no": Value("u16", 0), "split.count": Value("u16", 2), "split.tensors.count": len(tensors)}
    file = write_gguf(tmp_path / "m-00001-of-00002.gguf", metadata | parts, tensors[:5])
    refused(file, r"m-00002-of-00002\.gguf")


@pytest.mark.parametrize(
    ("field", "kind", "value"),
    [
        pytest.param("type", "I", 99, id="unknown type"),
        pytest.param("offset", "Q", 1 << 40, id="past the end"),
        pytest.param("offset", "Q", 0, id="overlapping"),
        pytest.param("dim", "Q", 1 << 63, id="absurd dimension"),
    ],
)
def test_a_tensor_that_cannot_be_is_named(tmp_path: Path, field: str, kind: str, value: int) -> None:
    image = build_gguf(*tiny_hy3_parts())
    struct.pack_into("<" + kind, image.data, image.at(field, "output_norm.weight").offset, value)
    file = tmp_path / "broken.gguf"
    file.write_bytes(image.data)
    refused(file, r"output_norm\.weight")


def test_weights_that_are_not_numbers(tmp_path: Path) -> None:
    metadata, tensors = tiny_hy3_parts()
    tensors = [
        (name, shape, kind, b"\xff\xff\xff\x7f" * (len(raw) // 4) if name == "output_norm.weight" else raw)
        for name, shape, kind, raw in tensors
    ]
    refused(
        write_gguf(tmp_path / "nan.gguf", metadata, tensors),
        r"The logits at position \d+ are not finite numbers\. The model's weights are damaged",
    )


def ready(child: pexpect.spawn) -> None:
    """Waits for a new prompt: before it, the terminal would take control characters as its own."""
    child.expect_exact("\x1b[?2004h")
    child.expect(r">.{0,12}\x1b\[\?7h")


def chat(model: Path, home: Path, *args: str) -> pexpect.spawn:
    env = dict(os.environ, XDG_STATE_HOME=str(home), TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1")
    command = [*HY3, "chat", "-m", str(model), *args]
    child = pexpect.spawn(
        command[0], command[1:], env=env, encoding="utf-8", timeout=60, dimensions=(40, 200)
    )
    child.expect_exact("/help lists the commands")
    ready(child)
    return child


def test_chat_at_a_terminal(tiny: Path, tmp_path: Path) -> None:
    child = chat(tiny, tmp_path, "-n", "4")
    child.send("hello\r")
    ready(child)
    child.send("/stats\r")
    child.expect(r"context: \d+ of \d+ tokens")
    ready(child)
    child.send("\x04")
    child.expect(pexpect.EOF)
    assert child.wait() == 0
    history = tmp_path / "hy3/history"
    assert "+hello" in history.read_text().splitlines()
    assert history.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_stops_an_answer_at_a_terminal(endless: Path, tmp_path: Path) -> None:
    child = chat(endless, tmp_path, *LONG)
    child.send("hello\r")
    child.expect_exact("\x1b[?2004l")  # the line is taken
    child.expect(r"[^\x1b\r\n]")  # the answer has begun
    child.sendintr()
    child.expect_exact("The answer was stopped")
    ready(child)
    child.send("/exit\r")
    child.expect(pexpect.EOF)
    assert child.wait() == 0


def test_chat_through_a_pipe_reuses_what_it_has(tiny: Path) -> None:
    result = hy3("chat", "-m", tiny, "-n", "5", stdin=None, input="hello\nagain\n/stats\n")
    assert result.returncode == 0
    stats = re.search(r"prompt (\d+) tokens \+ (\d+) reused", result.stderr)
    assert stats is not None
    assert int(stats[1]) < int(stats[2])
