"""What goes wrong with a request, and how OpenAI's and Anthropic's clients are told."""

from collections.abc import Mapping
from typing import Any

# OpenAI's and Anthropic's names for a status; what is not here is the request's fault below 500, ours above.
OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error", 503: "service_unavailable_error"}
ANTHROPIC_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class ApiError(Exception):
    """A request that is refused or has failed. `param` names the body's field, as in `messages.0.role`."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        # A client's words may be in it, and in JSON these can be halves of surrogate pairs.
        self.message = message.encode("utf-8", "backslashreplace").decode()
        self.param = param
        self.code = code
        self.headers = dict(headers or {})


class PromptTooLong(ApiError):
    def __init__(self, tokens: int, ctx: int, param: str) -> None:
        self.tokens, self.ctx = tokens, ctx
        super().__init__(
            400,
            f"The prompt has {tokens} tokens, and a context of {ctx} has no room for it and an answer. "
            "Shorten it, or start the server with a larger --ctx.",
            param=param,
            code="context_length_exceeded",
        )


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def openai_shape(error: ApiError) -> dict[str, Any]:
    fallback = "invalid_request_error" if error.status < 500 else "server_error"
    return {
        "error": {
            "message": error.message,
            "type": OPENAI_TYPES.get(error.status, fallback),
            "param": error.param,
            "code": error.code,
        }
    }


def anthropic_shape(error: ApiError) -> dict[str, Any]:
    """Its errors have no field for the field: the message begins with its name instead."""
    fallback = "invalid_request_error" if error.status < 500 else "api_error"
    message = error.message if error.param is None else f"{error.param}: {error.message}"
    if isinstance(error, PromptTooLong):  # coding agents know by these words that they are to summarize
        message = f"prompt is too long: {error.tokens} tokens > {error.ctx} maximum. {error.message}"
    return {
        "type": "error",
        "error": {"type": ANTHROPIC_TYPES.get(error.status, fallback), "message": message},
    }


def shape_for(path: str, error: ApiError) -> dict[str, Any]:
    """The error as the clients of this path expect it."""
    return anthropic_shape(error) if path.startswith("/v1/messages") else openai_shape(error)
