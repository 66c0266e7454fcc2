"""The messages from the root of a chat to one of them, each read when it is first asked for."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, overload

from rdchat.chat.conversation import Message
from rdchat.errors import StorageError

_TAIL = 16  # messages at the end that are read at once: about those that the window shows first
_MOST = 1024  # messages that are read at once in a walk along the whole path


class MessageSource(Protocol):
    """Reads the messages of a path. Methods raise StorageError; messages that are gone are left out."""

    def read(self, ids: Sequence[int]) -> Iterable[Message]: ...

    def read_told(self, ids: Sequence[int]) -> Iterable[Message]:
        """Read what the model is told of messages, on any thread."""
        ...

    def measured(self) -> Iterable[int]:
        """Return the ids of all messages of the chat that have statistics, those of other paths too."""
        ...


class MessagePath(Sequence[Message]):
    """A sequence that reads its messages when they are needed: opening a chat of 100,000 messages reads a few of them.

    Whatever reads a message raises StorageError. Slices and copies keep the messages that were read before, and change
    independently.

    Args:
        ids: Of the messages, from the root on.
        source: Reads messages; None where all are known.
        known: Messages that were read already.
        cuts: Ids of messages with a context cut, those of other paths too.
    """

    def __init__(
        self,
        ids: Iterable[int] = (),
        source: MessageSource | None = None,
        known: Iterable[Message] = (),
        cuts: Iterable[int] = (),
    ) -> None:
        self._ids = tuple(ids)
        self._places: dict[int, int] | None = None  # by id, made when it is first needed
        self._source, self._told = source, False
        self._known: dict[int, Message] = {}
        self._cuts = set(cuts)
        for message in known:
            self._keep(message)

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "MessagePath":
        """Return messages as a path of their own."""
        return messages[:] if isinstance(messages, MessagePath) else cls([each.id for each in messages], None, messages)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of its messages."""
        return self._ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> "MessagePath": ...
    def __getitem__(self, place: int | slice) -> "Message | MessagePath":
        if isinstance(place, slice):
            part = MessagePath(self._ids[place], self._source, cuts=self._cuts)
            part._known, part._told = dict(self._known), self._told
            part._places = self._places if part._ids is self._ids else None
            return part
        message_id = self._ids[place]
        if message_id not in self._known:
            self._read([message_id])
        return self._known[message_id]

    def __iter__(self) -> Iterator[Message]:
        place, size = 0, _TAIL
        while place < len(self):
            yield from self.read(place, place + size)
            place, size = place + size, min(2 * size, _MOST)

    def __reversed__(self) -> Iterator[Message]:
        end, size = len(self), _TAIL
        while end > 0:
            yield from reversed(self.read(max(0, end - size), end))
            end, size = end - size, min(2 * size, _MOST)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"MessagePath({list(self._ids)!r})"

    def read(self, start: int, end: int) -> list[Message]:
        """Return the messages at the places `start` to `end`, read together."""
        ids = self._ids[start:end]
        if missing := [each for each in ids if each not in self._known]:
            self._read(missing)
        return [self._known[each] for each in ids]

    def read_tail(self) -> None:
        """Read the messages that are needed first."""
        self.read(max(0, len(self) - _TAIL), len(self))

    def _read(self, ids: list[int]) -> None:
        if self._source is not None:
            for message in self._source.read_told(ids) if self._told else self._source.read(ids):
                self._known[message.id] = message
        if any(each not in self._known for each in ids):
            raise StorageError("A message of this chat no longer exists.", "Open the chat again.")

    def place_of(self, message_id: int) -> int | None:
        """Return where a message stands; None where it is not on the path."""
        if self._places is None:
            self._places = {each: place for place, each in enumerate(self._ids)}
        return self._places.get(message_id)

    def find(self, message_id: int) -> Message | None:
        """Return a message of the path by its id; None where it is not on it."""
        place = self.place_of(message_id)
        return None if place is None else self[place]

    def has_any(self, other: "MessagePath") -> bool:
        """Whether a message of another path is on this one."""
        return any(self.place_of(each) is not None for each in other._ids)

    @property
    def cut_place(self) -> int:
        """Index of the last message that the model is not told; -1 where it is told all."""
        return max((place for each in self._cuts if (place := self.place_of(each)) is not None), default=-1)

    @property
    def last_measured(self) -> Message | None:
        """The last message that has statistics; None where none has."""
        tail = self.read(max(0, len(self) - _TAIL), len(self))
        if (found := next((each for each in reversed(tail) if each.statistics), None)) is not None:
            return found
        measured = {each.id for each in self._known.values() if each.statistics}
        if self._source is not None:
            measured.update(self._source.measured())
        places = (place for each in measured if (place := self.place_of(each)) is not None)
        return next((self[place] for place in sorted(places, reverse=True) if self[place].statistics), None)

    def told(self) -> "MessagePath":
        """Return a copy for any thread; messages that it reads lack what the model is not told, such as statistics."""
        copy = self[:]
        copy._told = True
        return copy

    def put(self, message: Message) -> None:
        """Replace a message by a newer state of it."""
        if self.place_of(message.id) is not None:
            self._keep(message)

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        self._ids, self._places = (*self._ids, message.id), None
        self._keep(message)

    def _keep(self, message: Message) -> None:
        self._known[message.id] = message
        if message.context_cut is None:
            self._cuts.discard(message.id)
        else:
            self._cuts.add(message.id)


def uncut(path: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of a path that the model is told."""
    return path[_cut_place(path) + 1 :]


def from_cut(path: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of a path that the model is told, behind the one with the last context cut."""
    return path[max(0, _cut_place(path)) :]


def cut_of(path: Sequence[Message]) -> Message | None:
    """Return the message with the last context cut; None where the model is told all of the path."""
    place = _cut_place(path)
    return path[place] if place >= 0 else None


def _cut_place(path: Sequence[Message]) -> int:
    if isinstance(path, MessagePath):
        return path.cut_place
    places = (place for place in reversed(range(len(path))) if path[place].context_cut is not None)
    return next(places, -1)
