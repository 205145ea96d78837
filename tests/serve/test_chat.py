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
