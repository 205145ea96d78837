"""POST /v1/completions, by the official client: against what the model says in this process."""

from itertools import accumulate
from typing import Any

import numpy as np
import pytest

import hy3core

PROMPT = "11+22="


def ask(server: Any, **fields: Any) -> Any:
    return server.openai().completions.create(
        **{"model": "hy3-tiny", "prompt": PROMPT, "temperature": 0, "max_tokens": 8, **fields}
    )


def alone(model: hy3core.Model, ids: list[int], n: int, **sampling: Any) -> str:
    out = list(model.session(ctx=512).generate(ids, max_tokens=n, sampling=hy3core.Sampling(**sampling)))
    return model.tokenizer.decode(out, special=True)


def scores(model: hy3core.Model, ids: list[int]) -> np.ndarray:
    """Log-probabilities of all tokens at each place."""
    logits = model.session(ctx=512).eval(ids, logits="all").astype(np.float64)
    return (
        logits
        - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
        - logits.max(1, keepdims=True)
    )


@pytest.fixture
def model(server: Any) -> hy3core.Model:
    return server.service.model


def test_goes_on_as_the_model_does_alone(server: Any, model: hy3core.Model) -> None:
    ids = model.tokenizer.encode(PROMPT)
    completion = ask(server, max_tokens=8)
    assert completion.object == "text_completion"
    assert completion.choices[0].text == alone(model, ids, 8)
    assert completion.usage.prompt_tokens == len(ids)
    drawn = ask(server, temperature=1.0, top_p=1.0, seed=5)
    assert drawn.choices[0].text == alone(model, ids, 8, temperature=1.0, seed=5)
    assert ask(server, prompt=ids).choices[0].text == completion.choices[0].text


def test_several_prompts_with_several_answers(server: Any, model: hy3core.Model) -> None:
    prompts = [PROMPT, "The sky was", "5+5="]
    fields = {"n": 2, "temperature": 1.2, "seed": 3, "max_tokens": 6}
    together = ask(server, prompt=prompts, **fields).choices
    assert [choice.index for choice in together] == list(range(6))
    one_by_one = [
        choice.text for prompt in prompts for choice in ask(server, prompt=prompt, **fields).choices
    ]
    assert [choice.text for choice in together] == one_by_one
    ids = [model.tokenizer.encode(prompt) for prompt in prompts]
    completion = ask(server, prompt=ids, **fields)
    assert [choice.text for choice in completion.choices] == one_by_one
    assert completion.usage.prompt_tokens == sum(map(len, ids))


def test_max_tokens_is_16_unless_said(server: Any) -> None:
    completion = server.openai().completions.create(model="hy3-tiny", prompt="The sky was blue. The")
    assert completion.usage.completion_tokens <= 16


@pytest.mark.parametrize("prompt", ["11+22=33, the sky was 東京 blue", "é"])
def test_the_log_probabilities_of_a_prompt(server: Any, model: hy3core.Model, prompt: str) -> None:
    ids = model.tokenizer.encode(prompt)
    expected = scores(model, ids)
    for _ in range(2):  # the second time its prefix is cached
        choice = ask(server, prompt=prompt, echo=True, max_tokens=0, logprobs=3).choices[0]
        assert choice.text == prompt and choice.finish_reason == "length"
        found = choice.logprobs
        assert len(found.tokens) == len(ids)
        assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
        for place in range(1, len(ids)):
            row = expected[place - 1]
            assert found.token_logprobs[place] == pytest.approx(row[ids[place]], abs=1e-4)
            top = found.top_logprobs[place]
            assert max(top.values()) == pytest.approx(row.max(), abs=1e-4)
            assert len(top) in (3, 4) and found.tokens[place] in top
        assert found.text_offset[0] == 0 and found.text_offset == sorted(found.text_offset)


def test_tokens_and_offsets_make_up_the_text(server: Any) -> None:
    choice = ask(server, prompt="The sky was blue.", echo=True, logprobs=0, max_tokens=12).choices[0]
    assert "".join(choice.logprobs.tokens).startswith(choice.text)
    lengths = [len(token) for token in choice.logprobs.tokens]
    assert choice.logprobs.text_offset == [0, *accumulate(lengths)][:-1]
    assert all(len(top) == 1 for top in choice.logprobs.top_logprobs[1:])


def test_an_end_token_has_a_score(server: Any, model: hy3core.Model) -> None:
    """Who adds up the scores of a text leaves out the last token, whatever it is."""
    template = server.service.prompter._template
    prompt = template.render([{"role": "user", "content": "11+22=?"}], add_generation_prompt=True)
    choice = ask(server, prompt=prompt, logprobs=1, max_tokens=20).choices[0]
    assert choice.finish_reason == "stop"
    assert choice.text == ask(server, prompt=prompt, max_tokens=20).choices[0].text
    last = model.tokenizer.token_id(choice.logprobs.tokens[-1])
    assert last in model.tokenizer.eos_ids
    assert "".join(choice.logprobs.tokens[:-1]) == choice.text
    scored = ask(server, prompt=prompt + choice.text, echo=True, logprobs=1, max_tokens=1).choices[0]
    assert len(scored.logprobs.tokens) == len(model.tokenizer.encode(prompt + choice.text)) + 1


def test_think_tags_are_text(server: Any) -> None:
    prompt = "<think:opensource>1+1"
    assert ask(server, prompt=prompt, echo=True, max_tokens=2).choices[0].text.startswith(prompt)
    tag = server.service.model.tokenizer.token_id("</think:opensource>")
    assert ask(server, logit_bias={str(tag): 100}, max_tokens=2).choices[0].text == "</think:opensource>" * 2


def test_the_stream_adds_up_to_the_answer(server: Any) -> None:
    for fields in ({"echo": True, "n": 2, "temperature": 1.0, "seed": 1}, {"logprobs": 2, "stop": ["3"]}):
        whole = ask(server, **fields)
        chunks = list(ask(server, stream=True, stream_options={"include_usage": True}, **fields))
        for choice in whole.choices:
            mine = [each for chunk in chunks for each in chunk.choices if each.index == choice.index]
            assert "".join(each.text for each in mine) == choice.text
            assert [each.finish_reason for each in mine if each.finish_reason] == [choice.finish_reason]
            if choice.logprobs:
                assert [t for each in mine for t in each.logprobs.tokens] == choice.logprobs.tokens
                assert [t for each in mine for t in each.logprobs.text_offset] == choice.logprobs.text_offset
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_the_prefix_is_cached(server: Any) -> None:
    prompt = "The sky was blue. The passcode is K7PQ2. The door was open. " * 4
    ask(server, prompt=prompt)
    usage = ask(server, prompt=prompt).usage
    assert 0 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt.1"),
        ({"prompt": [[1, 2], [99999]]}, "prompt.1"),
        ({"prompt": ["a"] * 1000}, "prompt"),
        ({"prompt": "word " * 5000}, "prompt"),
        ({"logprobs": 21}, "logprobs"),
        ({"stream": True, "echo": True, "logprobs": 1}, "stream"),
        ({"max_tokens": -1}, "max_tokens"),
    ],
)
def test_bad_requests_name_the_field(server: Any, fields: dict[str, Any], param: str) -> None:
    body = {"prompt": PROMPT, **fields}
    answer = server.http().post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
