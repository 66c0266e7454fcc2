"""The parts of a response that a client sends back instead of its text: ids of items, and sealed thoughts."""

import json
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Any

from rdchat.server.interfaces.api_error import ApiError
from rdchat.server.interfaces.fields import Fields

# Characters of all items together, as JSON.
MAX_KEPT = 4 * 2**20
_SEAL = "rdchat:"


class KeptItems:
    """The items of the last responses, in memory, for the clients with the server's one key."""

    def __init__(self) -> None:
        self._items: dict[str, str] = {}
        self._size = 0

    def keep(self, item: dict[str, Any]) -> None:
        """Keep a copy of an item; the oldest ones go where they are too many."""
        self._items[item["id"]] = json.dumps(item)
        self._size += len(self._items[item["id"]])
        while self._size > MAX_KEPT:
            self._size -= len(self._items.pop(next(iter(self._items))))

    def resolved(self, item: Fields) -> Fields:
        """Return the item that an `item_reference` names; other items as they are.

        Raises:
            ApiError: If it is not there.
        """
        if item.take("type") != "item_reference":
            return item
        name = item.text("id")
        if name not in self._items:
            why = "Only those of the last responses are kept: with `store: false` clients send the items themselves."
            raise ApiError(400, f"There is no item {name[:50]!r} here. {why}", item.name("id"))
        return Fields(json.loads(self._items[name]), item.name(""))


def sealed(thought: str) -> str:
    """Return a thought as `encrypted_content`. It is no secret to the client, so it is only encoded."""
    return _SEAL + b64encode(thought.encode(errors="replace")).decode()


def unsealed(item: Fields) -> str:
    """Return the thought in an item's `encrypted_content`; what was not made here counts as ignored."""
    given = item.text("encrypted_content", "")
    with suppress(ValueError):
        if given.startswith(_SEAL):
            return b64decode(given.removeprefix(_SEAL), validate=True).decode()
    item.ignored += ["encrypted_content"] if given else []
    return ""
