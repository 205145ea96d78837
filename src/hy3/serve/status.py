"""GET /health, /metrics and /v1/models: what the server is and how it fares."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from hy3.serve.service import Service

HEALTH = "/health"  # asks for no key: whoever watches the server has none


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.get(HEALTH)
    async def health() -> Response:
        """200 when requests are taken, 503 while the model is loaded or the server shuts down."""
        draining = service.engine.draining
        return JSONResponse({"status": "draining" if draining else "ok"}, 503 if draining else 200)

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(service.metrics.page(), media_type=CONTENT_TYPE_LATEST)

    @routes.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [described(service, name) for name in service.settings.names]}

    @routes.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        service.check_model(name)
        return described(service, name)

    return routes


def described(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(service.started),
        "owned_by": "hy3",
        "max_model_len": service.settings.ctx,  # as vLLM tells it
    }
