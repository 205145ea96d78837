"""The chat page before the real server: the bundled model answers."""

import re
from typing import Any

import pytest
from support.chat_page import ask, send

pytestmark = pytest.mark.browser


def test_the_bundled_model_thinks_answers_and_is_remembered(server: Any, tabs: Any, expect: Any) -> None:
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


def test_the_key_of_a_locked_server_is_asked_for(server_with: Any, tabs: Any, expect: Any) -> None:
    page = tabs.open(server_with(api_key="secret").url)
    expect(page.locator("#model")).to_have_text("API key needed")
    page.click("#open-settings")
    page.fill("[name=key]", "secret")
    page.fill("[name=maxTokens]", "1")
    page.fill("[name=temperature]", "0")
    page.click("[value=save]")
    expect(page.locator("#model")).to_have_text("hy3-tiny")
    ask(page, "11+22+33=?")
    expect(page.locator(".assistant .note")).to_contain_text("Cut off")
    send(page, "How long? " * 500)
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"The prompt has [\d,]+ tokens.* 1,?024"))
