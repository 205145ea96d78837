"""The threads of a model: how many there are, that they rest when there is nothing to do, and fork()."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.compare import same_bytes
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model

import hy3core

CONFIG = make_config()
TOKENS = make_tokens(CONFIG, 200, seed=41)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("threads") / "model.gguf"
    write_model(file, CONFIG, make_weights(CONFIG, seed=40), in_type("f16"))
    return str(file)


def test_idle_threads_use_no_time(path: str) -> None:
    """Waiting for the user's next line must not warm the room: over a second, less than 10 ms."""
    model = hy3core.Model(path, threads=4)
    session = model.session(ctx=256)
    session.eval(TOKENS)
    time.sleep(0.05)
    begin = time.process_time()
    time.sleep(1)
    assert time.process_time() - begin < 0.01


def test_threads_default_to_the_cores_that_the_process_may_use(path: str) -> None:
    assert 1 <= hy3core.Model(path).threads <= len(os.sched_getaffinity(0))
    code = (
        "import os, sys, hy3core\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "print(hy3core.Model(sys.argv[1]).threads)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # multi-threaded, use of fork()
def test_a_forked_child_computes_the_same(path: str, tmp_path: Path) -> None:
    model = hy3core.Model(path, threads=3)
    session = model.session(ctx=256)
    expected = session.eval(TOKENS)
    session.reset()
    out = tmp_path / "logits.npy"
    child = os.fork()
    if child == 0:
        try:
            np.save(out, session.eval(TOKENS))
        finally:
            os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert same_bytes(np.load(out), expected)
    assert same_bytes(session.eval(TOKENS), expected)
