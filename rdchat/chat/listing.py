"""Rows of the sidebar: pinned conversations, folders, then all other conversations by date."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import NamedTuple, overload

from rdchat.chat.conversation import Conversation, Folder
from rdchat.chat.storage.rows import END_OF_DATES
from rdchat.chat.store import NEWEST_FIRST, ConversationStore

PINNED, FOLDERS = "Pinned", "Folders"
_PAGE = 64  # rows that are read at once: more than a view of them
# each query reads one index of the schema alone
_LISTED = """
    SELECT folder_id, updated_at, id FROM conversations INDEXED BY conversations_listed
    WHERE deleted_at IS NULL AND unlisted = 0 AND archived_at IS NULL AND pinned_at IS NULL
"""
_PINNED = """
    SELECT id FROM conversations
    WHERE deleted_at IS NULL AND unlisted = 0 AND archived_at IS NULL AND pinned_at IS NOT NULL ORDER BY pinned_at, id
"""
_ARCHIVED = f"""
    SELECT id FROM conversations INDEXED BY conversations_archived
    WHERE deleted_at IS NULL AND unlisted = 0 AND archived_at IS NOT NULL ORDER BY {NEWEST_FIRST}
"""


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


class ChatEntry(NamedTuple):
    """A conversation that is read when its row is asked for."""

    id: int
    depth: int = 0


class _Key(NamedTuple):
    """The columns of a conversation that decide where it is listed."""

    folder_id: int | None
    updated_at: float
    id: int


type Row = SectionRow | FolderRow | ChatRow
type Key = tuple[str, object]


def key_of(row: Row | ChatEntry) -> Key:
    """Return what identifies a row."""
    if isinstance(row, FolderRow):
        return "folder", row.folder.id
    if isinstance(row, SectionRow):
        return "section", row.words
    return "chat", row.id if isinstance(row, ChatEntry) else row.conversation.id


_GONE = Conversation(id=0, title="", created_at=None, updated_at=None)
"""Stands for a conversation that was removed after the rows were listed, until they are listed again."""


class Listing(Sequence[Row]):
    """A sequence of rows; conversations are read a page at a time when asked for, which raises StorageError.

    Args:
        entries: From the top.
        read: Returns conversations by their ids.
    """

    def __init__(
        self,
        entries: Iterable[Row | ChatEntry] = (),
        read: Callable[[Sequence[int]], Mapping[int, Conversation]] = lambda _ids: {},
    ) -> None:
        self._entries, self._read = tuple(entries), read
        self._chats: dict[int, Conversation] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        entry = self._entries[place]
        if not isinstance(entry, ChatEntry):
            return entry
        if entry.id not in self._chats:
            start = place % len(self) // _PAGE * _PAGE
            ids = [each.id for each in self._entries[start : start + _PAGE] if isinstance(each, ChatEntry)]
            found = self._read(ids)
            self._chats |= {each: found.get(each, _GONE) for each in ids}
        return ChatRow(self._chats[entry.id], entry.depth)

    @property
    def shape(self) -> Sequence[object]:
        """What decides how rows look from afar: all but which conversation stands in which of their rows."""
        return [
            entry.depth if isinstance(entry, ChatEntry) else (key_of(entry), getattr(entry, "depth", 0))
            for entry in self._entries
        ]

    @property
    def folders(self) -> Iterator[Folder]:
        """The folders that are listed."""
        return (entry.folder for entry in self._entries if isinstance(entry, FolderRow))

    def section_of(self, place: int) -> SectionRow | None:
        """Return the heading above a row, or the row itself; None where there is none."""
        above = reversed(self._entries[: place + 1])
        return next((entry for entry in above if isinstance(entry, SectionRow)), None)

    def place_of(self, key: Key) -> int | None:
        """Return where a row stands; None for a conversation or folder that is not listed."""
        return self._places.get(key)

    @cached_property
    def _places(self) -> dict[Key, int]:
        return {key_of(entry): place for place, entry in enumerate(self._entries)}

    def chat_near(self, conversation_id: int) -> Conversation | None:
        """Return the conversation below, or else above, the given one; the first one where that is not listed."""
        place = self.place_of(("chat", conversation_id))
        if place is None:
            places = chain(range(len(self)))
        else:
            places = chain(range(place + 1, len(self)), range(place - 1, -1, -1))
        rows = (self[each] for each in places)
        return next((row.conversation for row in rows if isinstance(row, ChatRow)), None)


def archive_listing(store: ConversationStore) -> Listing:
    """List the conversations in the archive, the newest first; those whose date is unknown come last."""
    return Listing((ChatEntry(row[0]) for row in store.database.rows(_ARCHIVED)), store.find)


def chats_listing(store: ConversationStore, folders: Sequence[Folder], now: float) -> Listing:
    """List the conversations that are not put away.

    Args:
        store: Has them.
        folders: By name.
        now: Seconds since the epoch.
    """
    pinned = [ChatEntry(row[0]) for row in store.database.rows(_PINNED)]
    keys = sorted(map(_Key._make, store.database.rows(_LISTED)), key=_newest_first)
    known = {folder.id for folder in folders}
    inside: dict[int, list[int]] = {folder.id: [] for folder in folders}
    for key in keys:
        if key.folder_id in known:
            inside[key.folder_id].append(key.id)
    entries: list[Row | ChatEntry] = [SectionRow(PINNED), *pinned] if pinned else []
    entries += [SectionRow(FOLDERS)] if folders else []
    for folder in folders:
        if folder.parent_id is None:
            entries += _folder_entries(folder, [each for each in folders if each.parent_id == folder.id], inside)
    entries += _dated((key for key in keys if key.folder_id not in known), datetime.fromtimestamp(now))
    return Listing(entries, store.find)


def _newest_first(key: _Key) -> tuple[bool, float, int]:
    return not _is_date(key.updated_at), -key.updated_at, -key.id


def _is_date(seconds: float) -> bool:
    return 0 <= seconds < END_OF_DATES


def _folder_entries(
    folder: Folder, nested: Sequence[Folder], inside: Mapping[int, Sequence[int]]
) -> Iterator[Row | ChatEntry]:
    yield FolderRow(folder, 0, sum(len(inside[each.id]) for each in (folder, *nested)))
    if not folder.expanded:
        return
    for each in nested:
        yield FolderRow(each, 1, len(inside[each.id]))
        if each.expanded:
            yield from (ChatEntry(chat, 2) for chat in inside[each.id])
    yield from (ChatEntry(chat, 1) for chat in inside[folder.id])


def _dated(keys: Iterable[_Key], today: datetime) -> Iterator[Row | ChatEntry]:
    """Yield conversations, the newest first, below the headings of their dates."""
    heading, since = "", float("inf")
    for key in keys:
        if key.updated_at < since or not _is_date(key.updated_at):
            before = heading
            heading, since = _section(key.updated_at, today)
            if heading != before:
                yield SectionRow(heading)
        yield ChatEntry(key.id)


def _section(when: float, today: datetime) -> tuple[str, float]:
    """Return the heading of a time, and since when it holds."""
    if not _is_date(when):
        return "Unknown date", float("-inf")
    date = datetime.fromtimestamp(when)
    days = (today.date() - date.date()).days
    for limit, words in ((0, "Today"), (1, "Yesterday"), (7, "Previous 7 days"), (30, "Previous 30 days")):
        if days <= limit:  # a clock may have been put back: then it is of today
            return words, _midnight(today - timedelta(days=limit))
    if date.year == today.year:
        return f"{date:%B}", _midnight(date.replace(day=1))
    return str(date.year), _midnight(date.replace(month=1, day=1))


def _midnight(date: datetime) -> float:
    return date.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
