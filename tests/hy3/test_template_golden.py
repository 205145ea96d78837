"""The product's own chat template against text rendered by the published Hy3 template, byte for byte.

tests/data/chat_template.json holds the cases: arguments in, text or error message out. The environment is
built here the way `transformers` builds it, so that the template file is tested by itself.
"""

import json
from pathlib import Path

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = Path(__file__).parents[2]
CASES = json.loads((ROOT / "tests/data/chat_template.json").read_text(encoding="utf-8"))
SOURCE = (ROOT / "src/hy3/templates/hy3.jinja").read_text(encoding="utf-8")


def raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def tojson(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def render(source: str, args: dict) -> str:
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env.from_string(source).render(**args)


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_golden(case: dict) -> None:
    if case["error"] is None:
        assert render(SOURCE, case["args"]) == case["expected"]
    else:
        with pytest.raises(jinja2.TemplateError) as failure:
            render(SOURCE, case["args"])
        assert str(failure.value) == case["error"]


def test_there_are_cases_of_both_kinds() -> None:
    assert len(CASES) == 14
    assert sum(c["error"] is not None for c in CASES) == 2


def test_unknown_role_is_named() -> None:
    with pytest.raises(jinja2.TemplateError, match="unknown role narrator"):
        render(SOURCE, {"messages": [{"role": "narrator", "content": "x"}]})


def test_a_changed_separator_shows() -> None:
    """The cases can fail: one lost line end in the template fails those with tools, and no others."""
    broken = SOURCE.replace("<tool_sep:opensource>\\n", "<tool_sep:opensource>")
    assert broken != SOURCE
    differing = [c["name"] for c in CASES if not c["error"] and render(broken, c["args"]) != c["expected"]]
    assert differing == [
        "tools offered",
        "tool call and response",
        "parallel calls, two responses, next user",
    ]
