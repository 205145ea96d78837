"""One GGUF loaded by llama.cpp, in a process of its own: llama.cpp ends the process on some errors."""

import json
import subprocess
from pathlib import Path
from typing import Any

from eval.peer import PEER_PYTHON

PROGRAM = """
import ctypes, json, sys
import numpy as np
import llama_cpp as c

path, run = sys.argv[1], sys.argv[2] == "run"
c.llama_backend_init()
params = c.llama_model_default_params()
params.use_extra_bufts = False  # repacked for AMX it dies on machines that announce AMX and do not grant it
model = c.llama_model_load_from_file(path.encode(), params)
if not model:
    sys.exit("not loaded")
vocab = c.llama_model_get_vocab(model)
text = sys.argv[3].encode()
tokens = (c.llama_token * 512)()
count = c.llama_tokenize(vocab, text, len(text), tokens, 512, False, True)
finite = None
if run:
    options = c.llama_context_default_params()
    options.n_ctx, options.n_threads, options.n_threads_batch = 64, 1, 1
    context = c.llama_init_from_model(model, options)
    assert c.llama_decode(context, c.llama_batch_get_one(tokens, count)) == 0
    logits = np.ctypeslib.as_array(c.llama_get_logits_ith(context, -1), (c.llama_vocab_n_tokens(vocab),))
    finite = bool(np.isfinite(logits).all()) and float(logits.std()) > 0
print("RESULT", json.dumps({
    "vocab": c.llama_vocab_n_tokens(vocab), "tokens": list(tokens[:count]), "finite": finite,
    "bos": c.llama_vocab_bos(vocab), "eos": c.llama_vocab_eos(vocab), "eot": c.llama_vocab_eot(vocab),
    "adds_bos": bool(c.llama_vocab_get_add_bos(vocab)), "layers": c.llama_model_n_layer(model),
}))
"""


def load(path: Path, text: str = "the in", run: bool = True) -> dict[str, Any]:
    argv = [PEER_PYTHON, "-c", PROGRAM, str(path), "run" if run else "load", text]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return result
