"""The web application: endpoints, guards and error shapes put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

import hy3
from hy3.serve import chat, completions, messages, page, responses, status, tokens
from hy3.serve.engine import ClientGone
from hy3.serve.errors import ApiError, bad_request, shape_for
from hy3.serve.guard import Guard
from hy3.serve.metrics import CountRequests
from hy3.serve.openapi import describe_errors
from hy3.serve.service import Service

CLIENT_CLOSED = 499  # nginx's status for a client that hung up; nobody reads it but the log


def create_app(service: Service) -> FastAPI:
    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        service.engine.start()
        try:
            yield
        finally:
            service.engine.close()

    # FastAPI's pages of documentation would fetch scripts from elsewhere.
    app = FastAPI(title="hy3", version=hy3.__version__, lifespan=running, docs_url=None, redoc_url=None)
    for api in (chat, completions, responses, messages, tokens, status):
        app.include_router(api.router(service))
    page_routes = page.router()
    app.include_router(page_routes)
    handle_errors(app)
    describe_errors(app)
    # The last one added is the first to see a request.
    public = {status.HEALTH, *(route.path for route in page_routes.routes if isinstance(route, Route))}
    app.add_middleware(
        Guard, api_key=service.settings.api_key, public=public, body_limit=service.settings.body_limit
    )
    app.add_middleware(CountRequests, metrics=service.metrics)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware, allow_origins=service.settings.cors, allow_methods=["*"], allow_headers=["*"]
        )
    return app


def handle_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def refused(http: Request, error: ApiError) -> Response:
        return JSONResponse(shape_for(http.url.path, error), error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(http: Request, error: RequestValidationError) -> Response:
        return await refused(http, first_problem(error.errors()))

    @app.exception_handler(HTTPException)
    async def http_error(http: Request, error: HTTPException) -> Response:
        return await refused(http, ApiError(error.status_code, f"{error.detail}.", headers=error.headers))

    @app.exception_handler(ClientGone)
    async def gone(_http: Request, _error: ClientGone) -> Response:
        return Response(status_code=CLIENT_CLOSED)

    @app.exception_handler(Exception)
    async def bug(http: Request, error: Exception) -> Response:
        return await refused(http, ApiError(500, f"The server failed: {type(error).__name__}."))


def first_problem(problems: Any) -> ApiError:
    """FastAPI's list of what is wrong with a body, as one error about one field."""
    problem = problems[0]
    place = [str(step) for step in problem["loc"][1:]]  # without "body"
    if problem["type"] == "json_invalid":
        return bad_request(f"The body is not JSON: {problem.get('ctx', {}).get('error', problem['msg'])}.")
    return bad_request(problem["msg"] + ".", ".".join(place) or None)
