"""What is around the answers on the chat page: what it keeps, the list, settings, looks, keyboard, phone."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.chat_page import ask, send
from support.scripted_server import ScriptedServer, text, thinking

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def test_a_reload_finds_the_conversation(page: Any, expect: Any) -> None:
    ask(page, "Remember this")
    page.reload()
    expect(page.locator(".bubble")).to_have_text("Remember this")
    expect(page.locator(".assistant .markdown")).to_have_text("You said: Remember this")
    expect(page.locator("#conversations a")).to_have_text("Remember this")


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


def test_an_import_takes_over_only_what_is_sound(
    page: Any, scripted: ScriptedServer, tmp_path: Path, expect: Any
) -> None:
    message = {
        "id": 1,
        "parent": None,
        "role": "assistant",
        "content": "Hi",
        "usage": {"cached": "<b>"},
        "x": 1,
    }
    conversation = {
        "title": "Odd",
        "messages": [{**message, "error": {"text": "<b>"}, "timing": {"first": 1}}],
    }
    file = tmp_path / "odd.json"
    file.write_text(json.dumps({"format": "hy3-conversations", "conversations": [conversation]}))
    page.set_input_files("#import-file", file)
    page.click("#conversations a")
    expect(page.locator(".assistant .markdown")).to_have_text("Hi")
    expect(page.locator(".speeds")).to_have_text("")
    expect(page.locator(".error")).to_have_count(0)


def test_a_full_or_closed_storage_is_told(
    page: Any, tabs: Any, scripted: ScriptedServer, expect: Any
) -> None:
    page.evaluate("""() => {
        IDBObjectStore.prototype.put = () => { throw new DOMException("full", "QuotaExceededError"); };
    }""")
    ask(page, "Hello")
    expect(page.locator(".toast")).to_contain_text("no room left")
    deny = "IDBFactory.prototype.open = () => { throw new DOMException('no', 'SecurityError'); };"
    closed = tabs.open(scripted.url, script=deny)
    expect(closed.locator("#welcome-note")).to_contain_text("keeps nothing")
    ask(closed, "Hello")
    expect(closed.locator(".assistant .markdown")).to_have_text("You said: Hello")


def test_another_tab_learns_of_changes(page: Any, tabs: Any, scripted: ScriptedServer, expect: Any) -> None:
    other = tabs.another(page.context, scripted.url)
    ask(page, "From the first")
    other.click("#conversations a")
    ask(page, "More")
    expect(other.locator(".assistant .markdown")).to_have_text(["You said: From the first", "You said: More"])


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


CONTRASTS = """() => {
    const channel = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const probe = document.body.appendChild(document.createElement("p"));
    const light = (name) => {
        probe.style.color = `var(--${name})`;
        const parts = getComputedStyle(probe).color.match(/[\\d.]+/g);
        const [r, g, b] = parts.map((value) => channel(value / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
    const grounds = ["paper", "side", "raised", "code", "bubble"];
    const pairs = ["ink", "soft"].flatMap((ink) => grounds.map((ground) => [ink, ground]));
    for (const ink of ["accent", "string", "number"]) pairs.push([ink, "code"]);
    pairs.push(["accent", "paper"], ["accent", "raised"]);
    pairs.push(["on-accent", "accent"], ["bad", "bad-tint"], ["bad", "paper"], ["ink", "tint"]);
    return pairs.map(([ink, ground]) => [`${ink} on ${ground}`, ratio(ink, ground)]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(tabs: Any, scripted: ScriptedServer, scheme: str) -> None:
    ratios = dict(tabs.open(scripted.url, color_scheme=scheme).evaluate(CONTRASTS))
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}  # WCAG 2, AA


# Where the page stands once the browser's smooth scrolling has come to rest.
STANDING = """async () => {
    const scroller = document.getElementById('scroller');
    for (let top = -1, frames = 0; frames < 10; frames = scroller.scrollTop === top ? frames + 1 : 0) {
        top = scroller.scrollTop;
        await new Promise(requestAnimationFrame);
    }
    return scroller.scrollTop;
}"""


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
    before = page.evaluate(STANDING)
    expect(page.locator(".assistant p").nth(200)).to_be_attached()
    assert page.evaluate(top) == before
    end.click()
    expect(end).to_be_hidden()
    expect(page.locator(".assistant p").nth(300)).to_be_attached()
    assert page.evaluate(top) > before + 1000


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
    page.evaluate("""() => {
        const enter = new KeyboardEvent("keydown", { key: "Enter", keyCode: 229, bubbles: true });
        document.getElementById("prompt").dispatchEvent(enter);
    }""")
    expect(page.locator("#prompt")).to_have_value("ni")
    assert len(scripted.requests) == 1


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
