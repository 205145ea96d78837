"""The page's Markdown, in Chromium: what it makes of a text, whole and in pieces, and of a hostile one."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.scripted_server import ScriptedServer, running

pytestmark = pytest.mark.browser

RENDER = """async ([source, size]) => {
    const { MarkdownStream } = await import("/page/markdown.js");
    const root = document.createElement("div");
    const stream = new MarkdownStream(root);
    for (let at = 0; at < source.length; at += size) stream.push(source.slice(at, at + size));
    stream.finish();
    return root.innerHTML;
}"""

# What every code block, link and table has around it, shortened in the cases below.
FRAMES = {
    r'<figure class="code"><figcaption><span>(.*?)</span>': r"<pre \1>",
    r'<button class="quiet" data-action="copy-code" type="button">Copy</button></figcaption>': "",
    r'<pre tabindex="0"><code>(.*?)</code></pre></figure>': r"\1</pre>",
    r'<a href="(.*?)" target="_blank" rel="noopener noreferrer" title="\1">': r"<a \1>",
    r'<div class="table" tabindex="0"><table>(.*?)</table></div>': r"<table>\1</table>",
    r' (?:class="align-|data-kind=")(.*?)"': r" \1",
    r'<span class="math">(.*?)</span>': r"<math>\1</math>",
}
CASES = {
    "one\ntwo\n\nthree": "<p>one<br>two</p><p>three</p>",
    "# One\n### Three ###\n#no": "<h1>One</h1><h3>Three</h3><p>#no</p>",
    "**b** *c* ~~d~~ _e_ __f__": (
        "<p><strong>b</strong> <em>c</em> <del>d</del> <em>e</em> <strong>f</strong></p>"
    ),
    "***a*** **b*c*d**": "<p><em><strong>a</strong></em> <strong>b<em>c</em>d</strong></p>",
    "snake_case_name 2 * 3 * 4 **open": "<p>snake_case_name 2 * 3 * 4 **open</p>",
    "**“强调”**文字": "<p><strong>“强调”</strong>文字</p>",
    "`a*b*` ``c`d`` `open": "<p><code>a*b*</code> <code>c`d</code> `open</p>",
    r"\*not\* \\ \(x_1_\) $$a*b*$$": r"<p>*not* \ <math>\(x_1_\)</math> <math>$$a*b*$$</math></p>",
    "[a *b*](https://x.org/p_(q) 'T')": "<p><a https://x.org/p_(q)>a <em>b</em></a></p>",
    "https://x.org/a_b_c. (http://y.org/)": (
        "<p><a https://x.org/a_b_c>https://x.org/a_b_c</a>. (<a http://y.org/>http://y.org/</a>)</p>"
    ),
    "[https://x.org/](https://y.org/)": "<p><a https://y.org/>https://x.org/</a></p>",
    "![a picture](https://x.org/p.png)": "<p><a https://x.org/p.png>a picture</a></p>",
    "&lt;b&gt; &#65; &nope; a<br>b": "<p>&lt;b&gt; A &amp;nope; a<br>b</p>",
    "- a\n- b\n  - c\n\n  m\n\n- d": (
        "<ul -><li><p>a</p></li><li><p>b</p><ul -><li><p>c</p></li></ul><p>m</p></li><li><p>d</p></li></ul>"
    ),
    "3. a\n4. b\n- c": (
        '<ol . start="3"><li><p>a</p></li><li><p>b</p></li></ol><ul -><li><p>c</p></li></ul>'
    ),
    "1. a\n  - b": '<ol . start="1"><li><p>a</p><ul -><li><p>b</p></li></ul></li></ol>',
    "- [ ] a\n- [x] b": "<ul -><li><p>☐ a</p></li><li><p>☑ b</p></li></ul>",
    "born in\n1986. A year": "<p>born in<br>1986. A year</p>",
    "> a\n> > b\nc\n\nd": ("<blockquote><p>a</p><blockquote><p>b<br>c</p></blockquote></blockquote><p>d</p>"),
    "a\n---\nb": "<p>a</p><hr><p>b</p>",
    "```py x\n<b>&\n\n  *c*\n```\nd": "<pre py>&lt;b&gt;&amp;\n\n  *c*\n</pre><p>d</p>",
    "~~~\n```\n~~~~": "<pre >```\n</pre>",
    "```\nopen": "<pre >open</pre>",
    "1. a\n   ```sh\n   b\n   ```": '<ol . start="1"><li><p>a</p><pre sh>b\n</pre></li></ol>',
    "x\n| a | b |\n|:-:|--:|\n| `1` | 2 \\| 3 |\n| 4 |\n\ny": (
        "<p>x</p><table><thead><tr><th center>a</th><th right>b</th></tr></thead>"
        "<tbody><tr><td center><code>1</code></td><td right>2 | 3</td></tr>"
        "<tr><td center>4</td><td right></td></tr></tbody></table><p>y</p>"
    ),
    "a | b\nc": "<p>a | b<br>c</p>",
}


def brief(html: str) -> str:
    for frame, short in FRAMES.items():
        html = re.sub(frame, short, html, flags=re.DOTALL)
    return html


@pytest.fixture(scope="module")
def module_page(browser: Any) -> Iterator[Any]:
    """A page whose modules the tests import; they leave nothing in it."""
    with running(ScriptedServer({})) as server:
        page = browser.new_page()
        page.goto(server.url)
        yield page
        page.close()


@pytest.fixture
def render(module_page: Any) -> Callable[..., str]:
    return lambda source, size=1 << 30: module_page.evaluate(RENDER, [source, size])


@pytest.mark.parametrize("source", CASES)
def test_renders(render: Any, source: str) -> None:
    assert brief(render(source)) == CASES[source]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_stream_ends_as_the_whole_text_does(render: Any, size: int) -> None:
    for source in [*CASES, "\n\n".join(CASES), "\r\n".join(CASES)]:
        assert render(source, size) == render(source), source


COLOURS = """async ([source, language]) => {
    const { highlight } = await import("/page/highlight.js");
    const root = document.createElement("code");
    root.append(...highlight(source, language));
    const kinds = [...root.children].map((span) => [span.className, span.textContent]);
    return [root.textContent, kinds];
}"""


@pytest.mark.parametrize(
    ("language", "source", "colours"),
    [
        ("python", "if a == '#': # no", [("keyword", "if"), ("string", "'#'"), ("comment", "# no")]),
        ("python", 'x = """a\n"b" 1"""', [("string", '"""a\n"b" 1"""')]),
        ("js", "let u = `//${1}` // a", [("keyword", "let"), ("string", "`//${1}`"), ("comment", "// a")]),
        ("c", "/* if\n*/ 0x1F 2.5e3", [("comment", "/* if\n*/"), ("number", "0x1F"), ("number", "2.5e3")]),
        ("sh", "echo $# 'open", []),
        ("c", "<b>/* open", [("comment", "/* open")]),
        ("text", "if 1", []),
        ("constructor", "if 1", []),
    ],
)
def test_code_is_coloured(
    module_page: Any, language: str, source: str, colours: list[tuple[str, str]]
) -> None:
    text, found = module_page.evaluate(COLOURS, [source, language])
    assert text == source
    assert [(kind.removeprefix("code-"), word) for kind, word in found] == colours


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](&#106;avascript:alert(1))",
    "[a](java\nscript:alert(1)) [b](data:text/html,<script>1</script>) [c](vbscript:x)",
    "[a](//evil.org) [b](/v1/models) [c](file:///etc/passwd)",
    '[a](https://x.org/"onmouseover="alert(1)) [b](https://x.org/ "t" onclick="alert(1)")',
    '<https://x.org/" onclick="alert(1)> <javascript:alert(1)> https://x.org/\'"><script>1</script>',
    '```js"><script>alert(1)</script>\n</code></pre><script>alert(1)</script>\n```',
    "| <script>1</script> | b |\n|---|---|\n| <img src=x onerror=1> | [x](javascript:1) |",
    '![x](javascript:alert(1)) ![x](https://x.org/x.png" onerror="alert(1))',
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62;1&#60;/script&#62; &#x110000; &#0;",
    "# <svg onload=alert(1)>\n> <iframe src=javascript:1>\n- <style>*{}</style>\n1. <form action=x>",
    "\\<script>1\\</script> `</code><script>1</script>` $$<script>1</script>$$ \\(<img src=x>\\)",
]
TAGS = {"p", "br", "em", "strong", "del", "code", "span", "a", "ul", "ol", "li", "h1", "blockquote", "hr"}
TAGS |= {"figure", "figcaption", "button", "pre", "div", "table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {
    "class",
    "href",
    "target",
    "rel",
    "title",
    "type",
    "tabindex",
    "start",
    "data-kind",
    "data-action",
}
INSPECT = """async (sources) => {
    const { MarkdownStream } = await import("/page/markdown.js");
    const found = { tags: new Set(), attributes: new Set(), links: [] };
    for (const source of sources) {
        const root = document.createElement("div");
        document.body.append(root);
        const stream = new MarkdownStream(root);
        for (const character of source) stream.push(character);
        stream.finish();
        for (const element of root.querySelectorAll("*")) {
            found.tags.add(element.localName);
            for (const { name } of element.attributes) found.attributes.add(name);
            if (element.href) found.links.push(element.href);
        }
        root.remove();
    }
    return { tags: [...found.tags], attributes: [...found.attributes], links: found.links };
}"""


def test_hostile_text_injects_nothing(tabs: Any, scripted: Any) -> None:
    page = tabs.open(scripted.url)
    page.on("dialog", lambda dialog: tabs.problems.append(f"dialog {dialog.message}"))
    mixed = [*HOSTILE, *(f"{a}\n{b}" for a in HOSTILE for b in HOSTILE), *("> - " + a for a in HOSTILE)]
    found = page.evaluate(INSPECT, mixed)
    assert set(found["tags"]) <= TAGS
    assert set(found["attributes"]) <= ATTRIBUTES
    assert found["links"] and all(re.match(r"https?://x\.org/", address) for address in found["links"])


PIECES = [
    "*",
    "_a",
    "*a ",
    "a* ",
    "*a **b ",
    "~~a",
    "[",
    "](",
    "[a](",
    "[a](b",
    "![",
    "(",
    "`",
    "` `` ",
    "\\",
]
PIECES += ["<", "<https://", "https://", "&#", "\\(", "$$", "```\n", ">", "> ", "- ", "1. ", "- \n", "#", "|"]
PIECES += ["| a |\n|---|\n", "a|b\n-|-\n", " ", "\n"]


@pytest.mark.parametrize("piece", PIECES)
def test_no_text_takes_long_or_fails(render: Any, piece: str) -> None:
    source = piece * (40_000 // len(piece))
    assert len(re.sub(r"<[^>]*>", "", render(source))) <= 8 * len(source)


GROWS = """async ([head, body, tail]) => {
    const { MarkdownStream } = await import("/page/markdown.js");
    const root = document.createElement("div");
    const stream = new MarkdownStream(root);
    const nodes = (node) => [...node.childNodes].flatMap((child) => [child, ...nodes(child)]);
    stream.push(head);
    stream.push(body);
    const before = nodes(root);
    stream.push(tail);
    const after = new Set(nodes(root));
    return [before.length, before.filter((node) => !after.has(node)).length];
}"""


@pytest.mark.parametrize(
    ("body", "tail"),
    [
        ("A paragraph.\n\n" * 50, "More"),
        ("- an item\n" * 50, "- more"),
        ("```py\n" + "code()\n" * 50, "more()\n"),
        ("> q\n\n# H\n\n" * 50, "More"),
    ],
    ids=["paragraphs", "list", "code", "blocks"],
)
def test_only_the_end_is_drawn_again(module_page: Any, body: str, tail: str) -> None:
    nodes, gone = module_page.evaluate(GROWS, ["Before.\n\n", body, tail])
    assert nodes > 5 and gone <= 4, (nodes, gone)
