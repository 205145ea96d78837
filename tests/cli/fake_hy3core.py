"""A stand-in for `hy3core` whose answers are written down beforehand, for tests of what a chat does with
them.

A real model cannot be told to sample `1` `2` where the tokenizer would write `12`, to stop inside a
character, or to fill its context on a given turn. Everything that does not need such a script is tested on
the real engine.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

BOS, EOS, USER, ASSISTANT, MODE, THINK, END_THINK = (
    "<｜hy_begin_of_sentence:opensource｜>",
    "<｜hy_eos:opensource｜>",
    "<｜hy_User:opensource｜>",
    "<｜hy_Assistant:opensource｜>",
    "<｜reasoning_mode:opensource｜>",
    "<think:opensource>",
    "</think:opensource>",
)
SPECIAL = [BOS, EOS, USER, ASSISTANT, MODE, THINK, END_THINK]
MERGED = ["12", "hello", " world"]  # what encode writes as one token, and a script may write as bytes

version = "0.0"


class Error(Exception):
    pass


class ContextFullError(Error):
    pass


def build_info() -> dict[str, Any]:
    return {"isa": "scalar", "isas": ["scalar", "avx2"], "backends": ["reference", "cpu"]}


class StreamDecoder:
    def __init__(self, tokenizer: "Tokenizer", special: bool) -> None:
        self.tokenizer, self.special, self.held = tokenizer, special, b""

    def push(self, token: int) -> str:
        if token < len(SPECIAL) and not self.special:
            return ""
        self.held += self.tokenizer.piece(token)
        for length in range(len(self.held), len(self.held) - 4, -1):
            try:
                text = self.held[:length].decode()
            except UnicodeDecodeError:
                continue
            self.held = self.held[length:]
            return text
        text, self.held = self.held.decode("utf-8", "replace"), b""
        return text

    def finish(self) -> str:
        text, self.held = self.held.decode("utf-8", "replace"), b""
        return text


class Tokenizer:
    """Special tokens, then the 256 bytes, then MERGED; encode takes the longest match."""

    pieces = (
        [text.encode() for text in SPECIAL] + [bytes([b]) for b in range(256)] + [m.encode() for m in MERGED]
    )
    bos_id, eos_ids, vocab_size = 0, [1], len(pieces)

    def __init__(self, path: str = "") -> None:
        pass

    def encode(self, text: str, special: bool = True, bos: bool = False) -> list[int]:
        data, ids = text.encode(), [self.bos_id] if bos else []
        known = self.pieces if special else self.pieces[len(SPECIAL) :]
        while data:
            best = max((piece for piece in known if data.startswith(piece)), key=len)
            ids.append(self.pieces.index(best))
            data = data[len(best) :]
        return ids

    def spell(self, text: str) -> list[int]:
        """As bytes and special tokens only: other ids than `encode` gives wherever MERGED has something."""
        ids = []
        while text:
            special = next((s for s in SPECIAL if text.startswith(s)), None)
            ids += [SPECIAL.index(special)] if special else [len(SPECIAL) + b for b in text[0].encode()]
            text = text[len(special or text[0]) :]
        return ids

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        kept = [token for token in ids if special or token >= len(SPECIAL)]
        return b"".join(map(self.piece, kept)).decode("utf-8", "replace")

    def piece(self, token: int) -> bytes:
        return self.pieces[token]

    def token_id(self, text: str) -> int | None:
        return self.pieces.index(text.encode()) if text.encode() in self.pieces else None

    def stream_decoder(self, special: bool = False) -> StreamDecoder:
        return StreamDecoder(self, special)


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    seed: int = 0


@dataclass
class Session:
    """`script`: per answer, the ids to give out; an exception among them is raised in its place."""

    ctx: int = 4096
    script: list[list[int | BaseException]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    prefilled: list[list[int]] = field(default_factory=list)  # per answer, the ids that had to be computed
    samplings: list[Sampling] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    mtp: ClassVar[int]  # that the last answer was asked for with

    @property
    def position(self) -> int:
        return len(self.tokens)

    def generate(
        self,
        tokens: Sequence[int],
        max_tokens: int = 64,
        sampling: Any = None,
        mtp: int = 0,
        pos_jump: int = 0,
    ) -> "Generation":
        return Generation(self.answer(tokens, max_tokens, sampling, mtp))

    def answer(self, tokens: Sequence[int], max_tokens: int, sampling: Any, mtp: int) -> Iterator[int]:
        same = 0
        while same < min(len(tokens) - 1, len(self.tokens)) and self.tokens[same] == tokens[same]:
            same += 1
        Session.mtp = mtp
        self.prefilled.append(list(tokens[same:]))
        self.samplings.append(sampling)
        self.tokens = list(tokens)
        self.stats = {
            "prompt_tokens": len(tokens),
            "reused_tokens": same,
            "generated_tokens": 0,
            "prompt_s": 0.5,
            "decode_s": 0.25,
            "drafted": 0,
            "accepted": 0,
            "drafts": [],
            "finish_reason": None,
        }
        for token in self.script.pop(0)[:max_tokens]:
            if isinstance(token, BaseException):
                raise token
            if token in Tokenizer.eos_ids:  # not given out, as in the engine
                self.stats["finish_reason"] = "stop"
                return
            self.stats["generated_tokens"] += 1
            yield token
            self.tokens.append(token)  # computed only when the next one is asked for
        self.stats["finish_reason"] = "length"


class Generation:
    def __init__(self, answer: Iterator[int]) -> None:
        self._answer = answer

    def __iter__(self) -> "Generation":
        return self

    def __next__(self) -> int:
        return next(self._answer)

    def prefill(self) -> bool:
        return False


class GGUF:
    """The file is JSON: {"metadata": {...}, "tensors": [[name, type, shape, nbytes], ...], "answers": [text,
    ...]}."""

    def __init__(self, path: str) -> None:
        self.file = json.loads(Path(path).read_text())
        self.metadata = self.file.get("metadata", {})
        self.tensors = [
            SimpleNamespace(name=name, type=kind, shape=tuple(shape), nbytes=nbytes)
            for name, kind, shape, nbytes in self.file.get("tensors", [])
        ]


class Model(GGUF):
    opened: dict[str, Any]

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path)
        Model.opened = options
        self.tokenizer = Tokenizer()
        self.config = SimpleNamespace(
            ctx=self.file.get("ctx", 1024), n_mtp_layers=self.file.get("mtp_layers", 0)
        )

    def session(self, ctx: int, kv: str, chunk: int, mtp: bool) -> Session:
        Model.opened |= {"ctx": ctx, "kv": kv, "chunk": chunk, "mtp": mtp}
        answers = self.file.get("answers", [])
        return Session(ctx=ctx, script=[[*self.tokenizer.spell(text)] for text in answers])
