"""Rendering: the same text as the golden cases through both ways, and foreign templates bounded in time and
size."""

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from hy3 import sandbox, template
from hy3.errors import Hy3Error
from hy3.template import ChatTemplate, TemplateError

ROOT = Path(__file__).parents[2]
CASES = json.loads((ROOT / "tests/data/chat_template.json").read_text(encoding="utf-8"))


def foreign(source: str, **names: str) -> ChatTemplate:
    return ChatTemplate(source, from_file=True, names=names)


@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_golden(case: dict, from_file: bool) -> None:
    chat_template = ChatTemplate(template.own().source, from_file)
    if case["error"] is None:
        assert chat_template.render(**case["args"]) == case["expected"]
    else:
        with pytest.raises(TemplateError) as failure:
            chat_template.render(**case["args"])
        assert failure.value.reason == case["error"]
        assert failure.value.line is not None
        assert f"failed at line {failure.value.line}: {case['error']}." in str(failure.value)


def test_render_is_the_products_own() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    assert template.render(messages, add_generation_prompt=True) == template.own().render(
        messages, add_generation_prompt=True
    )


def test_a_model_without_a_template_gets_the_products_own() -> None:
    assert template.for_model(SimpleNamespace(metadata={})) is template.own()


def test_a_models_own_template_is_rendered_with_its_tokens() -> None:
    model = SimpleNamespace(
        metadata={
            "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token ~ pad_token }}",
            "tokenizer.ggml.tokens": ["<b>", "<e>"],
            "tokenizer.ggml.bos_token_id": 0,
            "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.padding_token_id": 2,  # past the vocabulary: as if absent
        }
    )
    assert template.for_model(model).render([{"role": "user", "content": "Hi"}]) == "<b>Hi<e>"


def test_a_template_that_is_no_string_is_refused() -> None:
    with pytest.raises(Hy3Error, match=r"tokenizer\.chat_template is not a string\. Convert the model"):
        template.for_model(SimpleNamespace(metadata={"tokenizer.chat_template": 7}))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "{% for m in messages %}\n  {{ m.content }}\n  {% endfor %}\n",
            "  é<&>\n",
        ),  # trim_blocks, lstrip_blocks
        ("{{ messages | tojson }}", '[{"role": "user", "content": "é<&>"}]'),
        ("{{ messages[0] | tojson(indent=1) }}", '{\n "role": "user",\n "content": "é<&>"\n}'),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% generation %}a{% set b = 1 %}{% endgeneration %}{{ b is defined }}", "aFalse"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}", "2"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ name is defined }}{{ messages[0].name is defined }}", "FalseFalse"),  # None counts as absent
    ],
)
def test_the_environment_is_that_of_transformers(source: str, expected: str) -> None:
    assert foreign(source).render([{"role": "user", "content": "é<&>", "name": None}]) == expected


@pytest.mark.parametrize(
    ("source", "line", "reason"),
    [
        ("\n\n{% if %}", 3, "Expected an expression, got 'end of statement block'"),
        ("a\nb\n{{ nothing.at.all }}", 3, "'nothing' is undefined"),
        ("\n{{ 1 / 0 }}", 2, "ZeroDivisionError: division by zero"),
        ("\n{{ raise_exception('only users may speak') }}", 2, "only users may speak"),
        ("{{ ''.__class__.__mro__ }}", 1, "access to attribute '__class__' of 'str' object is unsafe."),
        ("{% set ns = namespace() %}{% set ns._x = 1 %}", 1, "a namespace cannot hold '_x'"),
        ("{{ messages.append(1) }}", 1, "access to attribute 'append' of 'list' object is unsafe."),
        ("{% macro f(x) %}\n{{ x.y.z }}{% endmacro %}\n{{ f(1) }}", 2, "'int object' has no attribute 'y'"),
    ],
)  # fmt: skip
def test_an_error_says_which_line(source: str, line: int, reason: str) -> None:
    with pytest.raises(TemplateError) as failure:
        foreign(source).render([])
    assert failure.value.line == line
    assert failure.value.reason.startswith(reason)
    assert str(failure.value).startswith(f"The model file's chat template failed at line {line}: {reason}")
    assert str(failure.value).endswith(
        "`hy3 run --raw` does without it; or convert the model again, with a template that works."
    )


DOUBLING = (
    "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
)
GROWING = "{% set ns = namespace(x='a') %}{% for i in range(60) %}"
BOMBS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a loop's condition": "{% for a in range(99999) if range(99999) | sum == 1 %}{% endfor %}",
    "range": "{{ range(10**9) | list | length }}",
    "times": "{{ 'a' * 10**10 }}",
    "constant times": "{{ ('a' * 10**9) * 4 }}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "doubling text": GROWING + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "doubling blocks": GROWING + "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "comparing doubled lists": DOUBLING + "{{ ns.x == ns.y }}",
    "printing a doubled list": DOUBLING + "{{ ns.x }}",
    "JSON of a doubled list": DOUBLING + "{{ ns.x | tojson }}",
    "center": "{{ 'a' | center(10**10) }}",
    "a width": "{{ '%10000000000d' % 1 }}",
    "a width of format": "{{ '{:>10000000000}'.format(1) }}",
    "ljust": "{{ 'a'.ljust(10**10) }}",
    "replace": "{{ ('a' * 10**6) | replace('a', 'b' * 10**6) }}",
    "indent": "{{ ('a\n' * 10**6) | indent(10**6) }}",
    "join": "{{ range(99999) | map('string') | map('center', 99999) | join }}",
    "lipsum": "{{ lipsum(n=10**8) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a tree of macros": "{% macro f(n) %}{% if n %}{{ f(n-1) ~ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "output": "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "parentheses": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "nested loops": "{% for a in [1] %}" * 300 + "{% endfor %}" * 300,
    "length": "x" * (sandbox.MAX_SOURCE + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_in_an_error_in_time(name: str) -> None:
    bomb = foreign(BOMBS[name])
    foreign("").render([])  # the process is up
    start = time.monotonic()
    with pytest.raises(TemplateError) as failure:
        bomb.render([])
    # The last addend is for a busy machine.
    assert time.monotonic() - start < sandbox.SECONDS + template.GRACE_SECONDS + 1.5
    assert any(
        words in failure.value.reason
        for words in (
            "took longer than 2 seconds",
            "took longer than 2.5 seconds",
            "too much memory",
            "too deeply",
            "longer than",
            "Range too big",
            "allowed",
        )
    )
    assert foreign("{{ 6 * 11 }}").render([]) == "66"  # and the next one works


def test_arguments_that_are_no_json_are_an_error() -> None:
    with pytest.raises(TemplateError, match="its arguments are not JSON"):
        foreign("").render([{"role": "user", "content": object()}])


def test_threads_share_the_process() -> None:
    results: dict[int, str] = {}

    def work(number: int) -> None:
        for _ in range(20):
            results[number] = foreign("{{ n }}").render([], n=number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: str(number) for number in range(4)}
