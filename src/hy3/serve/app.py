"""The web application: endpoints, guards and error shapes put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

import hy3
from hy3.serve import chat, messages, page, responses
from hy3.serve.engine import ClientGone
from hy3.serve.errors import ApiError, bad_request, shape_for
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

    app = FastAPI(title="hy3", version=hy3.__version__, lifespan=running)
    for api in (chat, responses, messages):
        app.include_router(api.router(service))
    app.include_router(page.router())

    @app.get("/health")
    async def health() -> Response:
        draining = service.engine.draining
        status = "draining" if draining else "ok"
        return JSONResponse({"status": status}, 503 if draining else 200)

    handle_errors(app)
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
