"""Answers on the chat page, in Chromium: read, stopped, retried, branched. What is answered is a script."""

import re
from typing import Any

import pytest
from support.chat_page import ask, send
from support.scripted_server import ScriptedServer, call, running, text, thinking

pytestmark = pytest.mark.browser

WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def ends_the_answer(page: Any, expect: Any) -> None:
    expect(page.locator("#send")).to_be_visible()


def test_asks_and_shows_the_answer_with_its_speeds(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    expect(page.locator("#model")).to_have_text("hy3-scripted")
    ask(page, "Hello **you**")
    expect(page.locator(".user .bubble")).to_have_text("Hello **you**")
    expect(page.locator(".assistant .markdown")).to_have_text("You said: Hello you")
    speeds = page.locator(".speeds")
    for part in ("2 tokens", "first after", "prompt 30, 20 cached"):
        expect(speeds).to_contain_text(part)
    expect(page.locator("#context")).to_have_text("32 / 4,096")
    assert scripted.requests[0]["messages"] == [{"role": "user", "content": "Hello **you**"}]
    assert scripted.requests[0]["stream_options"] == {"include_usage": True}
    ask(page, "And now?")
    roles = [message["role"] for message in scripted.requests[1]["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_the_stream_grows_and_stops(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    scripted.scripts["Count"] = text("0123456789" * 500, size=5)
    scripted.pause = 0.01
    send(page, "Count")
    answer = page.locator(".assistant .markdown")
    answer.wait_for()
    first = len(answer.text_content())
    expect(answer).to_have_text(re.compile(f".{{{first + 50},}}"))
    page.keyboard.press("Escape")
    expect(page.locator(".assistant")).to_contain_text("Stopped.")
    assert scripted.left.wait(5), "the server still writes"
    page.reload()
    expect(page.locator(".assistant .markdown")).to_have_text(re.compile(f".{{{first + 50},}}"))
    ask(page, "Go on")
    assert scripted.requests[-1]["messages"][1]["content"].startswith("0123456789")


def test_a_reload_amid_an_answer_keeps_what_there_was(
    page: Any, scripted: ScriptedServer, expect: Any
) -> None:
    scripted.scripts["Count"] = text("0123456789" * 500, size=5)
    scripted.pause = 0.02
    send(page, "Count")
    expect(page.locator(".assistant .markdown")).to_have_text(re.compile(".{400,}"))
    page.reload()
    expect(page.locator(".assistant .markdown")).to_have_text(re.compile(".{100,}"))
    expect(page.locator(".assistant")).to_contain_text("Stopped.")


def test_thinking_is_folded(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    scripted.scripts["Think"] = thinking("First this, **then** that. " * 8) + text("Done.")
    scripted.pause = 0.05
    send(page, "Think")
    summary, body = page.locator("summary"), page.locator(".thinking .markdown")
    expect(summary).to_have_text(re.compile(r"^Thinking… \d\.\d s$"))
    expect(body).to_be_hidden()
    summary.click()
    expect(body).to_be_visible()
    expect(summary).to_have_text(re.compile(r"^Thought for \d\.\d s$"))
    expect(body.locator("strong").first).to_have_text("then")
    ends_the_answer(page, expect)
    expect(page.locator(".assistant > .markdown")).to_have_text("Done.")
    page.reload()
    expect(body).to_be_hidden()


def test_tool_calls_take_results(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    scripted.scripts = {
        "Weather": thinking("Two.")
        + call(0, "get_weather", '{"city": "Shen', 'zhen"}')
        + call(1, "get_time", "{}"),
        "12:00": text("Warm, at noon."),
    }
    page.click("#open-settings")
    page.fill("[name=tools]", str([WEATHER]).replace("'", '"'))
    page.click("[value=save]")
    ask(page, "Weather?")
    assert scripted.requests[0]["tools"] == [WEATHER]
    cards = page.locator(".call")
    expect(cards.nth(0).locator("h3")).to_have_text("get_weather")
    expect(cards.nth(0).locator("pre")).to_have_text('{\n  "city": "Shenzhen"\n}')
    cards.nth(0).locator("textarea").fill("30 degrees")
    page.click(".continue")  # a result is missing: nothing is sent
    assert len(scripted.requests) == 1
    cards.nth(1).locator("textarea").fill("12:00")
    page.click(".continue")
    expect(page.locator(".assistant .markdown").last).to_have_text("Warm, at noon.")
    sent = scripted.requests[1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert sent[1]["reasoning_content"] == "Two."
    assert sent[1]["tool_calls"][0]["function"] == {
        "name": "get_weather",
        "arguments": '{"city": "Shenzhen"}',
    }
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == [
        ("call_get_weather", "30 degrees"),
        ("call_get_time", "12:00"),
    ]
    page.reload()
    expect(cards.nth(0)).to_contain_text("30 degrees")
    expect(page.locator(".call textarea")).to_have_count(0)


def test_answers_again_beside_the_old_answer(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    ask(page, "One")
    ask(page, "Two")
    scripted.scripts["One"] = text("Another answer")
    page.locator("[data-action=retry]").first.click()
    answers = page.locator(".assistant .markdown")
    expect(answers).to_have_text(["Another answer"])
    expect(page.locator(".branches")).to_have_text("2 / 2")
    page.click("[data-action=previous]")
    expect(answers).to_have_text(["You said: One", "You said: Two"])
    page.reload()
    expect(answers).to_have_count(2)


def test_an_edited_message_starts_a_branch(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    ask(page, "First")
    ask(page, "Secnod")
    page.locator(".user").last.hover()
    page.locator("[data-action=edit]").last.click()
    page.keyboard.press("End")
    page.fill(".editor textarea", "Second")
    page.press(".editor textarea", "Enter")
    expect(page.locator(".bubble")).to_have_text(["First", "Second"])
    expect(page.locator(".assistant .markdown").last).to_have_text("You said: Second")
    assert [m["content"] for m in scripted.requests[-1]["messages"]] == ["First", "You said: First", "Second"]
    page.locator(".user").last.locator("[data-action=previous]").click()
    expect(page.locator(".bubble")).to_have_text(["First", "Secnod"])
    page.locator("[data-action=edit]").last.click()
    page.keyboard.press("Escape")
    expect(page.locator(".bubble")).to_have_text(["First", "Secnod"])


def test_cuts_a_conversation_and_takes_it_back(page: Any, expect: Any) -> None:
    ask(page, "First")
    ask(page, "Second")
    page.locator(".user").last.hover()
    page.locator(".user").last.locator("[data-action=cut]").click()
    expect(page.locator(".bubble")).to_have_text(["First"])
    page.click(".toast button")
    expect(page.locator(".bubble")).to_have_text(["First", "Second"])
    page.locator(".user").last.locator("[data-action=cut]").click()
    ask(page, "Third")  # an undo would drop it
    expect(page.locator(".toast")).to_have_count(0)


def test_errors_are_shown_and_tried_again(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    scripted.refuse = (400, "The prompt has 9,000 tokens, and a context holds 4,096.")
    send(page, "Long")
    expect(page.get_by_role("alert")).to_contain_text("9,000 tokens, and a context holds 4,096.")
    scripted.refuse = None
    page.click(".error [data-action=retry]")
    expect(page.locator(".assistant .markdown")).to_have_text("You said: Long")
    expect(page.locator(".branches")).to_have_count(0)  # an answer of which nothing came is none
    scripted.break_after = 1
    ask(page, "Break off")
    expect(page.get_by_role("alert")).to_contain_text("The connection ended before the answer did.")
    expect(page.locator(".assistant .markdown").last).to_have_text("You said: Br")
    scripted.last_words = 'data: {"error": {"message": "The model met a NaN."}}\n\n'
    page.locator(".error [data-action=retry]").click()
    expect(page.get_by_role("alert")).to_have_text(re.compile("^The model met a NaN."))
    expect(page.locator(".branches")).to_have_text("2 / 2")


def test_a_key_is_asked_for(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    scripted.refuse = (401, "The key is missing.")
    page.reload()
    expect(page.locator("#model")).to_have_text("API key needed")
    send(page, "Hello")
    page.click(".error [data-action=settings]")
    page.fill("[name=key]", "secret")
    scripted.refuse = None
    page.click("[value=save]")
    expect(page.locator("#model")).to_have_text("hy3-scripted")
    page.click(".error [data-action=retry]")
    expect(page.locator(".assistant .markdown")).to_have_text("You said: Hello")
    assert scripted.keys[-1] == "Bearer secret"


def test_works_on_when_the_server_is_back(tabs: Any, expect: Any) -> None:
    with running(ScriptedServer({})) as server:
        page = tabs.open(server.url)
        ask(page, "Hello")
        port = int(server.url.rsplit(":")[-1])
    send(page, "Still there?")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    expect(page.locator("#model")).to_have_text("Server away")
    with running(ScriptedServer({}), port):
        expect(page.locator("#model")).to_have_text("hy3-scripted")
        page.click(".error [data-action=retry]")
        expect(page.locator(".assistant .markdown").last).to_have_text("You said: Still there?")


def test_code_is_copied(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    scripted.scripts["Code"] = text("```py\nif a < b:\n    pass\n```\n")
    ask(page, "Code")
    expect(page.locator("figcaption span")).to_have_text("py")
    page.click("[data-action=copy-code]")
    expect(page.locator("[data-action=copy-code]")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "if a < b:\n    pass\n"


def test_two_conversations_are_answered_at_a_time(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    scripted.scripts["Slow"] = text("slowly " * 40, size=7)
    scripted.pause = 0.05
    send(page, "Slow")
    page.locator(".assistant .markdown").wait_for()
    page.click("#new")
    ask(page, "Quick")
    expect(page.locator(".busy")).to_have_count(1)
    page.locator("#conversations a", has_text="Slow").click()
    expect(page.locator("#stop")).to_be_visible()
    ends_the_answer(page, expect)
    expect(page.locator(".assistant .markdown")).to_have_text("slowly " * 39 + "slowly")
