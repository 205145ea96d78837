"""Types and documentation of the compiled module. Arrays are NumPy, C-contiguous."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer  # collections.abc has it from 3.12 on

version: str

class Error(Exception):
    """What the engine refuses or cannot do. The message reads "WHAT. HINT."."""

class FormatError(Error, ValueError):
    """A file is broken; the message names the file and the key or tensor."""

class UnsupportedError(Error):
    """Valid, but not something this engine does."""

class OutOfMemoryError(Error, MemoryError):
    """The memory for what was asked is not there."""

class ContextFullError(Error):
    """More tokens than the session's context holds."""

class InvalidArgumentError(Error, ValueError):
    """An argument makes no sense; the message names it."""

class FileError(Error, OSError):
    """The operating system refuses a file."""

class TypeInfo(NamedTuple):
    """A tensor type: `block` elements take `nbytes` bytes."""

    name: str
    id: int
    block: int
    nbytes: int
    quantizable: bool
    dequantizable: bool

class TensorInfo(NamedTuple):
    """A tensor of a file. shape[0] is the row length; offset counts from the start of its file."""

    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int

class Config(NamedTuple):
    """A model's shapes and constants."""

    n_layers: int
    n_mtp_layers: int
    hidden_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    ffn_size: int
    n_experts: int
    n_experts_used: int
    n_shared_experts: int
    expert_ffn_size: int
    shared_ffn_size: int
    vocab_size: int
    ctx: int
    rms_eps: float
    rope_theta: float
    rope_factor: float
    router_scale: float
    route_norm: bool
    gating: Literal["sigmoid", "softmax"]
    tied_head: bool

def backends() -> list[dict[str, Any]]:
    """What this build and machine offer, the preferred one first: name, device, memory (bytes)."""

def build_info() -> dict[str, Any]:
    """version, backends (names), isa (the instruction set in use), isas (those that can run here).

    Raises InvalidArgumentError when the environment variable HY3_ISA names one that cannot run here.
    """

class MachineSpeed(NamedTuple):
    """What a machine can do at most, a second: bytes read from memory; int8 multiplications and additions."""

    read_bytes: float
    int8_ops: float

def measure_machine(threads: int = 0, span: int = 4 << 30) -> MachineSpeed:
    """The best of five reads of `span` bytes, and of five runs of int8 products, by all threads together.

    threads 0: one per physical core. Takes a second or two, and `span` bytes of memory.
    """

def types() -> dict[str, TypeInfo]:
    """Tensor types by name ("q4_k")."""

def dequantize(data: Buffer, type: str, n: int) -> NDArray[np.float32]:
    """float32[n] of n elements of a type; `data` must have exactly their bytes."""

def quantize(values: ArrayLike, type: str, importance: ArrayLike | None = None) -> bytes:
    """Rows of a type from float32[rows, n].

    importance: float32[n], the weight of each column's squared error.
    """

def convert_rows(
    src: Buffer,
    src_type: str,
    dst_type: str,
    rows: int,
    cols: int,
    out: Buffer,
    importance: ArrayLike | None = None,
    threads: int = 0,
) -> None:
    """(rows, cols) from one type to another into `out`, on `threads` threads (0: all cores).

    The result does not depend on the number of threads. Raises InvalidArgumentError for NaN and infinity.
    """

def gguf_header(
    metadata: Iterable[tuple[str, str, Any]],
    tensors: Iterable[tuple[str, str, Sequence[int]]],
    alignment: int = 32,
) -> tuple[bytes, list[int], int]:
    """The header of a GGUF v3 file, each tensor's offset in the data section, and that section's size.

    metadata: (key, kind, value), kind one of u8 i8 u16 i16 u32 i32 f32 bool str u64 i64 f64, or "[kind]" for
    a list.
    tensors: (name, type, shape), shape[0] the row length.
    """

def rebuild_merges(tokens: Sequence[str], types: Sequence[int] | None = None) -> list[str]:
    """The BPE merges that a vocabulary without any implies: "LEFT RIGHT", most urgent first."""

class GGUF:
    """A GGUF file, read only. Of a split model, give the first file."""

    def __init__(self, path: str | PathLike[str], *, use_mmap: bool = True) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def paths(self) -> tuple[str, ...]: ...
    def file_of(self, name: str) -> int:
        """Which of `paths` the tensor is in. KeyError when there is none of that name."""
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def kinds(self) -> Mapping[str, str]:
        """The stored kind of each key, spelled as in gguf_header()."""
    @property
    def tensors(self) -> list[TensorInfo]: ...
    @property
    def dialect(self) -> Literal["standard", "hy3_original"]: ...
    @property
    def alignment(self) -> int: ...
    def tensor(self, name: str) -> memoryview:
        """The tensor's bytes in place, read-only. KeyError when there is none."""

class Tokenizer:
    """Text to token ids and back. May be shared by threads."""

    def __init__(self, path: str | PathLike[str] | GGUF) -> None: ...
    def encode(self, text: str | bytes, special: bool = True, bos: bool = False) -> list[int]:
        """special: texts of control tokens become their ids. Bytes that are no UTF-8 become U+FFFD."""
    def decode(self, ids: ArrayLike, special: bool = False) -> str:
        """Control tokens are left out unless `special`."""
    def piece(self, id: int) -> bytes: ...
    def token_id(self, text: str | bytes) -> int | None: ...
    def is_control(self, id: int) -> bool: ...
    def stream_decoder(self, special: bool = False) -> StreamDecoder: ...
    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_ids(self) -> list[int]:
        """Every id that ends a generation, ascending."""
    @property
    def vocab_size(self) -> int: ...

class StreamDecoder:
    """Text of ids as they come; holds back the bytes of an unfinished character."""

    def __init__(self, tokenizer: Tokenizer, special: bool = False) -> None: ...
    def push(self, id: int) -> str: ...
    def finish(self) -> str: ...

class Sampling:
    """How the next token is chosen. Order: repetition penalty (each distinct token of the last 64 once),
    temperature (0: greedy), top-k, top-p, min-p. The draw depends on (seed, choice, position) alone."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    seed: int
    choice: int
    def __init__(
        self,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repeat_penalty: float = 1.0,
        seed: int = 0,
        choice: int = 0,
    ) -> None: ...

def sample(
    logits: ArrayLike,
    sampling: Sampling,
    recent: ArrayLike = (),
    position: int = 0,
    choice: int | None = None,
) -> int:
    """The token that a generation with these logits, tokens so far and position would draw."""

class Model:
    """A model ready to run. May be shared by threads; their steps take turns.

    backend: "auto", "cpu" or "reference" (plain float32, the oracle). threads 0: one per physical core.
    experts 0: the file's number per token. rope_factor 0: RoPE as the file says; 1 is the plain table, more
    turns YaRN on. rope_ctx is the context the model was trained at, which YaRN stretches (0: the file's);
    with the other rope_ settings 0 means the file's, else what YaRN has usually: 0.1 ln(factor) + 1, 32, 1.
    mtp_model: a file with only the MTP layer, for a model whose own has none.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        backend: str = "auto",
        threads: int = 0,
        gpu_layers: int = -1,
        experts: int = 0,
        rope_factor: float = 0.0,
        rope_ctx: int = 0,
        *,
        rope_attention_factor: float = 0.0,
        rope_beta_fast: float = 0.0,
        rope_beta_slow: float = 0.0,
        use_mmap: bool = True,
        mlock: bool = False,
        mtp_model: str | PathLike[str] | None = None,
    ) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def config(self) -> Config: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def tensors(self) -> list[TensorInfo]: ...
    @property
    def gguf(self) -> GGUF: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def rope(self) -> tuple[NDArray[np.float32], float]:
        """float32[head_dim / 2], RoPE's inverse frequencies, and the factor on its cosines and sines."""
    @property
    def backend(self) -> str: ...
    @property
    def threads(self) -> int: ...
    def session(self, ctx: int = 0, kv: KvType = "f16", chunk: int = 512, mtp: bool = False) -> Session:
        """ctx 0: the model's. kv: type of the key/value cache; q8 is int8 with a scale per head and token,
        q4 is 4 bits with a scale per 32 columns. chunk: rows of a prompt computed at once. mtp: keep the MTP
        layer's cache.
        """
    def collect_importance(self) -> ImportanceCollector:
        """From now to the end of its `with` block, sums the squares of what goes into each weight."""

class ImportanceCollector:
    """Observes every step of a model. One at a time for a model; InvalidArgumentError for a second one."""

    def __enter__(self) -> ImportanceCollector: ...
    def __exit__(self, *_: object) -> None: ...
    @property
    def names(self) -> tuple[str, ...]:
        """GGUF names of the weights that are observed."""
    def sums(self, name: str) -> NDArray[np.float64]:
        """float64[n, cols]: squares of what each column was multiplied by, for n experts or 1.

        Do not ask while a step runs; one that was interrupted has left part of its rows. FormatError when a
        sum is not finite.
        """
    def counts(self, name: str) -> NDArray[np.int64]:
        """int64[n]: rows that went into the sums."""

class ImportanceMatrix:
    """A file of `hy3 imatrix` or of llama.cpp (GGUF or .dat), checked in full when it is opened."""

    def __init__(self, path: str | PathLike[str]) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]:
        """Of the weights it has data for, ascending."""
    @property
    def datasets(self) -> tuple[str, ...]: ...
    @property
    def chunks(self) -> int:
        """Of text that it was made of; 0 where the file does not say."""
    def mean_squares(
        self, name: str, cols: int, n_matrices: int = 1, matrix: int | None = 0
    ) -> NDArray[np.float32] | None:
        """float32[cols], the mean square of what each column of matrix (expert) number `matrix` was
        multiplied by; over all of them for None. None when there is no data. KeyError for another name,
        FormatError when the file has another size for it.
        """

KvType = Literal["f32", "f16", "q8", "q4"]
LogitsWanted = Literal["none", "last", "all"]

class Session:
    """One sequence of tokens and its key/value cache. Belongs to one thread at a time.

    A call that fails or is interrupted leaves the session as it was.
    """

    @property
    def model(self) -> Model: ...
    @property
    def ctx(self) -> int: ...
    @property
    def kv(self) -> str: ...
    @property
    def chunk(self) -> int: ...
    @property
    def mtp(self) -> bool: ...
    def eval(self, tokens: ArrayLike, logits: LogitsWanted = "last") -> NDArray[np.float32] | None:
        """Appends the tokens. "last": float32[vocab]; "all": float32[n, vocab]; "none": None."""
    def score(self, tokens: ArrayLike) -> NDArray[np.float32]:
        """Appends the tokens; float32[n], the log-probability of each given all before it.

        NaN for the first token of an empty session, which nothing precedes.
        """
    @property
    def hidden(self) -> NDArray[np.float32]:
        """float32[hidden]: post-norm state of the last position."""
    def mtp_logits(self, token: int) -> NDArray[np.float32]:
        """float32[vocab]: the MTP layer's logits for the token after `token`, were `token` the next one."""
    def fork(self) -> Session:
        """A second session with the same content; the cache's pages are shared until one of them writes."""
    @property
    def position(self) -> int: ...
    @property
    def kv_nbytes(self) -> int:
        """Bytes of the key/value cache as long as it is now, pages shared with forks included."""

    @property
    def tokens(self) -> list[int]: ...
    def truncate(self, n: int) -> None:
        """Forgets all but the first n tokens, and the jumps after them."""
    def jump(self, n: int) -> None:
        """Puts the tokens to come n positions further away from those so far, for RoPE alone.

        Between them are no keys, and the cache has no gap: position and ctx go on counting tokens.
        """
    def save(self, path: str | PathLike[str], extra: Buffer = b"") -> None:
        """The whole state in a file, with `extra` beside it; written aside and renamed."""
    def load(self, path: str | PathLike[str]) -> bytes:
        """Goes on from a saved state, bit for bit, without evaluating its tokens; returns its `extra`.

        Refused for another model, backend, KV type or mtp than it was saved with (UnsupportedError), for a
        file that is incomplete or damaged (FormatError) and one with more tokens than ctx (ContextFullError).
        """
    def reset(self) -> None: ...
    @property
    def stats(self) -> dict[str, Any]:
        """Of the last generation: prompt_tokens, reused_tokens, generated_tokens, prompt_s, decode_s, drafted
        and accepted, finish_reason ("stop", "length", or None while it runs) and stop_id (or None).

        drafts: for each depth (judged, right), judged being the drafts that came to the test, which those
        after a wrong one do not.
        """
    def generate(
        self,
        tokens: ArrayLike,
        max_tokens: int = 64,
        sampling: Sampling | None = None,
        stop_ids: Iterable[int] | None = None,
        mtp: int = 0,
        mtp_always: bool = False,
        pos_jump: int = 0,
    ) -> Generation:
        """Ids after `tokens`, the whole text so far; the longest prefix already in the context is reused.

        Ends at any of stop_ids (None: the tokenizer's eos_ids), which is not among the ids returned, or after
        max_tokens. mtp: the most tokens that the MTP layer drafts for a step, in a session made with
        mtp=True; -1: as many as pay, none in other sessions. The ids are the same with and without.
        mtp_always: draft that many for every step, whether it pays or not, for measuring. pos_jump: what
        follows `tokens` is that many positions further on, as after jump().
        """

class Generation(Iterator[int]):
    """Iterator over the ids of one generation. After an interrupt it can be continued."""

    def __next__(self) -> int: ...
    def prefill(self) -> bool:
        """Evaluates a chunk of the prompt, unless it is the last one, which is __next__'s; whether it did.

        For who wants to show progress: `while generation.prefill(): show(session.position)`.
        """

def step(items: Iterable[tuple[Session, ArrayLike, LogitsWanted]]) -> list[NDArray[np.float32] | None]:
    """One step over several sessions of one model; what each wants, in order."""

Mask = Callable[[tuple[int, ...]], Buffer]

class Event(NamedTuple):
    """A token of a request, its end, or both."""

    request: int
    token: int | None
    logprob: float | None
    top: list[tuple[int, float]] | None
    """The most likely tokens and their log-probabilities, descending."""
    finish: Literal["stop", "length", "cancelled", "error"] | None
    error: str | None
    usage: dict[str, Any] | None
    """With the end: prompt_tokens, cached_tokens (of the prompt, reused), generated_tokens, prompt_s,
    decode_s, drafted, accepted, and prompt_logprobs: None unless asked for, else for each prompt token but
    the first (logprob, top), and None for that one.
    """

class Scheduler:
    """Continuous batching: many requests share each step, and each gets the answer that it would get alone.

    ctx: tokens of a request, its answer included (0: the model's). kv_budget: tokens of all requests and kept
    conversations (0: what max_running requests can fill); to within a page of 64 for each request.
    max_running: requests that share a step; the others wait. max_gap: seconds that a step with rows of
    prompts may keep others from their next token, about. mtp: keep the MTP layer's cache, so that requests
    can draft.
    """

    def __init__(
        self,
        model: Model,
        ctx: int = 0,
        kv: KvType = "f16",
        chunk: int = 512,
        kv_budget: int = 0,
        max_running: int = 16,
        max_gap: float = 0.25,
        mtp: bool = False,
    ) -> None: ...
    @property
    def model(self) -> Model: ...
    @property
    def ctx(self) -> int: ...
    def submit(
        self,
        tokens: ArrayLike,
        *,
        max_tokens: int,
        sampling: Sampling | None = None,
        stop_ids: Iterable[int] | None = None,
        logit_bias: Mapping[int, float] | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        top_logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        mask: Mask | None = None,
        mtp: int = 0,
    ) -> int:
        """Queues a request and returns its number. Any thread.

        max_tokens is cut to the room that the context leaves; ContextFullError if there is none. stop_ids:
        None is the tokenizer's eos_ids. mask: called in the stepping thread with the tokens generated so far
        (drafts that may turn out wrong included); returns ceil(vocab / 32) * 4 bytes, in which bit i % 8 of
        byte i // 8 allows token i. What it raises ends the request with an error. mtp as in
        Session.generate; requests draft only while no other one runs.
        """
    def cancel(self, request: int) -> None:
        """Ends a request before the next step, unless it has ended. Any thread."""
    def step(self) -> list[Event]:
        """One step for all requests; [] at once when there are none. One thread at a time.

        An end token is no event's token. After an interrupt or an error the requests are as before.
        """
    @property
    def stats(self) -> dict[str, int]:
        """running, waiting, kv_tokens (in whole pages), kv_budget, prompt_tokens, reused_tokens,
        generated_tokens, drafted, accepted, steps, preempted. Any thread.
        """
