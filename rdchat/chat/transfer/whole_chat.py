"""A chat outside of the store, with all its messages: what imports make of a file and exports write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rdchat.chat.conversation import Conversation, Message


class DamagedChatError(ValueError):
    """A chat cannot be taken whole, so nothing of it is; the text says why, as a sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class WholeChat:
    """A conversation with all its alternatives. Ids are of this chat alone: `id` of a message is its place in the list.

    Each message comes after the one it follows. Of `Message.activated` only the order counts.
    """

    about: Conversation  # without an id or a folder; the title is empty where the source has none
    messages: tuple[Message, ...]
    traces: Mapping[int, bytes] = field(default_factory=dict)  # how replies came about (`trace_format`), by place
    texts: Mapping[str, str] = field(default_factory=dict)  # of the messages' files, by digest
    folder: tuple[str, ...] = ()  # name of the folder, behind that of the folder around it; empty outside of any
    without: Mapping[str, int] = field(default_factory=dict)  # parts that cannot be taken: `{"image": 2}`


def shown_path(messages: Sequence[Message]) -> list[Message]:
    """Return the path that is shown: from a first message to the one that was activated last."""
    step = max(messages, key=lambda message: message.activated, default=None)
    path = []
    while step is not None:
        path.append(step)
        step = None if step.parent_id is None else messages[step.parent_id]
    return path[::-1]


def alternatives(messages: Sequence[Message], message: Message) -> list[Message]:
    """Return the message and its alternatives, in the order in which they were written."""
    return [each for each in messages if (each.parent_id, each.role) == (message.parent_id, message.role)]


def parents_first[K](parents: Mapping[K, K | None]) -> list[K]:
    """Put ids into an order in which each comes after its parent; those with one parent keep their order.

    Args:
        parents: By id: the parent's id. One that is not among the ids counts as none.

    Raises:
        DamagedChatError: If some are above themselves.
    """
    children: dict[K | None, list[K]] = {}
    for each, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(each)
    order: list[K] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        step = waiting.pop()
        order.append(step)
        waiting += reversed(children.get(step, []))
    if len(order) < len(parents):
        raise DamagedChatError("Its messages follow one another in a circle")
    return order
