"""The chat page at `/`: files of this package, and nothing from elsewhere."""

import hashlib
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).with_name("page")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Browsers ask each time and are told that nothing changed: the files of one version go together.
    "Cache-Control": "no-cache",
}


def _file(path: Path) -> Route:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**HEADERS, "ETag": tag}

    async def answer(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=TYPES[path.suffix])

    return Route("/" if path.name == "index.html" else f"/page/{path.name}", answer)


def router() -> APIRouter:
    """`/` and the files that it loads, below `/page/`. They hold no secrets: no API key is asked for."""
    return APIRouter(routes=[_file(path) for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES])
