"""Paths of messages, each message read when it is first needed."""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import overload

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.errors import StorageError
from rdchat.inference.api.messages import Role, ToolCall

_PAGE = 128
"""Messages that are read together."""
_TAIL = 16
"""Messages at the end that are read together, about as many as the window shows first."""


class MessagePath(Sequence[Message]):
    """A sequence that reads its messages when needed: opening a chat of 100,000 messages reads only a few.

    Reading raises StorageError. Slices are copies: they keep the messages already read, change independently, and may
    be used on another thread.

    Args:
        ids: Ids of the messages, from the root on.
        read: Reads messages by their ids, on any thread; missing ones are left out. None if all are known.
        known: Messages that are already read.
        cuts: Ids of messages with a context cut, including those of other paths.

    Attributes:
        ids: Ids of its messages.
    """

    def __init__(
        self,
        ids: Iterable[int] = (),
        read: Callable[[Sequence[int]], Iterable[Message]] | None = None,
        known: Iterable[Message] = (),
        cuts: Iterable[int] = (),
    ) -> None:
        self.ids = tuple(ids)
        # Index by id, made when first needed.
        self._indexes: dict[int, int] | None = None
        self._read_ids = read
        self._known: dict[int, Message] = {}
        self._cuts = set(cuts)
        for message in known:
            self._add(message)

    @classmethod
    def as_path(cls, messages: Sequence[Message]) -> "MessagePath":
        """Return messages as a path, a path itself."""
        return messages if isinstance(messages, MessagePath) else cls([each.id for each in messages], None, messages)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> "MessagePath": ...
    def __getitem__(self, index: int | slice) -> "Message | MessagePath":
        if isinstance(index, slice):
            part = MessagePath(self.ids[index], self._read_ids, cuts=self._cuts)
            part._known = dict(self._known)
            part._indexes = self._indexes if part.ids is self.ids else None
            return part
        message_id = self.ids[index]
        if message_id not in self._known:
            begin = index % len(self) // _PAGE * _PAGE
            self.read_messages(begin, begin + _PAGE)
        return self._known[message_id]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def read_messages(self, start: int, end: int) -> list[Message]:
        """Return the messages from index `start` to `end`, read together."""
        ids = self.ids[start:end]
        missing = [each for each in ids if each not in self._known]
        if missing and self._read_ids is not None:
            self._known.update((message.id, message) for message in self._read_ids(missing))
        if any(each not in self._known for each in ids):
            raise StorageError("A message of this chat no longer exists.", "Open the chat again.")
        return [self._known[each] for each in ids]

    def read_tail(self) -> list[Message]:
        """Return the last messages, which are needed first."""
        return self.read_messages(max(0, len(self) - _TAIL), len(self))

    def index_of(self, message_id: int) -> int | None:
        """Return the index of a message; None if it is not on the path."""
        if self._indexes is None:
            self._indexes = {each: index for index, each in enumerate(self.ids)}
        return self._indexes.get(message_id)

    def find_message(self, message_id: int) -> Message | None:
        """Return a message of the path by its id; None if it is not on the path."""
        index = self.index_of(message_id)
        return None if index is None else self[index]

    def has_any(self, other: "MessagePath") -> bool:
        """Return whether the two paths have a message in common."""
        return any(self.index_of(each) is not None for each in other.ids)

    @property
    def cut_index(self) -> int:
        """Index of the last message hidden from the model; -1 where it gets all."""
        return max((index for each in self._cuts if (index := self.index_of(each)) is not None), default=-1)

    @property
    def last_reply(self) -> Message | None:
        """The last reply that ended, near the end of the path; None without one."""
        replies = (each for each in reversed(self.read_tail()) if each.role is Role.ASSISTANT)
        return next((each for each in replies if each.status is not MessageStatus.STREAMING), None)

    def put(self, message: Message) -> None:
        """Replace a message by its newer state."""
        if self.index_of(message.id) is not None:
            self._add(message)

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        self.ids = (*self.ids, message.id)
        self._indexes = None
        self._add(message)

    def _add(self, message: Message) -> None:
        self._known[message.id] = message
        if message.context_cut is None:
            self._cuts.discard(message.id)
        else:
            self._cuts.add(message.id)


def results_after(path: Sequence[Message], reply_id: int) -> dict[str, Message]:
    """Return the results of a reply's calls on a path, by the ids of the calls; a later one counts."""
    messages = MessagePath.as_path(path)
    behind = (messages[index] for index in range((messages.index_of(reply_id) or 0) + 1, len(messages)))
    return {each.tool_call_id: each for each in takewhile(lambda each: each.role is Role.TOOL, behind)}


def call_of(path: Sequence[Message], result: Message) -> ToolCall | None:
    """Return the call that a result of a path answers; None if the path does not have it."""
    messages = MessagePath.as_path(path)
    before = (messages[index] for index in range((messages.index_of(result.id) or 0) - 1, -1, -1))
    reply = next((each for each in before if each.role is not Role.TOOL), None)
    calls = reply.tool_calls if reply is not None else ()
    return next((each for each in calls if each.call_id == result.tool_call_id), None)


def uncut(path: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of a path that the model gets."""
    return path[MessagePath.as_path(path).cut_index + 1 :]


def from_cut(path: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of a path that the model gets, with the summary's message first."""
    return path[max(0, MessagePath.as_path(path).cut_index) :]


def cut_of(path: Sequence[Message]) -> Message | None:
    """Return the message with the last context cut; None where the model gets all of the path."""
    index = MessagePath.as_path(path).cut_index
    return path[index] if index >= 0 else None
