"""The normal form of requests, on its way to the template."""

from hy3.serve.prompt import in_order_of_calls


def test_results_follow_the_order_of_their_calls() -> None:
    question = {"role": "user", "content": "?"}
    calls = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}, {"id": "c"}]}
    results = [{"role": "tool", "tool_call_id": each, "content": each} for each in "abc"]
    stray = {"role": "tool", "content": "of no call"}
    swapped = [question, calls, stray, *reversed(results), question, results[2], results[0]]
    ordered = in_order_of_calls(swapped)
    assert ordered == [question, calls, *results, stray, question, results[2], results[0]]
    assert in_order_of_calls(results) == results
