"""The parts of an answer as the events of Anthropic's Messages, and as the message that they make up."""

import hashlib
import json
import secrets
from collections.abc import Sequence
from typing import Any

from hy3.serve.answer import CallArguments, CallStart, Part, ReasoningDelta, TextDelta, TokenScore

Event = dict[str, Any]


class MessageWriter:
    """`begin`, `write` each part, `end`. The events are what is streamed; `message` is the answer in one."""

    def __init__(self, model: str, input_tokens: int) -> None:
        self.message: dict[str, Any] = {
            "id": "msg_" + secrets.token_hex(12),
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "usage": usage(input_tokens),
        }
        self._open: dict[str, Any] | None = None  # the block under way, the last of the content
        self._input = ""  # the arguments so far, should it be a call

    def begin(self) -> list[Event]:
        return [{"type": "message_start", "message": {**self.message, "content": []}}, PING]

    def write(self, part: Part) -> list[Event]:
        if isinstance(part, ReasoningDelta):
            opened = self._ensure("thinking", thinking="", signature="")
            self._block["thinking"] += part.text
            return [*opened, self._delta("thinking_delta", thinking=part.text)]
        if isinstance(part, TextDelta):
            opened = self._ensure("text", text="")
            self._block["text"] += part.text
            return [*opened, self._delta("text_delta", text=part.text)]
        if isinstance(part, CallStart):
            return [*self._close(), self._begin_block("tool_use", id=part.id, name=part.name, input={})]
        if isinstance(part, CallArguments):
            self._input += part.fragment
            return [self._delta("input_json_delta", partial_json=part.fragment)]
        assert isinstance(part, TokenScore)  # nobody asks for them here
        return []

    def end(self, stop_reason: str, stop_sequence: str | None, usage: dict[str, Any]) -> list[Event]:
        events = self._close()
        stop = {"stop_reason": stop_reason, "stop_sequence": stop_sequence, "stop_details": None}
        self.message.update(stop, usage=usage)
        return [*events, {"type": "message_delta", "delta": stop, "usage": usage}, {"type": "message_stop"}]

    @property
    def _block(self) -> dict[str, Any]:
        assert self._open is not None
        return self._open

    @property
    def _index(self) -> int:
        return len(self.message["content"]) - 1

    def _ensure(self, kind: str, **fields: Any) -> list[Event]:
        if self._open is not None and self._open["type"] == kind:
            return []
        return [*self._close(), self._begin_block(kind, **fields)]

    def _begin_block(self, kind: str, **fields: Any) -> Event:
        self._open = {"type": kind, **fields}
        self._input = ""
        self.message["content"].append(self._open)
        return {"type": "content_block_start", "index": self._index, "content_block": dict(self._open)}

    def _close(self) -> Sequence[Event]:
        if self._open is None:
            return []
        events = []
        if self._open["type"] == "thinking":
            signature = signed(self._open["thinking"])
            self._open["signature"] = signature
            events.append(self._delta("signature_delta", signature=signature))
        elif self._open["type"] == "tool_use":
            self._open["input"] = json.loads(self._input)
        self._open = None
        return [*events, {"type": "content_block_stop", "index": self._index}]

    def _delta(self, kind: str, **fields: Any) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": {"type": kind, **fields}}


PING: Event = {"type": "ping"}


def usage(
    input_tokens: int, cached_tokens: int = 0, output_tokens: int = 0, thinking_tokens: int = 0
) -> dict[str, Any]:
    """`input_tokens` are those of the whole prompt; Anthropic counts the ones from the cache apart."""
    return {
        "input_tokens": input_tokens - cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": output_tokens,
        "output_tokens_details": {"thinking_tokens": thinking_tokens},
    }


def signed(thinking: str) -> str:
    """Clients send thinking back only with a signature. Nothing here depends on it, so it is a digest."""
    return hashlib.sha256(thinking.encode()).hexdigest()
