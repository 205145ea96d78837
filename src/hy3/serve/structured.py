"""Answers in a given form: masks for the sampler, made from a JSON schema."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hy3.serve.errors import bad_request
from hy3.serve.steer import Mask

if TYPE_CHECKING:
    from hy3core import Model


def for_json(model: "Model") -> Mask:
    """Any JSON object."""
    raise missing("response_format")


def for_schema(model: "Model", schema: Mapping[str, Any]) -> Mask:
    raise missing("response_format")


def for_tools(model: "Model", tools: Sequence[Mapping[str, Any]], several: bool) -> Mask:
    """A call of one of the tools (OpenAI's form) and nothing else, or one or more calls."""
    raise missing("tool_choice")


def missing(param: str) -> Exception:
    return bad_request("This server cannot enforce a form yet: that needs llguidance.", param)
