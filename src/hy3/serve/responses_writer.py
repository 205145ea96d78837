"""The parts of an answer as the events of OpenAI's Responses, and as the response that they make up."""

import copy
import json
import secrets
import time
from collections.abc import Callable
from typing import Any

from hy3.serve import carrier
from hy3.serve.answer import CallArguments, CallStart, Part, ReasoningDelta, TextDelta, TokenScore
from hy3.serve.responses_tools import Told, text_of_arguments

Event = dict[str, Any]

# Of an item that is text: what its content is called.
CONTENT = {"reasoning": "reasoning_text", "message": "output_text"}


class ResponseWriter:
    """`begin`, `write` each part, then `end` or `fail`. The events are what is streamed; `response` is the
    answer in one. `spell` makes a token's score readable; `told`: what a function is called in the request;
    `carries_reasoning`: see carrier.py."""

    def __init__(
        self,
        response: dict[str, Any],
        spell: Callable[[TokenScore], dict[str, Any]],
        told: Callable[[str], Told] = Told,
        carries_reasoning: bool = False,
    ) -> None:
        self.response = {**response, "status": "in_progress", "output": []}
        self._spell, self._told = spell, told
        self._carries_reasoning = carries_reasoning
        self._events = 0
        self._open: dict[str, Any] | None = None  # the item under way, the last of the output
        self._arguments = ""  # so far, of a call
        self._scores: list[dict[str, Any]] = []  # of tokens whose text is next

    def begin(self) -> list[Event]:
        now = {**self.response, "output": []}
        return [
            self._event("response.created", response=now),
            self._event("response.in_progress", response=now),
        ]

    def write(self, part: Part) -> list[Event]:
        if isinstance(part, ReasoningDelta):
            return self._extend("reasoning", part.text)
        if isinstance(part, TextDelta):
            return self._extend("message", part.text)
        if isinstance(part, CallStart):
            return [*self._close(), self._begin_call(part)]
        if isinstance(part, CallArguments):
            self._arguments += part.fragment
            if self._item["type"] == "custom_tool_call":  # its text is known when the JSON is complete
                return []
            return [self._of_item("response.function_call_arguments.delta", delta=part.fragment)]
        self._scores.append(self._spell(part))
        return []

    def end(self, finish_reason: str, usage: dict[str, Any]) -> list[Event]:
        status = "incomplete" if finish_reason == "length" else "completed"
        events = self._close(status)
        self.response.update(status=status, completed_at=int(time.time()), usage=usage)
        if status == "incomplete":
            self.response.update(completed_at=None, incomplete_details={"reason": "max_output_tokens"})
        return [*events, self._event(f"response.{status}", response=self.response)]

    def fail(self, message: str) -> Event:
        error = {"code": "server_error", "message": message}
        self.response.update(status="failed", error=error)
        return self._event("response.failed", response=self.response)

    @property
    def _item(self) -> dict[str, Any]:
        assert self._open is not None
        return self._open

    def _extend(self, kind: str, text: str) -> list[Event]:
        events: list[Event] = []
        if self._open is None or self._open["type"] != kind:
            events = [*self._close(), *self._begin_text(kind)]
        content = self._item["content"][0]
        content["text"] += text
        fields: dict[str, Any] = {"delta": text}
        if kind == "message":
            fields["logprobs"], self._scores = self._scores, []
            content["logprobs"] += fields["logprobs"]
        return [*events, self._of_content("delta", **fields)]

    def _begin_text(self, kind: str) -> list[Event]:
        content: dict[str, Any] = {"type": CONTENT[kind], "text": ""}
        item: dict[str, Any] = {"type": kind, "status": "in_progress", "content": []}
        if kind == "message":
            content.update(annotations=[], logprobs=[])
            item.update(id="msg_" + secrets.token_hex(12), role="assistant")
        else:
            item.update(id="rs_" + secrets.token_hex(12), summary=[])
        added = self._begin_item(item)
        part = self._of_item("response.content_part.added", content_index=0, part=copy.deepcopy(content))
        item["content"] = [content]
        return [added, part]

    def _begin_call(self, call: CallStart) -> Event:
        told = self._told(call.name)
        item = {"status": "in_progress", "call_id": call.id, "name": told.name}
        if told.namespace is not None:
            item["namespace"] = told.namespace
        if told.custom:
            item.update(type="custom_tool_call", id="ctc_" + secrets.token_hex(12), input="")
        else:
            item.update(type="function_call", id="fc_" + secrets.token_hex(12), arguments="")
        self._arguments = ""
        return self._begin_item(item)

    def _begin_item(self, item: dict[str, Any]) -> Event:
        self._open = item
        self.response["output"].append(item)
        return self._event("response.output_item.added", output_index=self._index, item={**item})

    def _close(self, status: str = "completed") -> list[Event]:
        if self._open is None:
            return []
        item = self._item
        item["status"] = status
        done = self._close_text(item) if item["type"] in CONTENT else self._close_call(item)
        self._open = None
        return [*done, self._event("response.output_item.done", output_index=self._index, item=item)]

    def _close_call(self, item: dict[str, Any]) -> list[Event]:
        if item["type"] == "function_call":
            item["arguments"] = self._arguments
            return [self._of_item("response.function_call_arguments.done", arguments=self._arguments)]
        item["input"] = text = text_of_arguments(json.loads(self._arguments))
        return [
            self._of_item("response.custom_tool_call_input.delta", delta=text),
            self._of_item("response.custom_tool_call_input.done", input=text),
        ]

    def _close_text(self, item: dict[str, Any]) -> list[Event]:
        content = item["content"][0]
        fields = {"text": content["text"]}
        if item["type"] == "message":
            fields["logprobs"] = content["logprobs"]
        elif self._carries_reasoning:
            item["encrypted_content"] = carrier.pack(content["text"])
        done = self._of_content("done", **fields)
        return [done, self._of_item("response.content_part.done", content_index=0, part=content)]

    @property
    def _index(self) -> int:
        return len(self.response["output"]) - 1

    def _of_content(self, what: str, **fields: Any) -> Event:
        name = f"response.{self._item['content'][0]['type']}.{what}"
        return self._of_item(name, content_index=0, **fields)

    def _of_item(self, name: str, **fields: Any) -> Event:
        return self._event(name, output_index=self._index, item_id=self._item["id"], **fields)

    def _event(self, name: str, **fields: Any) -> Event:
        event = {"type": name, "sequence_number": self._events, **fields}
        self._events += 1
        return event
