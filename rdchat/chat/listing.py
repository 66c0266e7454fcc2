"""The sidebar's list of chats: pinned ones, folders, then all others by date.

The list consists of rows and of spans of chats (`ChatSpan`). A span is counted with an index, and its chats are read a
page at a time, when the window shows them.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate

from rdchat.chat.conversation import NEW_CHAT, Conversation
from rdchat.chat.projects import Folder
from rdchat.chat.storage import END_OF_DATES, Database, listed_chats

PINNED = "Pinned"
FOLDERS = "Folders"
# Chats read at once: more than fit the view.
_PAGE = 64
# Most pages in memory.
_MAX_PAGES = 64

# These are the conditions of indexes in the migrations. `unlisted` is 0 for a chat that is shown: not one that is being
# erased, copied or imported.
_HERE = "deleted_at IS NULL AND unlisted = 0"
_LISTED = f"{_HERE} AND archived_at IS NULL AND pinned_at IS NULL"
_PINNED = f"{_HERE} AND archived_at IS NULL AND pinned_at IS NOT NULL"
_ARCHIVED = f"{_HERE} AND archived_at IS NOT NULL"
_DELETED = "deleted_at IS NOT NULL AND unlisted = 0"

type Key = tuple[str, object]


@dataclass(frozen=True, slots=True)
class ChatSpan:
    """Consecutive chats in the list.

    Attributes:
        where: Their SQL condition.
        parameters: Parameters of `where`.
        count: Number of chats.
        key: The column by which they are sorted, then by id.
        ascending: The order.
        depth: Number of folders around them.
    """

    where: str
    parameters: tuple[object, ...]
    count: int
    key: str = "updated_at"
    ascending: bool = False
    depth: int = 0


@dataclass(frozen=True, slots=True)
class SectionRow:
    """A heading: `Pinned`, `Folders` or a time such as `Yesterday`."""

    title: str


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A folder, at depth 0 or in another one; `chats` counts its chats, with those of inner folders."""

    folder: Folder
    depth: int
    chats: int


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A chat; the last three fields are for search results.

    Attributes:
        conversation: The chat.
        depth: Number of folders around it.
        snippet: Text of a matching message.
        messages: Number of matching messages.
        location: `Archive` or the name of its folder.
    """

    conversation: Conversation
    depth: int = 0
    snippet: str = ""
    messages: int = 0
    location: str = ""


type Row = SectionRow | FolderRow | ChatRow


def key_of(row: Row) -> Key:
    """Return the identity of a row."""
    if isinstance(row, ChatRow):
        return "chat", row.conversation.id
    return ("folder", row.folder.id) if isinstance(row, FolderRow) else ("section", row.title)


class ChatSpans:
    """Counts and reads parts of the list; raises StorageError as `ConversationStore` does.

    The chats that it returns are without their options, which `ConversationStore.conversation` reads.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def read_chats(self, span: ChatSpan, start: int, count: int) -> list[Conversation]:
        """Return some chats of a span."""
        order = "" if span.ascending else " DESC"
        where = f"{span.where} ORDER BY {span.key}{order}, id{order} LIMIT ? OFFSET ?"
        return listed_chats(self._database.rows, where, *span.parameters, count, start)

    def index_in(self, span: ChatSpan, conversation_id: int) -> int | None:
        """Return the index of a chat in a span; None if it is not in it."""
        of = f"SELECT count(*) FROM conversations WHERE {span.where}"
        if not self._database.rows(f"{of} AND id = ?", *span.parameters, conversation_id)[0][0]:
            return None
        its_key = f"(SELECT {span.key}, id FROM conversations WHERE id = ?)"
        before = f"({span.key}, id) {'<' if span.ascending else '>'} {its_key}"
        return int(self._database.rows(f"{of} AND {before}", *span.parameters, conversation_id)[0][0])

    def pinned(self) -> ChatSpan:
        """Return the pinned chats, the one pinned first at the top."""
        return self._span(_PINNED, "conversations_pinned", "pinned_at", ascending=True)

    def deleted(self) -> ChatSpan:
        """Return the chats in the Trash, the last deleted first."""
        return self._span(_DELETED, "conversations_deleted", "deleted_at")

    def archived(self) -> ChatSpan:
        """Return the chats in the archive, the newest first."""
        return self._span(_ARCHIVED, "conversations_archived")

    def by_folder(self) -> dict[int | None, ChatSpan]:
        """Return the chats by folder, without pinned ones; None is outside of folders, and deleted folders count."""
        rows = self._database.rows(f"SELECT folder_id, count(*) FROM conversations WHERE {_LISTED} GROUP BY folder_id")
        return {folder: ChatSpan(f"{_LISTED} AND folder_id IS ?", (folder,), count) for folder, count in rows}

    def dated(self, folders: Sequence[int | None], now: float) -> list[tuple[str, ChatSpan]]:
        """Return the chats of some folders as sections, each with its heading.

        The newest chat gives the first section, the newest chat before that section the next, and so on. Chats without
        a date, which have `NO_DATE`, come last.

        Args:
            folders: Their ids; None is outside of folders.
            now: Seconds since the epoch.
        """
        sections: list[tuple[str, ChatSpan]] = []
        where = _in_folders(folders)
        today = datetime.fromtimestamp(now)
        before: float = END_OF_DATES
        while (when := self._newest(folders, before)) is not None:
            title, since = _section(when, today)
            limits = "updated_at >= ? AND updated_at < ?"
            count = self._count_in(folders, limits, since, before)
            sections.append((title, ChatSpan(f"{where} AND {limits}", (since, before), count)))
            before = since
        if count := self._count_in(folders, "updated_at < 0"):
            sections.append(("Unknown date", ChatSpan(f"{where} AND updated_at < 0", (), count)))
        return sections

    # Folders are read one after another: for several at once, SQLite would read the whole index.

    def _newest(self, folders: Sequence[int | None], before: float) -> float | None:
        limits = "updated_at >= 0 AND updated_at < ?"
        sql = f"SELECT max(updated_at) FROM conversations WHERE {_LISTED} AND folder_id IS ? AND {limits}"
        times = (self._database.rows(sql, each, before)[0][0] for each in folders)
        return max((each for each in times if each is not None), default=None)

    def _count_in(self, folders: Sequence[int | None], condition: str, *parameters: object) -> int:
        sql = f"SELECT count(*) FROM conversations WHERE {_LISTED} AND folder_id IS ? AND {condition}"
        return sum(self._database.rows(sql, each, *parameters)[0][0] for each in folders)

    def _span(self, where: str, index: str, key: str = "updated_at", *, ascending: bool = False) -> ChatSpan:
        ((count,),) = self._database.rows(f"SELECT count(*) FROM conversations INDEXED BY {index} WHERE {where}")
        return ChatSpan(where, (), count, key, ascending)


def _in_folders(folders: Sequence[int | None]) -> str:
    ids = [str(each) for each in folders if each is not None]
    if not ids:
        return f"{_LISTED} AND folder_id IS NULL"
    return f"{_LISTED} AND (folder_id IS NULL OR folder_id IN ({', '.join(ids)}))"


def _section(when: float, today: datetime) -> tuple[str, float]:
    """Return the heading for a time, and since when that heading applies, which is never later than that time."""
    date = datetime.fromtimestamp(when)
    days = (today.date() - date.date()).days
    for limit, title in ((0, "Today"), (1, "Yesterday"), (7, "Previous 7 days"), (30, "Previous 30 days")):
        if days <= limit:  # If a clock was set back, it counts as today.
            return title, min(when, _midnight(today - timedelta(days=limit)))
    if date.year == today.year:
        return f"{date:%B}", min(when, _midnight(date.replace(day=1)))
    return str(date.year), min(when, _midnight(date.replace(month=1, day=1)))


def _midnight(date: datetime) -> float:
    return max(0.0, date.replace(hour=0, minute=0, second=0, microsecond=0).timestamp())


class Listing(Sequence[Row]):
    """A sequence of rows that are read when needed, a page at a time; reading raises StorageError.

    Args:
        parts: From the top: rows, and spans of chats that are read when needed.
        spans: Reads the spans; None if there are none.
    """

    def __init__(self, parts: Iterable[Row | ChatSpan] = (), spans: ChatSpans | None = None) -> None:
        self._parts = tuple(parts)
        self._spans = spans
        counts = (part.count if isinstance(part, ChatSpan) else 1 for part in self._parts)
        *self._begins, self._count = accumulate(counts, initial=0)
        self._pages: dict[tuple[int, int], list[Conversation]] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]  # no slices
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self._begins, index) - 1
        part = self._parts[number]
        if not isinstance(part, ChatSpan):
            return part
        page, inside = divmod(index - self._begins[number], _PAGE)
        return ChatRow(self._page(number, page)[inside], part.depth)

    def _page(self, number: int, page: int) -> list[Conversation]:
        if (number, page) not in self._pages:
            part = self._parts[number]
            assert isinstance(part, ChatSpan)
            assert self._spans is not None
            if len(self._pages) >= _MAX_PAGES:
                self._pages.clear()
            read = self._spans.read_chats(part, page * _PAGE, _PAGE)
            expected = min(_PAGE, part.count - page * _PAGE)
            # Until the rows are counted again, an empty one stands for a chat that was removed meanwhile.
            self._pages[number, page] = read + [NEW_CHAT] * (expected - len(read))
        return self._pages[number, page]

    @property
    def shape(self) -> Sequence[object]:
        """All that decides the position of rows, except the order of chats within a part."""
        return [
            part if isinstance(part, ChatSpan) else (key_of(part), 0 if isinstance(part, SectionRow) else part.depth)
            for part in self._parts
        ]

    def section_of(self, index: int) -> SectionRow | None:
        """Return the heading above a row, or the row itself; None where there is none."""
        above = self._parts[: bisect_right(self._begins, index)]
        return next((part for part in reversed(above) if isinstance(part, SectionRow)), None)

    def index_of(self, key: Key) -> int | None:
        """Return the index of a row; None for a chat or folder that is not listed."""
        kind, number = key
        for begin, part in zip(self._begins, self._parts, strict=True):
            if not isinstance(part, ChatSpan):
                if key_of(part) == key:
                    return begin
            elif kind == "chat" and isinstance(number, int) and self._spans is not None:
                inside = self._spans.index_in(part, number)
                if inside is not None:
                    return begin + inside
        return None

    def chat_near(self, conversation_id: int, by: int) -> Conversation | None:
        """Return the next chat below a chat, or above it if `by` is -1; None at the end of the list.

        A chat that has no row, such as a new one, counts as above the first row.
        """
        start = self.index_of(("chat", conversation_id))
        if start is None:
            start = -1
        indices = range(start + 1, len(self)) if by > 0 else range(start - 1, -1, -1)
        for index in indices:
            row = self[index]
            if isinstance(row, ChatRow):
                return row.conversation
        return None


def chats_listing(spans: ChatSpans, folders: Sequence[Folder], now: float) -> Listing:
    """Return the listing of all chats except those in the archive or the Trash.

    Args:
        spans: Reads the chats.
        folders: Folders by name.
        now: Seconds since the epoch.
    """
    pinned = spans.pinned()
    inside = spans.by_folder()
    parts: list[Row | ChatSpan] = [SectionRow(PINNED), pinned] if pinned.count else []
    if folders:
        parts.append(SectionRow(FOLDERS))
        nested = defaultdict[int | None, list[Folder]](list)
        for folder in folders:
            nested[folder.parent_id].append(folder)
        for folder in nested[None]:
            parts += _folder_parts(folder, nested[folder.id], inside)
    # All other chats are listed by date: those outside of folders, and those in deleted folders.
    known = {folder.id for folder in folders}
    for title, span in spans.dated([each for each in inside if each not in known], now):
        parts += [SectionRow(title), span]
    return Listing(parts, spans)


def _folder_parts(
    folder: Folder, nested: Sequence[Folder], inside: dict[int | None, ChatSpan]
) -> Iterator[Row | ChatSpan]:
    """Yield a folder's row and, if it is expanded, the folders in it with their chats, then its own chats."""
    counts = {each.id: inside[each.id].count if each.id in inside else 0 for each in (folder, *nested)}
    yield FolderRow(folder, 0, sum(counts.values()))
    if not folder.expanded:
        return
    for each in nested:
        yield FolderRow(each, 1, counts[each.id])
        if each.expanded and each.id in inside:
            yield replace(inside[each.id], depth=2)
    if folder.id in inside:
        yield replace(inside[folder.id], depth=1)
