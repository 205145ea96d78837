"""`hy3 run` on a scripted engine: prompts from everywhere, what goes where, and every refusal."""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from hy3.chat.generate import speeds
from tests.cli import fake_hy3core as fake

Run = Callable[..., Result]
Write = Callable[..., Path]

ANSWER = f"66{fake.EOS}"


def test_the_answer_goes_to_stdout_and_the_speeds_to_stderr(hy3: Run, model: Write) -> None:
    result = hy3("run", "-m", model(answers=[ANSWER]), "-p", "11+22+33=?")
    assert (result.exit_code, result.stdout) == (0, "66\n")
    assert result.stderr == "hy3: prompt 41 tokens, 82.0 tok/s; answer 2 tokens, 8.0 tok/s\n"


@pytest.mark.parametrize("where", ["-p", "-f", "-f -", "stdin"])
def test_a_prompt_comes_from_an_option_a_file_or_stdin(
    hy3: Run, model: Write, tmp_path: Path, where: str
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("héllo\n")
    ways: dict[str, tuple[list[object], str | None]] = {
        "-p": (["-p", "héllo"], None),
        "-f": (["-f", file], None),
        "-f -": (["-f", "-"], "héllo\n"),
        "stdin": ([], "héllo\r\n"),
    }
    args, stdin = ways[where]
    result = hy3("run", "-m", model(answers=[ANSWER]), *args, input=stdin)
    assert (result.exit_code, result.stdout) == (0, "66\n")
    assert "prompt 37 tokens" in result.stderr


def test_raw_leaves_the_template_out(hy3: Run, model: Write) -> None:
    result = hy3("run", "-m", model(answers=[ANSWER]), "--raw", "-p", "hello")
    assert "prompt 1 tokens" in result.stderr


def test_raw_begins_with_bos_where_the_file_says_so(hy3: Run, model: Write) -> None:
    metadata = {"general.architecture": "hy_v3", "tokenizer.ggml.add_bos_token": True}
    result = hy3("run", "-m", model(answers=[ANSWER], metadata=metadata), "--raw", "-p", "hello")
    assert "prompt 2 tokens" in result.stderr


def test_the_files_own_template_is_used(hy3: Run, model: Write) -> None:
    metadata = {"general.architecture": "hy_v3", "tokenizer.chat_template": "{{ messages | length }}"}
    result = hy3("run", "-m", model(answers=[ANSWER], metadata=metadata), "-p", "x", "--system", "y")
    assert "prompt 1 tokens" in result.stderr


def test_a_template_that_fails_says_which_line(hy3: Run, model: Write) -> None:
    metadata = {"general.architecture": "hy_v3", "tokenizer.chat_template": "\n\n{{ 1/0 }}"}
    result = hy3("run", "-m", model(metadata=metadata), "-p", "x")
    assert result.exit_code == 1
    assert result.stderr == (
        "hy3: error: The model file's chat template failed at line 3: ZeroDivisionError: division by zero. "
        "`hy3 run --raw` does without it; or convert the model again, with a template that works.\n"
    )


def test_stop_strings_and_end_tokens_end_the_answer(hy3: Run, model: Write) -> None:
    file = model(answers=[f"one STOP two{fake.EOS}"])
    assert hy3("run", "-m", file, "-p", "x", "--stop", "STOP", "--stop", "ZZ").stdout == "one \n"
    file = model(answers=[f"one{fake.EOS}two"])
    assert hy3("run", "-m", file, "-p", "x").stdout == "one\n"


def test_max_tokens(hy3: Run, model: Write) -> None:
    assert hy3("run", "-m", model(answers=["123456"]), "-p", "x", "-n", 3).stdout == "123\n"


def test_a_full_context_is_told(hy3: Run, model: Write) -> None:
    result = hy3("run", "-m", model(answers=["123456"]), "-p", "x", "-c", 36)
    assert (result.exit_code, result.stdout) == (0, "1234\n")
    assert (
        "hy3: warning: the context of 36 tokens is full, the answer is cut off. Use a larger -c.\n"
        in result.stderr
    )


def test_thinking_in_a_pipe_stands_between_tags(hy3: Run, model: Write) -> None:
    result = hy3(
        "run", "-m", model(answers=[f"sum{fake.END_THINK}66{fake.EOS}"]), "-p", "x", "--think", "high"
    )
    assert result.stdout == "<think>sum</think>66\n"


def test_engine_options_reach_the_engine(hy3: Run, model: Write) -> None:
    args = (
        "-t 3 -c 1k --kv f32 --backend reference --experts 2 --chunk 7 --mlock --rope-factor 4 "
        "--rope-ctx 64k --rope-attention-factor 1.5 --rope-beta-fast 16 --rope-beta-slow 2"
    )
    hy3("run", "-m", model(answers=[ANSWER]), "-p", "x", *args.split(), "--no-mmap")
    assert fake.Model.opened == {
        "threads": 3,
        "ctx": 1024,
        "kv": "f32",
        "backend": "reference",
        "experts": 2,
        "chunk": 7,
        "rope_factor": 4.0,
        "rope_ctx": 65536,
        "rope_attention_factor": 1.5,
        "rope_beta_fast": 16.0,
        "rope_beta_slow": 2.0,
        "use_mmap": False,
        "mlock": True,
        "mtp": False,
        "mtp_model": None,
    }


def test_a_conversation_from_a_file_reports_what_each_turn_reused(
    hy3: Run, model: Write, tmp_path: Path
) -> None:
    turns = tmp_path / "turns.txt"
    turns.write_text("11+22\n\n  \nand 12?\r\n")
    result = hy3("run", "-m", model(answers=[f"12{fake.EOS}", f"hello{fake.EOS}"]), "--convo", turns)
    assert (result.exit_code, result.stdout) == (0, "12\nhello\n")
    # Of the second prompt all is there that the first one and its answer computed.
    assert result.stderr == (
        "hy3: turn 1 of 2: prompt 36 tokens, 72.0 tok/s; answer 2 tokens, 8.0 tok/s\n"
        "hy3: turn 2 of 2: prompt 11 tokens + 38 reused, 22.0 tok/s; answer 5 tokens, 20.0 tok/s\n"
    )
    piped = hy3("run", "-m", model(answers=[f"12{fake.EOS}"]), "--convo", "-", input="11+22\n")
    assert piped.stdout == "12\n"


def test_a_conversation_that_outgrows_the_context_ends_with_an_error(
    hy3: Run, model: Write, tmp_path: Path
) -> None:
    turns = tmp_path / "turns.txt"
    turns.write_text("x\n" + "y" * 100 + "\n")
    result = hy3("run", "-m", model(answers=[f"12{fake.EOS}"]), "--convo", turns, "-c", "100")
    assert (result.exit_code, result.stdout) == (1, "12\n")
    assert "error: The prompt has" in result.stderr


@pytest.mark.parametrize(
    ("layers", "args", "kept", "asked"),
    [
        (1, "", True, -1),
        (1, "--mtp 3", True, 3),
        (1, "--mtp 0", False, 0),
        (0, "", False, -1),
        (0, "--mtp 0", False, 0),
    ],
)
def test_drafts(hy3: Run, model: Write, layers: int, args: str, kept: bool, asked: int) -> None:
    result = hy3("run", "-m", model(answers=[ANSWER], mtp_layers=layers), "-p", "x", *args.split())
    assert result.exit_code == 0
    assert (fake.Model.opened["mtp"], fake.Session.mtp) == (kept, asked)


def test_drafts_without_an_mtp_layer(hy3: Run, model: Write) -> None:
    file = model(answers=[ANSWER])
    result = hy3("run", "-m", file, "-p", "x", "--mtp", "2")
    assert (result.exit_code, result.stderr) == (
        1,
        f"hy3: error: --mtp 2, and {file} has no MTP layer. Leave --mtp out, or give the layer's file with "
        "--mtp-model.\n",
    )


def test_the_mtp_layers_file_reaches_the_engine(hy3: Run, model: Write) -> None:
    hy3("run", "-m", model(answers=[ANSWER], mtp_layers=1), "-p", "x", "--mtp-model", "layer.gguf")
    assert fake.Model.opened["mtp_model"] == "layer.gguf"


def test_the_speeds_tell_what_became_of_drafts() -> None:
    stats = {"prompt_tokens": 9, "reused_tokens": 0, "generated_tokens": 8, "prompt_s": 1.0, "decode_s": 2.0}
    drafted = {"drafted": 10, "accepted": 5, "drafts": [(5, 4), (4, 1), (0, 0)]}
    assert speeds(stats | drafted) == (
        "prompt 9 tokens, 9.0 tok/s; answer 8 tokens, 4.0 tok/s; 5 of 10 drafts accepted (by depth 80%, 25%)"
    )


def test_options_come_from_the_environment(hy3: Run, model: Write) -> None:
    env = {"HY3_RUN_THREADS": "5", "HY3_RUN_MODEL": str(model(answers=[ANSWER]))}
    assert hy3("run", "-p", "x", env=env).exit_code == 0
    assert fake.Model.opened["threads"] == 5


class Spy:
    """Remembers what the engine was asked to sample with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sampling, self.pos_jump = fake.Sampling(), 0
        generate = fake.Session.generate

        def spying(session: fake.Session, tokens: list[int], **options: Any) -> object:
            self.sampling, self.pos_jump = options["sampling"], options["pos_jump"]
            return generate(session, tokens, **options)

        monkeypatch.setattr(fake.Session, "generate", spying)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def test_a_position_jump_reaches_the_engine(hy3: Run, model: Write, spy: Spy) -> None:
    hy3("run", "-m", model(answers=[ANSWER]), "-p", "x", "--pos-jump", "64k")
    assert spy.pos_jump == 65536


RECOMMENDED = {
    "general.architecture": "hy_v3",
    "general.sampling.temp": 0.9,
    "general.sampling.top_k": 20,
    "general.sampling.top_p": 0.8,
    "general.sampling.min_p": 0.05,
    "general.sampling.penalty_repeat": 1.1,
}


def test_sampling_is_greedy_where_nobody_says_otherwise(hy3: Run, model: Write, spy: Spy) -> None:
    result = hy3("run", "-m", model(answers=[ANSWER]), "-p", "x")
    assert spy.sampling == fake.Sampling()
    assert "seed" not in result.stderr


def test_sampling_is_what_the_file_recommends(hy3: Run, model: Write, spy: Spy) -> None:
    hy3("run", "-m", model(answers=[ANSWER], metadata=RECOMMENDED), "-p", "x", "--seed", 7)
    assert spy.sampling == fake.Sampling(0.9, 20, 0.8, 0.05, 1.1, 7)


def test_options_win_over_the_file(hy3: Run, model: Write, spy: Spy) -> None:
    args = "--temp 0 --top-k 1 --top-p 0.5 --min-p 0.1 --repeat-penalty 1.2"
    hy3("run", "-m", model(answers=[ANSWER], metadata=RECOMMENDED), "-p", "x", *args.split())
    assert spy.sampling == fake.Sampling(0.0, 1, 0.5, 0.1, 1.2, 0)


def test_a_random_seed_is_printed(hy3: Run, model: Write, spy: Spy) -> None:
    result = hy3("run", "-m", model(answers=[ANSWER]), "-p", "x", "--temp", "0.5")
    printed = re.search(r"^hy3: seed (\d+)$", result.stderr, re.MULTILINE)
    assert printed is not None
    assert spy.sampling.seed == int(printed[1])


@pytest.mark.parametrize("value", [-1.0, "hot", True, float("nan")])
def test_a_senseless_recommendation_is_an_error(hy3: Run, model: Write, value: object) -> None:
    metadata = {"general.architecture": "hy_v3", "general.sampling.temp": value}
    result = hy3("run", "-m", model(metadata=metadata), "-p", "x")
    assert result.exit_code == 1
    assert result.stderr == (
        f"hy3: error: The model file's key general.sampling.temp is {value!r}, not a number from 0 to 100. "
        "Give --temp yourself.\n"
    )


def test_a_file_larger_than_free_memory_is_warned_of(
    hy3: Run, model: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hy3.cli.engine.available", lambda: 3 << 30)
    large = model(answers=[ANSWER], tensors=[["a", "f32", [1], 5 << 30]])
    result = hy3("run", "-m", large, "-p", "x")
    assert result.exit_code == 0
    assert (
        f"hy3: warning: {large} needs 5.0 GiB (5.0 GiB weights, 0 KiB KV cache at -c 4096), and 3.0 GiB are "
        "free. It may be very slow or be killed. Close other programs, or use a smaller file (hy3 convert "
        "-t q4_k) or context (-c).\n"
    ) in result.stderr
    small = model(answers=[ANSWER], tensors=[["a", "f32", [1], 2 << 30]])
    assert "warning" not in hy3("run", "-m", small, "-p", "x").stderr


def test_the_default_context_is_not_more_than_the_models(hy3: Run, model: Write) -> None:
    metadata = {"general.architecture": "hy_v3", "hy_v3.context_length": 100}
    hy3("run", "-m", model(answers=[ANSWER], metadata=metadata), "-p", "x")
    assert fake.Model.opened["ctx"] == 100


@pytest.mark.parametrize("args", [["-p", ""], ["-p", " \n"], ["--raw", "-p", ""]])
def test_an_empty_prompt_is_an_error(hy3: Run, model: Write, args: list[str]) -> None:
    result = hy3("run", "-m", model(), *args)
    assert result.exit_code == 1
    assert (
        result.stderr
        == "hy3: error: The prompt is empty. Give some text with -p TEXT, -f FILE or on stdin.\n"
    )


def test_empty_stdin_is_an_error(hy3: Run, model: Write) -> None:
    assert "The prompt is empty" in hy3("run", "-m", model(), input="").stderr


@pytest.mark.parametrize("way", ["stdin", "-f"])
def test_invalid_utf8_becomes_replacement_characters(
    hy3: Run, model: Write, tmp_path: Path, way: str
) -> None:
    data = b"a\xff\xfeb\xe4\xbd"
    file = tmp_path / "latin"
    file.write_bytes(data)
    args = [] if way == "stdin" else ["-f", file]
    result = hy3("run", "-m", model(answers=[ANSWER]), "--raw", *args, input=data)
    assert result.exit_code == 0
    name = "stdin" if way == "stdin" else file
    assert (
        f"hy3: warning: {name} is not valid UTF-8. U+FFFD takes the place of what is not (3 times).\n"
        in result.stderr
    )
    assert "prompt 11 tokens" in result.stderr  # a, b and three characters of three bytes


def test_a_prompt_longer_than_the_context(hy3: Run, model: Write) -> None:
    result = hy3("run", "-m", model(), "-p", "x" * 100, "-c", 64)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "hy3: error: The prompt has 131 tokens, and a context of 64 has no room for it and an answer. "
        "Shorten the prompt, or use -c 512 or more (the model was trained for 1024).\n"
    )


def test_a_prompt_longer_than_the_model_can_take(hy3: Run, model: Write) -> None:
    result = hy3("run", "-m", model(ctx=128), "-p", "x" * 200, "-c", 128)
    assert result.stderr.endswith("has no room for it and an answer. Shorten the prompt.\n")


USAGE = [
    (
        ["-p", "x", "-t", "0"],
        "Invalid value for '-t' / '--threads': 0 is out of range. Leave it out to use all ",
    ),
    (
        ["-p", "x", "-t", "two"],
        "Invalid value for '-t' / '--threads': 'two' is not a whole number. Leave it out",
    ),
    (
        ["-p", "x", "-c", "0"],
        "Invalid value for '-c' / '--ctx': 0 is out of range. Give a number of tokens, such as",
    ),
    (["-p", "x", "-c", "4g"], "Invalid value for '-c' / '--ctx': '4g' is not a whole number. Give a number"),
    (["-p", "x", "--kv", "q2"], "Invalid value for '--kv': 'q2' is not one of 'f32', 'f16', 'q8', 'q4'."),
    (
        ["-p", "x", "--backend", "tpu"],
        "Invalid value for '--backend': 'tpu' is not one of 'auto', 'reference', 'cpu'.",
    ),
    (
        ["-p", "x", "--temp", "-1"],
        "Invalid value for '--temp': -1 is out of range. Give 0 (always the likeliest",
    ),
    (["-p", "x", "--temp", "nan"], "Invalid value for '--temp': nan is out of range."),
    (
        ["-p", "x", "--top-p", "2"],
        "Invalid value for '--top-p': 2 is out of range. Give 0 to 1; 1 is all tokens.",
    ),
    (["-p", "x", "-n", "0"], "Invalid value for '-n' / '--max-tokens': 0 is out of range. Give 1 or more;"),
    (["-p", "x", "--seed", "-1"], "Invalid value for '--seed': -1 is out of range. Give 0 or more."),
    (["-p", "x", "--stop", ""], "Invalid value for '--stop': An empty stop string stops everything."),
    (
        ["-p", "x", "--think", "hard"],
        "Invalid value for '--think': 'hard' is not one of 'off', 'low', 'high'.",
    ),
    (["-p", "x", "-f", "y"], "Both -p and -f give a prompt. Give one of them."),
    (["-p", "x", "--convo", "y"], "Both -p and --convo give a prompt. Give one of them."),
    (["--convo", "y", "--raw"], "--raw has no turns."),
    (["-p", "x", "--pos-jump", "-1"], "Invalid value for '--pos-jump': -1 is out of range."),
    (["-p", "x", "--raw", "--system", "y"], "--raw has no place for a system prompt."),
    (["--frobnicate"], "No such option"),
]


@pytest.mark.parametrize(("args", "message"), USAGE, ids=[" ".join(args) for args, _ in USAGE])
def test_wrong_usage(hy3: Run, model: Write, args: list[str], message: str) -> None:
    result = hy3("run", "-m", model(), *args)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"hy3: error: {message}")
    assert result.stderr.endswith("See `hy3 run --help`.\n")
    assert result.stderr.count("\n") == 1


def test_a_model_that_is_not_there(hy3: Run, tmp_path: Path) -> None:
    result = hy3("run", "-m", tmp_path / "x.gguf", "-p", "x")
    assert result.exit_code == 1
    assert result.stderr == (
        f"hy3: error: There is no file {tmp_path}/x.gguf. "
        "Check the path, or leave out -m to run the bundled model.\n"
    )


def test_a_directory_instead_of_a_model(hy3: Run, tmp_path: Path) -> None:
    result = hy3("run", "-m", tmp_path, "-p", "x")
    assert result.exit_code == 1
    assert result.stderr == (
        f"hy3: error: {tmp_path} is a directory. Give a GGUF file; a checkpoint is converted to one first: "
        f"hy3 convert {tmp_path} -o OUT.gguf.\n"
    )


def test_a_prompt_file_that_is_not_there(hy3: Run, model: Write) -> None:
    result = hy3("run", "-m", model(), "-f", "/nowhere/prompt")
    assert result.exit_code == 1
    assert result.stderr == "hy3: error: /nowhere/prompt: No such file or directory. Check the path.\n"


def test_a_file_of_the_original_engine_is_to_be_converted(hy3: Run, model: Write) -> None:
    file = model(tensors=[["blk.1.ffn_gate_exps.0.gate_proj.weight", "q8_0", [64, 64], 4608]])
    result = hy3("run", "-m", file, "-p", "x")
    assert result.exit_code == 1
    assert result.stderr == (
        f"hy3: error: {file} is in the original hy3 engine's format. Convert it first: "
        f"hy3 convert {file} -o NEW.gguf.\n"
    )


def test_an_engine_error_is_one_line(hy3: Run, model: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise fake.Error("The weights are NaN. Convert the model again.")

    monkeypatch.setattr(fake, "Model", broken)
    result = hy3("run", "-m", model(), "-p", "x")
    assert (result.exit_code, result.stderr) == (
        1,
        "hy3: error: The weights are NaN. Convert the model again.\n",
    )


def test_ctrl_c_shows_what_there_is_and_exits_130(
    hy3: Run, model: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = fake.Session.generate

    def interrupted(*args: object, **options: object) -> Iterator[int]:
        for count, token in enumerate(generate(*args, **options)):  # type: ignore[arg-type]
            if count == 2:
                signal.raise_signal(signal.SIGINT)
            yield token

    monkeypatch.setattr(
        fake.Session, "generate", lambda *args, **options: fake.Generation(interrupted(*args, **options))
    )
    result = hy3("run", "-m", model(answers=["123456"]), "-p", "x")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "12\n", "\nhy3: interrupted\n")


def test_an_unknown_command_lists_those_there_are(hy3: Run) -> None:
    result = hy3("frobnicate")
    assert result.exit_code == 2
    assert result.stderr == (
        "hy3: error: There is no command 'frobnicate'. There are: run, chat, convert, inspect, tokenize, "
        "imatrix, bench, eval, serve. See `hy3 --help`.\n"
    )


def test_version(hy3: Run) -> None:
    result = hy3("--version")
    assert (result.exit_code, result.stdout) == (
        0,
        "hy3 0.0\n"
        "backends: reference, cpu\n"
        "instruction set: scalar (this build and machine have: scalar, avx2)\n",
    )
