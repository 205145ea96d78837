"""POST /v1/chat/completions, by the official client."""

from typing import Any

import pytest

QUESTION = [{"role": "user", "content": "11+22+33=?"}]


def ask(server: Any, **fields: Any) -> Any:
    return server.openai().chat.completions.create(
        **{"model": "hy3-tiny", "messages": QUESTION, "temperature": 0, **fields}
    )


def streamed(server: Any, **fields: Any) -> list[Any]:
    return list(ask(server, stream=True, stream_options={"include_usage": True}, **fields))


def deltas(chunks: list[Any], field: str, choice: int = 0) -> str:
    """A field of the deltas, put together."""
    mine = [each for chunk in chunks for each in chunk.choices if each.index == choice]
    return "".join(getattr(each.delta, field, None) or "" for each in mine)


def test_answers_as_the_model_does_alone(server: Any) -> None:
    completion = ask(server)
    choice = completion.choices[0]
    assert choice.message.role == "assistant"
    assert "66" in choice.message.content
    assert choice.finish_reason == "stop"
    usage = completion.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens > 10 and usage.completion_tokens > 1
    assert completion.object == "chat.completion" and completion.model == "hy3-tiny"


def test_the_stream_adds_up_to_the_answer(server: Any) -> None:
    whole = ask(server)
    chunks = streamed(server)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert deltas(chunks, "content") == whole.choices[0].message.content
    reasons = [each.finish_reason for chunk in chunks for each in chunk.choices]
    assert [reason for reason in reasons if reason] == ["stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_the_length_is_limited(server: Any, limit: str) -> None:
    completion = ask(server, **{limit: 2})
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage.completion_tokens == 2


def test_thinking_is_apart_from_the_answer(server: Any) -> None:
    whole = ask(server, reasoning_effort="high")
    message = whole.choices[0].message
    assert message.reasoning_content and "<think" not in message.reasoning_content
    assert message.content and "think" not in message.content
    details = whole.usage.completion_tokens_details
    assert 0 < details.reasoning_tokens < whole.usage.completion_tokens
    chunks = streamed(server, reasoning_effort="high")
    assert deltas(chunks, "reasoning_content") == message.reasoning_content
    assert deltas(chunks, "content") == message.content


def test_stop_strings_never_show(server: Any) -> None:
    whole = ask(server, messages=[{"role": "user", "content": "hello there"}])
    text = whole.choices[0].message.content
    stop = text[4:9]  # begins and ends within tokens
    short = ask(server, messages=[{"role": "user", "content": "hello there"}], stop=[stop, "never"])
    assert short.choices[0].message.content == text[:4]
    assert short.choices[0].finish_reason == "stop"
    assert short.usage.completion_tokens < whole.usage.completion_tokens
    chunks = streamed(server, messages=[{"role": "user", "content": "hello there"}], stop=stop)
    assert deltas(chunks, "content") == text[:4]
    assert chunks[-1].usage == short.usage


def test_stop_strings_do_not_count_in_the_reasoning(server: Any) -> None:
    whole = ask(server, reasoning_effort="high")
    reasoning = whole.choices[0].message.reasoning_content
    again = ask(server, reasoning_effort="high", stop=reasoning[:3])
    assert again.choices[0].message.reasoning_content == reasoning


def test_choices_differ_and_a_seed_brings_them_back(server: Any) -> None:
    fields = {"messages": [{"role": "user", "content": "x"}], "temperature": 20.0, "max_tokens": 12, "n": 3}
    first, again = ask(server, seed=7, **fields), ask(server, seed=7, **fields)
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert [choice.message.content for choice in again.choices] == texts
    other = ask(server, seed=8, **fields)
    assert [choice.message.content for choice in other.choices] != texts
    chunks = streamed(server, seed=7, **fields)
    assert [deltas(chunks, "content", i) for i in range(3)] == texts
    assert first.usage.completion_tokens == chunks[-1].usage.completion_tokens > 12


def test_logprobs_belong_to_the_tokens_of_the_answer(server: Any) -> None:
    choice = ask(server, logprobs=True, top_logprobs=3, reasoning_effort="high").choices[0]
    scores = choice.logprobs.content
    assert b"".join(bytes(score.bytes) for score in scores).decode() == choice.message.content
    for score in scores:
        assert score.logprob <= 0 and len(score.top_logprobs) == 3
        likeliest = score.top_logprobs[0]
        assert (likeliest.token, likeliest.logprob) == (score.token, score.logprob)  # greedy
        assert [each.logprob for each in score.top_logprobs] == sorted(
            (each.logprob for each in score.top_logprobs), reverse=True
        )
    chunks = streamed(server, logprobs=True, top_logprobs=3, reasoning_effort="high")
    told = [each.logprobs.content for chunk in chunks for each in chunk.choices if each.logprobs]
    assert [score for some in told for score in some] == scores
    assert ask(server).choices[0].logprobs is None


def test_the_logprobs_of_a_stop_string_are_left_out(server: Any) -> None:
    messages = [{"role": "user", "content": "hello there"}]
    text = ask(server, messages=messages).choices[0].message.content
    choice = ask(server, messages=messages, stop=text[4:9], logprobs=True).choices[0]
    shown = b"".join(bytes(score.bytes) for score in choice.logprobs.content).decode()
    assert shown.startswith(text[:4]) and len(choice.logprobs.content[-1].bytes) > len(shown) - 4


def test_a_bias_forbids_a_token(server: Any) -> None:
    scores = ask(server, logprobs=True).choices[0].logprobs.content
    tokenizer = server.service.model.tokenizer
    banned = tokenizer.token_id(bytes(scores[0].bytes))
    answer = ask(server, logit_bias={str(banned): -100}, max_tokens=3, logprobs=True).choices[0]
    assert scores[0].bytes not in [score.bytes for score in answer.logprobs.content]


def test_penalties_change_the_answer(server: Any) -> None:
    hot = {"temperature": 3.0, "seed": 1, "max_tokens": 60}
    plain = ask(server, **hot).choices[0].message
    assert ask(server, **hot, presence_penalty=0.0, frequency_penalty=0.0).choices[0].message == plain
    for penalty in ("presence_penalty", "frequency_penalty"):
        assert ask(server, **hot, **{penalty: 2.0}).choices[0].message != plain


def test_other_samplers_are_reached_by_extra_fields(server: Any) -> None:
    hot = {"temperature": 50.0, "seed": 1, "max_tokens": 8}
    greedy = ask(server, max_tokens=8).choices[0].message.content
    assert ask(server, **hot).choices[0].message.content != greedy
    for extra in ({"top_k": 1}, {"min_p": 1.0}):
        assert ask(server, **hot, extra_body=extra).choices[0].message.content == greedy


def test_the_reasoning_ends_with_its_budget(server: Any) -> None:
    fields = {"messages": [{"role": "user", "content": "31+75+49 = ?"}], "reasoning_effort": "low"}
    free = ask(server, **fields)
    thought = free.usage.completion_tokens_details.reasoning_tokens
    assert thought > 6
    short = ask(server, **fields, extra_body={"thinking_budget": 4})
    message = short.choices[0].message
    assert short.usage.completion_tokens_details.reasoning_tokens == 4 + 1  # and the tag
    assert free.choices[0].message.reasoning_content.startswith(message.reasoning_content)
    assert message.content and short.choices[0].finish_reason == "stop"
    ample = ask(server, **fields, extra_body={"thinking_budget": 500})
    assert ample.choices[0].message == free.choices[0].message


@pytest.mark.parametrize("effort", ["none", "no_think", "minimal", "low", "medium", "high"])
def test_every_effort_of_the_clients_is_one_of_the_model(server: Any, effort: str) -> None:
    message = ask(server, reasoning_effort=effort).choices[0].message
    assert hasattr(message, "reasoning_content") == (effort in ("low", "medium", "high"))
    kwargs = {"chat_template_kwargs": {"reasoning_effort": effort}}
    assert ask(server, extra_body=kwargs).choices[0].message == message


def test_preserved_thinking_brings_earlier_reasoning_into_the_prompt(server: Any) -> None:
    talk = [
        *QUESTION,
        {"role": "assistant", "content": "66", "reasoning_content": "11+22=33, 33+33=66"},
        {"role": "user", "content": "1+2+3=?"},
    ]
    dropped = ask(server, messages=talk).usage.prompt_tokens
    kept = ask(server, messages=talk, extra_body={"preserved_thinking": True}).usage.prompt_tokens
    assert kept > dropped + 8
    by_kwargs = ask(server, messages=talk, extra_body={"chat_template_kwargs": {"preserved_thinking": True}})
    assert by_kwargs.usage.prompt_tokens == kept
