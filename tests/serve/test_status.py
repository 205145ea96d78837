"""GET /health, /metrics and /v1/models."""

from typing import Any

import pytest


def metrics(server: Any) -> dict[str, float]:
    with server.http() as http:
        lines = http.get("/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")}


def test_health(server: Any) -> None:
    with server.http() as http:
        response = http.get("/health")
        assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_models_are_listed_by_all_their_names(server_with: Any) -> None:
    server = server_with(names=("first", "second/name"))
    client = server.openai()
    assert [model.id for model in client.models.list()] == ["first", "second/name"]
    assert client.models.retrieve("second/name").owned_by == "hy3"
    for name in ("first", "second/name"):
        completion = client.chat.completions.create(
            model=name, messages=[{"role": "user", "content": "1+2+3=?"}], max_tokens=1
        )
        assert completion.model == "first"


def test_an_unknown_model_is_not_found(server: Any) -> None:
    import openai

    with pytest.raises(openai.NotFoundError):
        server.openai().models.retrieve("other")


def test_metrics_count_what_was_done(server: Any) -> None:
    before = metrics(server)
    chat = 'hy3_http_requests_total{code="%d",endpoint="/v1/chat/completions"}'
    messages = [{"role": "user", "content": "hello there"}]
    with server.http() as http:
        usage = http.post("/v1/chat/completions", json={"messages": messages}).json()["usage"]
        http.post("/v1/chat/completions", json={})
        http.get("/nowhere")
    after = metrics(server)

    def change(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert change(chat % 200) == 1
    assert change(chat % 400) == 1
    assert change('hy3_http_requests_total{code="404",endpoint="other"}') == 1
    assert change("hy3_prompt_tokens_total") == usage["prompt_tokens"]
    assert change("hy3_generated_tokens_total") == usage["completion_tokens"]
    assert change("hy3_time_to_first_token_seconds_count") == 1
    assert change("hy3_time_per_token_seconds_count") == 1
    assert after["hy3_time_to_first_token_seconds_sum"] > before["hy3_time_to_first_token_seconds_sum"]
    assert after["hy3_requests_running"] == after["hy3_requests_waiting"] == 0
    assert after["hy3_kv_budget_tokens"] > 0
