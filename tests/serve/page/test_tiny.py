"""The chat page before the real server: the bundled model answers."""

import re
from typing import Any

import pytest

pytestmark = pytest.mark.browser


def test_the_bundled_model_thinks_answers_and_is_remembered(server: Any, tabs: Any) -> None:
    from playwright.sync_api import expect

    page = tabs.open(server.url)
    expect(page.locator("#model")).to_have_text("hy3-tiny")
    page.click("#open-settings")
    page.fill("[name=temperature]", "0")
    page.click("[value=save]")
    page.select_option("#effort", "high")
    page.fill("#prompt", "17+25+31=?")
    page.click("#send")
    answer = page.locator(".assistant > .markdown")
    expect(answer).to_have_text("73")
    expect(page.locator("summary")).to_have_text(re.compile("^Thought for"))
    expect(page.locator(".thinking .markdown")).to_contain_text("17+25=42")
    expect(page.locator(".speeds")).to_contain_text(re.compile(r"\d+ tokens · .* · prompt \d+"))
    expect(page.locator("#context")).to_have_text(re.compile(r"^\d+ / 1,024$"))
    page.reload()
    expect(answer).to_have_text("73")
    page.click("[data-action=retry]")
    expect(page.locator(".branches")).to_have_text("2 / 2")
    expect(answer).to_have_text("73")
