"""The tools of Responses, which the model knows as plain functions.

A namespace is a group of functions (Codex makes one of each MCP server); its functions go by both names. A
custom tool takes free text, here the one argument of a function. Calls are told in the words of the request.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from hy3.serve.bodies import FUNCTION_NAME, Body
from hy3.serve.errors import bad_request

FREE_TEXT = "input"  # the argument


class TextFormat(Body):
    type: str
    syntax: str | None = None  # of the definition
    definition: str | None = None


class Tool(Body):
    type: str
    name: str | None = Field(None, pattern=FUNCTION_NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: TextFormat | None = None  # of a custom tool
    tools: list["Tool"] | None = None  # of a namespace


@dataclass(frozen=True)
class Told:
    """What a function is called in the request."""

    name: str
    namespace: str | None = None
    custom: bool = False


class Toolbox:
    def __init__(self, tools: Sequence[Tool]) -> None:
        self.functions: list[dict[str, Any]] = []  # as ChatRequest takes them
        self._told: dict[str, Told] = {}
        for number, tool in enumerate(tools):
            self._add(tool, f"tools.{number}")

    def told(self, function: str) -> Told:
        """A model may leave a namespace out: that is understood where only one is possible."""
        if function in self._told:
            return self._told[function]
        close = [told for told in self._told.values() if told.name == function]
        return close[0] if len(close) == 1 else Told(function)

    def _add(self, tool: Tool, param: str, namespace: str | None = None) -> None:
        if tool.type not in ("function", "custom", "namespace") or (namespace and tool.type == "namespace"):
            raise bad_request(
                f"There is no tool of type {tool.type!r} here. Describe it as one of type 'function', and "
                "run it where the answer is read.",
                f"{param}.type",
            )
        if tool.name is None:
            raise bad_request("A tool has a name.", f"{param}.name")
        if tool.type == "namespace":
            for number, inner in enumerate(tool.tools or ()):
                self._add(inner, f"{param}.tools.{number}", tool.name)
            return
        name = function_name(tool.name, namespace)
        self._told[name] = Told(tool.name, namespace, tool.type == "custom")
        function = {"name": name, **(free_text(tool) if tool.type == "custom" else described(tool))}
        self.functions.append({"type": "function", "function": function})


def function_name(name: str, namespace: str | None) -> str:
    if namespace is None:
        return name
    return namespace + ("" if namespace.endswith("__") else "__") + name


def described(tool: Tool) -> dict[str, Any]:
    return tool.model_dump(include={"description", "parameters"}, exclude_none=True)


def free_text(tool: Tool) -> dict[str, Any]:
    text = tool.description or ""
    if tool.format is not None and tool.format.definition is not None:
        text += (
            f"\n\nThe input follows this {tool.format.syntax or 'Lark'} grammar:\n{tool.format.definition}"
        )
    parameters = {"type": "object", "properties": {FREE_TEXT: {"type": "string"}}, "required": [FREE_TEXT]}
    return {"description": text.strip(), "parameters": parameters}


def text_of_arguments(arguments: Mapping[str, Any]) -> str:
    """The free text among the arguments of a custom tool's call, or what the model wrote in its place."""
    text = arguments.get(FREE_TEXT)
    return text if isinstance(text, str) else json.dumps(arguments, ensure_ascii=False)
