"""The responses that are kept: how many, which go first, what is known of them."""

from typing import Any

import pytest

from hy3.serve.errors import ApiError
from hy3.serve.responses_body import Item
from hy3.serve.responses_store import Store


def response(name: str, text: str = "yes") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    message = {"type": "message", "id": f"msg_{name}", "role": "assistant", "content": content}
    return {"id": name, "output": [message]}


def reference(name: str) -> Item:
    return Item(type="item_reference", id=f"msg_{name}")


def test_the_least_recently_used_go_first() -> None:
    store = Store(most_responses=2)
    for name in "ab":
        store.put(response(name), [])
    assert store.get("a") is not None  # used now
    store.put(response("c"), [])
    assert [name for name in "abc" if store.get(name)] == ["a", "c"]


def test_long_conversations_count_in_full() -> None:
    store = Store(most_characters=5000)
    question = Item(role="user", content="x" * 1000)
    store.put(response("a"), [question])
    store.put(response("b"), [question, question])
    assert store.get("a") and store.get("b")
    store.put(response("c"), [question, question, question])
    assert [name for name in "abc" if store.get(name)] == ["c"]
    store.put(response("d"), [question] * 5)  # more than there is room for at all
    assert not any(map(store.get, "abcd"))


def test_a_conversation_outlives_the_responses_it_came_from() -> None:
    store = Store(most_responses=1)
    store.put(response("a"), [Item(role="user", content="?")])
    before = store.get("a")
    assert before is not None
    store.put(response("b"), before.items)
    after = store.get("b")
    assert store.get("a") is None and after is not None
    assert [item.role for item in after.items] == ["user", "assistant", "assistant"]


def test_references_stand_for_items_as_long_as_these_are_kept() -> None:
    store = Store(most_responses=1)
    store.put(response("a", "hello"), [])
    found = store.resolve(reference("a"), "input.0")
    assert found.role == "assistant" and isinstance(found.content, list) and found.content[0].text == "hello"
    assert store.resolve(Item(id="msg_a"), "input.0") is found  # the type may be left out
    store.put(response("b"), [])
    with pytest.raises(ApiError, match="msg_a") as caught:
        store.resolve(reference("a"), "input.7")
    assert caught.value.param == "input.7"


def test_what_is_deleted_is_gone() -> None:
    store = Store()
    store.put(response("a"), [])
    assert store.delete("a") and not store.delete("a")
    assert store.get("a") is None
    with pytest.raises(ApiError):
        store.resolve(reference("a"), "input.0")
