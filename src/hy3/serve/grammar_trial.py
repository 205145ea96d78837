"""Compiles grammars in a process of its own: llguidance bounds most of that work, but not all of it (patterns
in an allOf, many properties), and nothing in the same process could interrupt it.

Run by path (`python -I grammar_trial.py`), as hy3.worker wants it. In: {"grammar", "limits", "written"}; out:
{"problem"}, "" if there is none. written: whether anything can be written by it, for grammars without tokens.
"""

import json
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

SECONDS = 2.0  # of processor time
MAX_MEMORY = 1 << 30  # bytes of address space


class Bytes:
    """A vocabulary of the 256 bytes and an end, as llguidance wants it."""

    eos_token_id = 256
    bos_token_id = None
    tokens = [bytes([i]) for i in range(256)] + [b"<end>"]
    special_token_ids = [256]  # noqa: RUF012

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def problem_of(request: Mapping[str, Any], tokenizer: Any) -> str:
    import llguidance

    limits = llguidance.LLParserLimits(**request["limits"])
    if not request["written"]:
        return llguidance.LLMatcher.validate_grammar(request["grammar"], limits=limits)
    matcher = llguidance.LLMatcher(tokenizer, request["grammar"], log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    return matcher.get_error()


def serve() -> None:
    import llguidance

    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, whatever it is doing
    print("{}", flush=True)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        problem = problem_of(json.loads(line), tokenizer)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"problem": problem}), flush=True)


if __name__ == "__main__":
    serve()
