"""Rows of the sidebar: pinned conversations, folders, then all other conversations by date."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import overload

from rdchat.chat.conversation import Conversation, Folder
from rdchat.chat.storage.chat_spans import ChatSpan, ChatSpans

PINNED, FOLDERS = "Pinned", "Folders"
_PAGE = 64  # conversations that are read at once: more than a view of them
_MOST_PAGES = 64  # that are kept


@dataclass(frozen=True, slots=True)
class SectionRow:
    """A heading. `words` is `Pinned`, `Folders` or a time such as `Yesterday`."""

    words: str


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A folder, at depth 0 or in another one; `chats` is how many it holds, those of folders in it included."""

    folder: Folder
    depth: int
    chats: int


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A conversation.

    Attributes:
        conversation: It.
        depth: In how many folders it is shown.
        snippet: Of a search: some of a message that was found.
        messages: Of a search: how many messages were.
        place: Of a search: where it is, if not simply in the list.
    """

    conversation: Conversation
    depth: int = 0
    snippet: str = ""
    messages: int = 0
    place: str = ""


@dataclass(frozen=True, slots=True)
class ChatRows:
    """Conversations that are listed one below the other, `depth` folders deep."""

    span: ChatSpan
    depth: int = 0


type Row = SectionRow | FolderRow | ChatRow
type Key = tuple[str, object]


def key_of(row: Row) -> Key:
    """Return what a row is known by."""
    if isinstance(row, ChatRow):
        return "chat", row.conversation.id
    return ("folder", row.folder.id) if isinstance(row, FolderRow) else ("section", row.words)


_GONE = Conversation(id=0, title="", created_at=None, updated_at=None)
"""Stands for a conversation that was removed after the rows were counted, until they are counted again."""


class Listing(Sequence[Row]):
    """A sequence of rows that are read when they are needed, a page at a time; reading raises StorageError.

    Args:
        parts: From the top: rows, and conversations that are read when they are asked for.
        spans: Reads them; None where there are none such.
    """

    def __init__(self, parts: Iterable[Row | ChatRows] = (), spans: ChatSpans | None = None) -> None:
        self._parts, self._spans = tuple(parts), spans
        counts = (part.span.count if isinstance(part, ChatRows) else 1 for part in self._parts)
        *self._begins, self._count = accumulate(counts, initial=0)
        self._pages: dict[tuple[int, int], list[Conversation]] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if place < 0:
            place += len(self)
        if not 0 <= place < len(self):
            raise IndexError(place)
        number = bisect_right(self._begins, place) - 1
        part = self._parts[number]
        if not isinstance(part, ChatRows):
            return part
        page, inside = divmod(place - self._begins[number], _PAGE)
        return ChatRow(self._page(number, page)[inside], part.depth)

    def _page(self, number: int, page: int) -> list[Conversation]:
        if (number, page) not in self._pages:
            part = self._parts[number]
            assert isinstance(part, ChatRows)
            assert self._spans is not None
            if len(self._pages) >= _MOST_PAGES:
                self._pages.clear()
            read = self._spans.read(part.span, page * _PAGE, _PAGE)
            expected = min(_PAGE, part.span.count - page * _PAGE)
            self._pages[number, page] = read + [_GONE] * (expected - len(read))
        return self._pages[number, page]

    @property
    def shape(self) -> Sequence[object]:
        """What decides where rows stand, but for the order of conversations within a part."""
        return [
            (part.span.where, part.span.parameters, part.span.count, part.depth)
            if isinstance(part, ChatRows)
            else (key_of(part), 0 if isinstance(part, SectionRow) else part.depth)
            for part in self._parts
        ]

    @property
    def folders(self) -> Iterator[Folder]:
        """The folders that are listed."""
        return (part.folder for part in self._parts if isinstance(part, FolderRow))

    def section_of(self, place: int) -> SectionRow | None:
        """Return the heading above a row, or the row itself; None where there is none."""
        above = self._parts[: bisect_right(self._begins, place)]
        return next((part for part in reversed(above) if isinstance(part, SectionRow)), None)

    def place_of(self, key: Key) -> int | None:
        """Return where a row stands; a conversation or folder that is not listed stands nowhere."""
        kind, number = key
        for begin, part in zip(self._begins, self._parts, strict=True):
            if not isinstance(part, ChatRows):
                if key_of(part) == key:
                    return begin
            elif kind == "chat" and isinstance(number, int) and self._spans is not None:
                inside = self._spans.place_in(part.span, number)
                if inside is not None:
                    return begin + inside
        return None

    def chat_near(self, conversation_id: int) -> Conversation | None:
        """Return the conversation below, or else above, the given one; the first one where that is not listed."""
        place = self.place_of(("chat", conversation_id))
        if place is None:
            places = chain(range(len(self)))
        else:
            places = chain(range(place + 1, len(self)), range(place - 1, -1, -1))
        rows = (self[each] for each in places)
        return next((row.conversation for row in rows if isinstance(row, ChatRow)), None)


def chats_listing(spans: ChatSpans, folders: Sequence[Folder], now: float) -> Listing:
    """List the conversations that are not put away.

    Args:
        spans: Reads them.
        folders: By name.
        now: Seconds since the epoch.
    """
    pinned, inside = spans.pinned(), spans.by_folder()
    parts: list[Row | ChatRows] = [SectionRow(PINNED), ChatRows(pinned)] if pinned.count else []
    if folders:
        parts.append(SectionRow(FOLDERS))
        for folder in folders:
            if folder.parent_id is None:
                parts += _folder_parts(folder, [each for each in folders if each.parent_id == folder.id], inside)
    known = {folder.id for folder in folders}
    outside = spans.dated([each for each in inside if each not in known], now)
    before = ""
    for words, span in outside:
        parts += [ChatRows(span)] if words == before else [SectionRow(words), ChatRows(span)]
        before = words
    return Listing(parts, spans)


def _folder_parts(
    folder: Folder, nested: Sequence[Folder], inside: dict[int | None, list[ChatSpan]]
) -> Iterator[Row | ChatRows]:
    counts = {each.id: sum(span.count for span in inside.get(each.id, ())) for each in (folder, *nested)}
    yield FolderRow(folder, 0, sum(counts.values()))
    if not folder.expanded:
        return
    for each in nested:
        yield FolderRow(each, 1, counts[each.id])
        if each.expanded:
            yield from (ChatRows(span, 2) for span in inside.get(each.id, ()))
    yield from (ChatRows(span, 1) for span in inside.get(folder.id, ()))
