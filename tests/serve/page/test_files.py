"""How the files of the chat page are served."""

import re
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hy3.serve import page


@pytest.fixture
def client() -> Any:
    app = FastAPI()
    app.include_router(page.router())
    return TestClient(app)


def test_the_page_and_all_that_it_loads(client: Any) -> None:
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    loaded = re.findall(r'(?:src|href)="(page/[^"]+)"', answer.text)
    assert {name.rsplit(".")[-1] for name in loaded} == {"js", "css", "svg"}
    imported = {
        name for path in page.FOLDER.glob("*.js") for name in re.findall(r'from "\./(.*)";', path.read_text())
    }
    for name in {*loaded, *(f"page/{name}" for name in imported)}:
        assert client.get(f"/{name}").status_code == 200, name


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/page/app.js", "text/javascript; charset=utf-8"),
        ("/page/style.css", "text/css; charset=utf-8"),
        ("/page/icon.svg", "image/svg+xml"),
    ],
)
def test_types(client: Any, path: str, expected: str) -> None:
    assert client.get(path).headers["content-type"] == expected


@pytest.mark.parametrize("path", ["/", "/page/app.js"])
def test_nothing_foreign_may_run(client: Any, path: str) -> None:
    answer = client.get(path)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_an_unchanged_file_is_not_sent_again(client: Any) -> None:
    first = client.get("/page/app.js")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/page/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = client.get("/page/app.js", headers={"If-None-Match": '"other"'})
    assert other.content == first.content


def test_only_the_files_of_the_page(client: Any) -> None:
    for path in ("/page/", "/page/../page.py", "/page/%2e%2e/page.py", "/page/nothing.js"):
        assert client.get(path).status_code == 404
    assert client.post("/").status_code == 405
    assert client.head("/").status_code == 200
