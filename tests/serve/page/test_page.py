"""The chat page in Chromium: writing, stopping, retrying, branching, keeping. The answers are scripts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.scripted_server import ScriptedServer, call, running, text, thinking

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


@pytest.fixture
def expect() -> Callable[..., Any]:
    from playwright.sync_api import expect

    return expect


def send(page: Any, message: str) -> None:
    page.fill("#prompt", message)
    page.press("#prompt", "Enter")


def ask(page: Any, message: str) -> None:
    """Sends, and waits for the answer's end."""
    send(page, message)
    page.locator(".assistant").last.locator("footer").wait_for()


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


def test_a_reload_finds_the_conversation(page: Any, expect: Any) -> None:
    ask(page, "Remember this")
    page.reload()
    expect(page.locator(".bubble")).to_have_text("Remember this")
    expect(page.locator(".assistant .markdown")).to_have_text("You said: Remember this")
    expect(page.locator("#conversations a")).to_have_text("Remember this")


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


def test_errors_are_shown_and_tried_again(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    scripted.refuse = (400, "The prompt has 9,000 tokens, and a context holds 4,096.")
    send(page, "Long")
    expect(page.get_by_role("alert")).to_contain_text("9,000 tokens, and a context holds 4,096.")
    scripted.refuse = None
    page.click(".error [data-action=retry]")
    expect(page.locator(".assistant .markdown")).to_have_text("You said: Long")
    scripted.break_after = 1
    ask(page, "Break off")
    expect(page.get_by_role("alert")).to_contain_text("The connection ended before the answer did.")
    expect(page.locator(".assistant .markdown").last).to_have_text("You said: Br")


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


def test_the_list_searches_renames_and_deletes(page: Any, expect: Any) -> None:
    for message in ("Apples and pears", "Rivers"):
        page.click("#new")
        ask(page, message)
    listed = page.locator("#conversations a")
    expect(listed).to_have_text(["Rivers", "Apples and pears"])
    page.keyboard.press("Control+k")
    page.keyboard.type("said: apples")
    expect(listed).to_have_text(["Apples and pears"])
    page.fill("#search", "")
    page.locator("#conversations li").first.hover()
    page.locator("[data-action=rename]").first.click()
    page.fill("#conversations input", "Streams")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Streams")
    page.locator("#conversations li").first.hover()
    page.locator("[data-action=remove]").first.click()
    expect(listed).to_have_text(["Apples and pears"])
    expect(page.locator("#welcome")).to_be_visible()
    page.click(".toast button")
    expect(listed).to_have_text(["Streams", "Apples and pears"])
    page.reload()
    expect(listed).to_have_text(["Streams", "Apples and pears"])
    listed.last.click()
    expect(page.locator(".bubble")).to_have_text("Apples and pears")


def test_conversations_move_by_file(
    page: Any, tabs: Any, scripted: ScriptedServer, tmp_path: Path, expect: Any
) -> None:
    scripted.scripts["Think"] = thinking("Hm.") + text("**Done**")
    ask(page, "Think")
    with page.expect_download() as download:
        page.click("#export")
    file = tmp_path / "conversations.json"
    download.value.save_as(file)
    other = tabs.open(scripted.url)
    other.set_input_files("#import-file", file)
    other.click("#conversations a")
    expect(other.locator(".assistant > .markdown strong")).to_have_text("Done")
    expect(other.locator("summary")).to_contain_text("Thought")
    orphan = file.read_text().replace('"parent": 1', '"parent": 7')
    for broken, problem in {"[": "not JSON", "{}": "no conversations", orphan: "is not sound"}.items():
        (tmp_path / "broken.json").write_text(broken)
        other.set_input_files("#import-file", tmp_path / "broken.json")
        expect(other.locator(".toast")).to_contain_text(problem)
    expect(other.locator("#conversations a")).to_have_count(1)


def test_settings_are_kept_and_sent(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    page.select_option("#effort", "high")
    page.click("#open-settings")
    for name, value in {
        "system": "Be brief.",
        "temperature": "0.5",
        "topP": "0.9",
        "maxTokens": "64",
        "tools": "{}",
    }.items():
        page.fill(f"[name={name}]", value)
    page.click("[value=save]")
    expect(page.locator("#settings")).to_be_visible()  # the tools are no list
    page.fill("[name=tools]", "")
    page.click("[value=save]")
    page.reload()
    ask(page, "Hello")
    request = scripted.requests[-1]
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    wanted = {"reasoning_effort": "high", "temperature": 0.5, "top_p": 0.9, "max_tokens": 64}
    assert {name: request.get(name) for name in wanted} == wanted
    assert "tools" not in request


def test_light_and_dark(tabs: Any, scripted: ScriptedServer) -> None:
    def paper(page: Any) -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = tabs.open(scripted.url, color_scheme="light")
    dark = tabs.open(scripted.url, color_scheme="dark")
    assert paper(light) != paper(dark)
    light.click("#theme")  # always light
    light.click("#theme")  # always dark
    light.reload()
    assert paper(light) == paper(dark)


def test_the_reader_may_scroll_up_meanwhile(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    scripted.scripts["Count"] = text("".join(f"{n}\n\n" for n in range(400)), size=8)
    scripted.pause = 0.01
    send(page, "Count")
    end = page.locator("#to-end")
    top = "document.getElementById('scroller').scrollTop"
    expect(page.locator(".assistant p").nth(60)).to_be_attached()
    assert page.evaluate(top) > 500  # it follows
    page.hover(".assistant")
    page.mouse.wheel(0, -400)
    expect(end).to_be_visible()
    before = page.evaluate(top)
    expect(page.locator(".assistant p").nth(150)).to_be_attached()
    assert page.evaluate(top) == before
    end.click()
    expect(end).to_be_hidden()
    expect(page.locator(".assistant p").nth(250)).to_be_attached()
    assert page.evaluate(top) > before + 1000
    page.keyboard.press("Escape")
    ends_the_answer(page, expect)


def test_the_keyboard(page: Any, scripted: ScriptedServer, expect: Any) -> None:
    page.locator("#prompt").focus()
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    page.locator(".assistant footer").wait_for()
    assert scripted.requests[0]["messages"][0]["content"] == "one\ntwo"
    expect(page.locator("#prompt")).to_be_focused()
    # Enter that ends the composition of a character sends nothing.
    page.fill("#prompt", "ni")
    page.dispatch_event("#prompt", "keydown", {"key": "Enter", "isComposing": True})
    expect(page.locator("#prompt")).to_have_value("ni")
    assert len(scripted.requests) == 1


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


def test_another_tab_learns_of_changes(page: Any, tabs: Any, scripted: ScriptedServer, expect: Any) -> None:
    other = tabs.another(page.context, scripted.url)
    ask(page, "From the first")
    other.click("#conversations a")
    ask(page, "More")
    expect(other.locator(".assistant .markdown")).to_have_text(["You said: From the first", "You said: More"])


def test_a_phone_has_a_drawer(tabs: Any, scripted: ScriptedServer, expect: Any) -> None:
    scripted.scripts["Wide"] = text(
        "```\n" + "wide " * 80 + "\n```\n\n|" + " column |" * 12 + "\n" + "|---" * 12 + "|\n\n" + "w" * 300
    )
    page = tabs.open(scripted.url, **PHONE)
    page.fill("#prompt", "Wide")
    page.press("#prompt", "Enter")  # a new line: on a phone the button sends
    assert scripted.requests == []
    page.tap("#send")
    page.locator(".assistant footer").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("document.getElementById('scroller').scrollWidth <= 390")
    expect(page.locator("#sidebar")).to_be_hidden()
    page.tap("#open-sidebar")
    page.tap("#conversations a")
    expect(page.locator("#sidebar")).to_be_hidden()
    expect(page.locator(".bubble")).to_be_visible()
