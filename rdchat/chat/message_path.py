"""The messages from the root of a chat to one of them, each read when it is first asked for."""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol, overload

from rdchat.chat.conversation import Message
from rdchat.errors import StorageError

_TAIL = 16  # messages at the end that are read at once: about those that the window shows first
_MOST = 1024  # and of a walk along the whole path


class MessageSource(Protocol):
    """Where a path has its messages from. Methods raise StorageError; those that are gone are left out."""

    def read(self, ids: Sequence[int]) -> Iterable[Message]: ...

    def read_told(self, ids: Sequence[int]) -> Iterable[Message]:
        """Read what the model is to be told, from any thread."""
        ...

    def measured(self) -> Iterable[int]:
        """Return the ids of all messages of the chat that have statistics, those of other paths too."""
        ...


class PathIds(Sequence[int]):
    """The ids of a path, each once, kept as runs of ids that follow each other.

    Making, copying and cutting one takes as long as it has runs: a chat of 100,000 messages may have one.
    """

    def __init__(self, runs: Iterable[range] = ()) -> None:
        self._runs: list[range] = []
        self._begins: list[int] = []  # the place of each run's first id
        self._by_first: list[tuple[int, int]] | None = None  # first id and number of each run, sorted when first needed
        self._length = 0
        for run in runs:
            self._add(run)

    @classmethod
    def of(cls, ids: Iterable[int]) -> "PathIds":
        return cls(range(each, each + 1) for each in ids)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._runs)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> "PathIds": ...
    def __getitem__(self, place: "int | slice") -> "int | PathIds":
        if isinstance(place, slice):
            return self._part(*place.indices(self._length))
        if place < 0:
            place += self._length
        if not 0 <= place < self._length:
            raise IndexError(place)
        number = bisect_right(self._begins, place) - 1
        return self._runs[number][place - self._begins[number]]

    def _part(self, start: int, end: int, step: int) -> "PathIds":
        if step != 1:
            return PathIds.of(self[place] for place in range(start, end, step))
        if (start, end) == (0, self._length):
            return self.copy()
        if start >= end:
            return PathIds()
        first, last = bisect_right(self._begins, start) - 1, bisect_right(self._begins, end - 1)
        runs = self._runs[first:last]
        runs[-1] = runs[-1][: end - self._begins[last - 1]]
        runs[0] = runs[0][start - self._begins[first] :]
        return PathIds(runs)

    def copy(self) -> "PathIds":
        made = PathIds()
        made._runs, made._begins, made._length = self._runs[:], self._begins[:], self._length
        made._by_first = None if self._by_first is None else self._by_first[:]
        return made

    def append(self, number: int) -> None:
        self._add(range(number, number + 1))

    def _add(self, run: range) -> None:
        if self._runs and self._runs[-1].stop == run.start:
            self._runs[-1] = range(self._runs[-1].start, run.stop)
        elif run:
            if self._by_first is not None:
                insort(self._by_first, (run.start, len(self._runs)))
            self._begins.append(self._length)
            self._runs.append(run)
        self._length += len(run)

    def place_of(self, number: int) -> int | None:
        """Return where an id stands; None where it is not on the path."""
        place = self._run_up_to(number)
        if place is None or number not in self._runs[place]:
            return None
        return self._begins[place] + number - self._runs[place].start

    def has_any(self, other: "PathIds") -> bool:
        """Whether an id of another path is on this one; it is the first one where both are of one chat."""
        return any(
            (place := self._run_up_to(run.stop - 1)) is not None and self._runs[place].stop > run.start
            for run in other._runs
        )

    def _run_up_to(self, number: int) -> int | None:
        """Return the number of the run whose first id is the largest that is not larger than an id."""
        if self._by_first is None:
            self._by_first = sorted((run.start, place) for place, run in enumerate(self._runs))
        found = bisect_right(self._by_first, (number, len(self._runs)))
        return self._by_first[found - 1][1] if found else None


class MessagePath(Sequence[Message]):
    """Opening a chat of 100,000 messages reads a few of them. Whatever reads a message raises StorageError.

    A path, its slices and its copies know the messages that were read before, and change apart from each other.

    Args:
        ids: Of the messages, from the root on.
        source: Has those that are not known; None where all are.
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
        self._ids = ids if isinstance(ids, PathIds) else PathIds.of(ids)
        self._source, self._told = source, False
        self._known: dict[int, Message] = {}
        self._cuts = set(cuts)
        for message in known:
            self._keep(message)

    @classmethod
    def of(cls, messages: Sequence[Message]) -> "MessagePath":
        """Return a path of messages, which is a copy where they are one."""
        return messages[:] if isinstance(messages, MessagePath) else cls([each.id for each in messages], None, messages)

    @property
    def ids(self) -> PathIds:
        """Of its messages, without reading them."""
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
        return self._ids.place_of(message_id)

    def find(self, message_id: int) -> Message | None:
        """Return a message of the path by its id; None where it is not on it."""
        place = self.place_of(message_id)
        return None if place is None else self[place]

    def has_any(self, other: "MessagePath") -> bool:
        """Whether a message of another path is on this one."""
        return self._ids.has_any(other._ids)

    @property
    def cut_place(self) -> int:
        """Where the last message stands that the model is not told; -1 where all of the path is told."""
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
        """Return a copy for any thread; what it reads itself lacks what the model is not told, as statistics."""
        copy = self[:]
        copy._told = True
        return copy

    def put(self, message: Message) -> None:
        """Put another state of a message in its place."""
        if self.place_of(message.id) is not None:
            self._keep(message)

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        self._ids.append(message.id)
        self._keep(message)

    def _keep(self, message: Message) -> None:
        self._known[message.id] = message
        if message.context_cut is None:
            self._cuts.discard(message.id)
        else:
            self._cuts.add(message.id)
