"""Chromium on the chat page, before a server whose answers are scripts."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.scripted_server import ScriptedServer, running

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
PATIENCE = 20_000  # ms, for machines that are busy with other things
DESKTOP = {"width": 1280, "height": 800}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's own sandbox does not start as root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield launched
        launched.close()


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    with running(ScriptedServer({})) as server:
        yield server


class Tabs:
    """Opens the page, each time as another user, and keeps what went wrong in it."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self.problems: list[str] = []

    def open(self, url: str, script: str = "", **options: Any) -> Any:
        """`script` runs before those of the page."""
        context = self._browser.new_context(**{"viewport": DESKTOP, **options})
        context.set_default_timeout(PATIENCE)
        context.add_init_script(script)
        self._contexts.append(context)
        return self.another(context, url)

    def another(self, context: Any, url: str) -> Any:
        """One more tab of the same user."""
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._heard)
        page.on("request", lambda request: self._asked(request.url, url))
        page.goto(url)
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _heard(self, message: Any) -> None:
        # That an answer had an error status, or did not come, is what some tests are about.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def _asked(self, address: str, own: str) -> None:
        if not address.startswith((own, "blob:" + own)):
            self.problems.append(f"asked {address}")


@pytest.fixture
def tabs(browser: Any) -> Iterator[Tabs]:
    opened = Tabs(browser)
    yield opened
    opened.close()
    assert not opened.problems


@pytest.fixture
def page(tabs: Tabs, scripted: ScriptedServer) -> Any:
    return tabs.open(scripted.url)


@pytest.fixture
def expect() -> Callable[..., Any]:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    return expect
