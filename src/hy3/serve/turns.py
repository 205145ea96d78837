"""A conversation put together from pieces: what was said, thought, called and returned, in order.

Responses and Messages list pieces; a template takes messages. All that the assistant does between two turns
of others is one message.
"""

from collections.abc import Mapping
from typing import Any


class Turns:
    """`messages` as ChatRequest takes them."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    @property
    def answering(self) -> bool:
        """Whether the last message is the assistant's, and may go on."""
        return bool(self.messages) and self.messages[-1]["role"] == "assistant"

    def say(self, role: str, text: str) -> None:
        """`role`: "user" or "system"."""
        self.messages.append({"role": role, "content": text})

    def result(self, call: str, text: str) -> None:
        """What a call returned; `call` is its id."""
        self.messages.append({"role": "tool", "tool_call_id": call, "content": text})

    def answer(self, text: str) -> None:
        self._assistant()["content"] += text

    def think(self, text: str) -> None:
        message = self._assistant()
        message["reasoning_content"] = message.get("reasoning_content", "") + text

    def call(self, call: str, name: str, arguments: Mapping[str, Any]) -> None:
        function = {"name": name, "arguments": arguments}
        calls = self._assistant().setdefault("tool_calls", [])
        calls.append({"id": call, "type": "function", "function": function})

    def _assistant(self) -> dict[str, Any]:
        if not self.answering:
            self.messages.append({"role": "assistant", "content": ""})
        return self.messages[-1]
