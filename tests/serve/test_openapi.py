"""The document at /openapi.json is true: schemathesis makes requests of it, good and bad."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.serve.conftest import serve

schemathesis = pytest.importorskip("schemathesis")
from schemathesis import GenerationMode, checks  # noqa: E402

EXAMPLES = 8
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
POSTS = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
]
OTHERS = [
    ("GET", "/tokenizer_info"),
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{name}"),
    ("GET", "/v1/responses/{name}"),
    ("DELETE", "/v1/responses/{name}"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    yield from serve(ctx=256)  # ends the answers that no max_tokens ends


@pytest.fixture(scope="module")
def described(server: Any) -> Any:
    return schemathesis.openapi.from_url(server.url + "/openapi.json")


def check(operation: Any, mode: Any) -> None:
    # schemathesis's own parametrize does not go with pytest 9.
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        if isinstance(case.body, dict) and "model" in case.body and mode is GenerationMode.POSITIVE:
            case.body["model"] = "hy3-tiny"  # no other is known, and none would come any further
        case.call_and_validate(checks=CHECKS, timeout=60)

    run()


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("path", POSTS)
def test_bodies(described: Any, path: str, mode: Any) -> None:
    """As the document says, and not."""
    check(described[path]["POST"], mode)


@pytest.mark.parametrize(("method", "path"), OTHERS)
def test_requests_without_a_body(described: Any, method: str, path: str) -> None:
    check(described[path][method], GenerationMode.POSITIVE)


def test_the_document_has_every_endpoint(server: Any) -> None:
    with server.http() as http:
        document = http.get("/openapi.json").json()
    assert set(document["paths"]) == {*POSTS, *(path for _, path in OTHERS)}
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_errors_have_the_shape_that_is_described(server: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    with server.http() as http:
        shape = http.get("/openapi.json").json()["components"]["schemas"]["Error"]
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/nowhere"):
            jsonschema.validate(http.post(path, json={"messages": 3}).json(), shape)
