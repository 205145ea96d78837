"""The last responses, in memory alone, so that a request may go on from one of them."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hy3.serve.errors import bad_request
from hy3.serve.responses_body import Item

MOST_RESPONSES = 1000
MOST_CHARACTERS = 64 << 20


@dataclass(frozen=True)
class Kept:
    """A response and the conversation up to its end."""

    response: dict[str, Any]
    items: Sequence[Item]
    size: int  # characters of the items, about


class Store:
    """Least recently used go first. What conversations share is counted for each, so that no more is kept
    than it seems."""

    def __init__(self, most_responses: int = MOST_RESPONSES, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_responses, self._most_characters = most_responses, most_characters
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._items: dict[str, Item] = {}  # of the responses' output, by id
        self._characters = 0

    def put(self, response: dict[str, Any], before: Sequence[Item]) -> None:
        """`before`: the conversation that it answers."""
        output = [Item.model_validate(item) for item in response["output"]]
        items = [*before, *output]
        kept = Kept(response, items, sum(len(item.model_dump_json()) for item in items))
        self._kept[response["id"]] = kept
        self._items.update((item.id, item) for item in output if item.id)
        self._characters += kept.size
        while len(self._kept) > self._most_responses or self._characters > self._most_characters:
            self._forget(next(iter(self._kept)))

    def get(self, name: str) -> Kept | None:
        if name in self._kept:
            self._kept.move_to_end(name)
        return self._kept.get(name)

    def delete(self, name: str) -> bool:
        known = name in self._kept
        if known:
            self._forget(name)
        return known

    def resolve(self, item: Item, param: str) -> Item:
        """What an item_reference stands for; other items stand for themselves."""
        if item.type != "item_reference" and (item.type or item.role or not item.id):
            return item
        found = self._items.get(item.id or "")
        if found is None:
            raise bad_request(f"There is no item {item.id!r}. Send the item itself.", param)
        return found

    def _forget(self, name: str) -> None:
        kept = self._kept.pop(name)
        self._characters -= kept.size
        for item in kept.response["output"]:
            self._items.pop(item["id"], None)
