"""Answers of a given form: JSON, JSON by a schema, calls of given tools. Needs the package `llguidance`.

A `Grammars` belongs to a model and makes a `Constraint` for each answer, whose `mask` tells the scheduler
which tokens may come next. Text is made of ordinary tokens only: control tokens, tags and padding cannot end
up in a JSON string. An end token is allowed exactly where the answer may end.

Schemas come from clients. Their size and depth are limited (hy3.serve.schema), and so is the work that they
make for llguidance: in each step by LIMITS, and what is compiled here has been compiled in a process apart
before (hy3.serve.grammar_trial).
"""

import atexit
import time
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from hy3.errors import Hy3Error
from hy3.serve import grammar_trial
from hy3.serve.call_grammar import Calls, Problem, grammar_of_calls, tag_tokens
from hy3.serve.schema import SchemaError, check_size, json_of
from hy3.serve.steer import all_tokens
from hy3.worker import Worker, WorkerError

if TYPE_CHECKING:
    import llguidance

    from hy3core import Model

ORDINARY = 1  # of GGUF's token types: text, not a control token, a tag or padding
SECONDS = 10.0  # to try all grammars of a request; grammar_trial ends most sooner
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 20_000,  # each takes 1 to 2 kB
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}


Tools = Mapping[int, Mapping[str, Any]]  # in OpenAI's form, by their number in the request
NO_TOOLS: Tools = {}


class Constraint:
    """The form of one answer. Belongs to one thread at a time."""

    def __init__(self, matcher: "llguidance.LLMatcher", vocab_size: int, ends: bytes) -> None:
        self._matcher = matcher
        self._nbytes = len(all_tokens(vocab_size))
        self._ends = ends
        self._seen: tuple[int, ...] = ()  # what the matcher has consumed

    def mask(self, ids: Sequence[int]) -> bytes:
        """The tokens that may follow `ids`, the answer so far, as bits. In whatever order it is asked, also
        for drafts that came to nothing. After ids that do not fit only an end token is allowed."""
        if not self._consume(tuple(ids)):
            return self._ends
        bits = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise Hy3Error(f"The form of the answer is too costly: {_terse(self._matcher.get_error())}")
        return bits[: self._nbytes]

    def copy(self) -> "Constraint":
        """For another answer of the same form, from its beginning."""
        matcher = self._matcher.deep_copy()
        matcher.reset()
        return Constraint(matcher, self._nbytes * 8, self._ends)

    def _consume(self, ids: tuple[int, ...]) -> bool:
        """Whether the grammar allows the ids. What the matcher has seen of them is not read again."""
        common = _common_prefix(self._seen, ids)
        if common < len(self._seen):
            self._matcher.rollback(len(self._seen) - common)
        taken = self._matcher.try_consume_tokens(list(ids[common:]))
        self._seen = ids[: common + taken]
        return len(self._seen) == len(ids)


def _common_prefix(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    if b[: len(a)] == a:
        return len(a)
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class Grammars:
    """What answers of one model may be made to look like."""

    def __init__(self, model: "Model") -> None:
        try:
            import llguidance
        except ImportError:
            raise Hy3Error(
                "Answers of a given form need the package llguidance", "Install `hy3[structured]`"
            ) from None
        self._limits = llguidance.LLParserLimits(**LIMITS)
        self._vocab_size = model.config.vocab_size
        self._tokenizer = _ll_tokenizer(model)
        self._tags = tag_tokens(model.tokenizer)
        self._ends = _bits(model.tokenizer.eos_ids, self._vocab_size)

    def for_json_object(self, tools: Tools = NO_TOOLS, several: bool = True) -> Constraint:
        return self.for_schema({"type": "object"}, True, tools, several)

    def for_schema(
        self,
        schema: Mapping[str, Any] | bool,
        strict: bool = False,
        tools: Tools = NO_TOOLS,
        several: bool = True,
    ) -> Constraint:
        """JSON by a schema; if there are tools, that or calls of them. strict: an error for keywords that
        cannot be enforced; else those are ignored."""
        check_size(schema)
        value = f"%json {json_of(schema, strict)}"
        if problem := _tried(f"start: {value}", written=True):
            raise SchemaError(f"It cannot be enforced: {problem}", "Change it")
        if not tools:
            return self._constraint(f"start: {value}")
        calls = self._calls(tools, several)
        return self._constraint(f"start: {value} | {calls.body}\n{calls.rules}")

    def for_tools(self, tools: Tools, several: bool = True) -> Constraint:
        """A call, or several, of any of the tools and nothing else."""
        calls = self._calls(tools, several)
        return self._constraint(f"start: {calls.body}\n{calls.rules}")

    def _calls(self, tools: Tools, several: bool) -> Calls:
        check_size(list(tools.values()))
        if self._tags is None:
            raise SchemaError("The tags of tool calls are no tokens of this model", "Leave the choice to it")
        return grammar_of_calls(self._tags, tools, several, self._problem())

    def _constraint(self, grammar: str) -> Constraint:
        problem = _tried(grammar, written=False)
        matcher = None if problem else self._matcher(grammar)
        if matcher is None or (problem := _problem_of(matcher)):
            raise SchemaError(f"The schemas together cannot be enforced: {problem}", "Make them smaller")
        return Constraint(matcher, self._vocab_size, self._ends)

    def _problem(self) -> Problem:
        """For the grammars of one request, which have their time together."""
        deadline = time.monotonic() + SECONDS

        def problem(grammar: str) -> str:
            if time.monotonic() > deadline:
                raise SchemaError(f"The schemas take longer than {SECONDS:g} seconds", "Make them simpler")
            return _tried(grammar, written=True)

        return problem

    def _matcher(self, grammar: str) -> "llguidance.LLMatcher":
        import llguidance

        return llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)


@lru_cache(maxsize=4)
def grammars_of(model: "Model") -> Grammars:
    return Grammars(model)


class _Wrapped:
    """A tokenizer as llguidance wants it."""

    def __init__(self, model: "Model") -> None:
        tokenizer = model.tokenizer
        types = model.metadata.get("tokenizer.ggml.token_type") or [ORDINARY] * tokenizer.vocab_size
        self._tokenizer = tokenizer
        self.eos_token_id = tokenizer.eos_ids[0]
        self.bos_token_id = tokenizer.bos_id
        # Padding has no text, and what has none would be taken for the beginning of every special token.
        self.tokens = [tokenizer.piece(i) or b"<unused %d>" % i for i in range(tokenizer.vocab_size)]
        self.special_token_ids = [i for i, kind in enumerate(types) if kind != ORDINARY]

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text, special=False)


def _ll_tokenizer(model: "Model") -> "llguidance.LLTokenizer":
    import llguidance

    return llguidance.LLTokenizer(
        llguidance.TokenizerWrapper(_Wrapped(model)),
        n_vocab=model.config.vocab_size,
        eos_token=model.tokenizer.eos_ids,
    )


@lru_cache(maxsize=256)
def _tried(grammar: str, written: bool) -> str:
    """What is wrong with a grammar, found out in a process apart."""
    try:
        answer = _worker().ask({"grammar": grammar, "limits": LIMITS, "written": written})
    except WorkerError as error:
        raise SchemaError(f"Compiling the schema failed: {error.reason}", "Make it simpler") from None
    return _terse(answer["problem"])


@cache
def _worker() -> Worker:
    worker = Worker(grammar_trial.__file__, SECONDS, 1 << 20, "it takes too much time or memory")
    atexit.register(worker.close)
    return worker


def _problem_of(matcher: "llguidance.LLMatcher") -> str:
    """Why nothing can be written by a grammar; "" if something can."""
    if not matcher.is_error():
        matcher.compute_bitmask()
    return _terse(matcher.get_error()) if matcher.is_error() else ""


def _terse(error: str) -> str:
    """llguidance's first words; what follows is its own state, or the grammar that we made."""
    return error.split("\n", 1)[0].removesuffix("<state>").strip()


def _bits(tokens: Sequence[int], vocab_size: int) -> bytes:
    bits = bytearray(len(all_tokens(vocab_size)))
    for token in tokens:
        bits[token // 8] |= 1 << token % 8
    return bytes(bits)
