"""The OpenAPI document: FastAPI's own, with the errors that it does not know of.

FastAPI announces a 422 of its own shape for bad requests, where this server answers 400 and others in the
shape of OpenAI or Anthropic.
"""

from typing import Any

from fastapi import FastAPI

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "type": {"const": "error", "description": "In Anthropic's shape alone"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {
                "type": {"type": "string"},
                "message": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The field that is wrong"},
                "code": {"type": ["string", "null"]},
            },
        },
    },
}
REFUSED = {
    "description": "The request is refused: it is wrong, or it is not its time.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
EVENT = {"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}}
FASTAPIS_OWN = ("HTTPValidationError", "ValidationError")


def describe_errors(app: FastAPI) -> None:
    """Lets `app` serve the corrected document."""
    fastapis = app.openapi

    def document() -> dict[str, Any]:
        made = app.openapi_schema is not None
        found = fastapis()
        if not made:
            correct(found)
        return found

    app.openapi = document  # type: ignore[method-assign]


def correct(document: dict[str, Any]) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in FASTAPIS_OWN:
        schemas.pop(name, None)
    schemas["Error"] = ERROR
    for path in document["paths"].values():
        for operation in path.values():
            responses = operation["responses"]
            responses.pop("422", None)
            responses["4XX"] = REFUSED
            responses["503"] = {**REFUSED, "description": "The server is starting or shutting down."}
            if streams(document, operation):
                responses["200"]["content"]["text/event-stream"] = {"schema": EVENT}


def streams(document: dict[str, Any], operation: dict[str, Any]) -> bool:
    """Whether its body has a field `stream`."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return "stream" in document["components"]["schemas"].get(name, {}).get("properties", {})
