"""Parts of the list of conversations: each is counted in an index and read a page at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rdchat.chat.conversation import Conversation
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.rows import CONVERSATION_COLUMNS, END_OF_DATES, conversation_from

# these are the conditions of the indexes in `schema`
_HERE = "deleted_at IS NULL AND unlisted = 0"
_LISTED = f"{_HERE} AND archived_at IS NULL AND pinned_at IS NULL"
_PINNED = f"{_HERE} AND archived_at IS NULL AND pinned_at IS NOT NULL"
_ARCHIVED = f"{_HERE} AND archived_at IS NOT NULL"
_DELETED = "deleted_at IS NOT NULL AND unlisted = 0"

_IS_DATE = "updated_at >= 0 AND updated_at < ?"
_NO_DATES = ("updated_at >= ?", "updated_at < 0 AND ? > 0")  # each with the end of dates
_LATE_AND_EARLY = f"total(updated_at >= {END_OF_DATES}), total(updated_at < 0)"
_ANY_WITHOUT_DATE = f"""
    SELECT EXISTS (SELECT 1 FROM conversations WHERE deleted_at IS NULL AND updated_at < 0)
        OR EXISTS (SELECT 1 FROM conversations WHERE deleted_at IS NULL AND updated_at >= {END_OF_DATES})
"""
_ITS = "(SELECT {columns} FROM conversations WHERE id = ?)"


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of a part: SQL to sort it, and SQL for the conversations before one, whose id is the only parameter."""

    by: str
    before: str


_NEWEST = _Order("updated_at DESC, id DESC", f"(updated_at, id) > {_ITS.format(columns='updated_at, id')}")
_DELETED_LAST = _Order("deleted_at DESC, id DESC", f"(deleted_at, id) > {_ITS.format(columns='deleted_at, id')}")
_PINNED_FIRST = _Order("pinned_at, id", f"(pinned_at, id) < {_ITS.format(columns='pinned_at, id')}")


@dataclass(frozen=True, slots=True)
class ChatSpan:
    """Conversations that are listed one below the other.

    Attributes:
        where: SQL that holds for them.
        parameters: Of `where`.
        order: How they are sorted.
        count: How many there are.
    """

    where: str
    parameters: tuple[object, ...]
    order: _Order
    count: int


class ChatSpans:
    """Counts and reads parts of the list; raises StorageError as `ConversationStore` does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, span: ChatSpan, start: int, count: int) -> list[Conversation]:
        """Return some conversations of a span."""
        sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE {span.where} ORDER BY {span.order.by}"
        rows = self._database.rows(f"{sql} LIMIT ? OFFSET ?", *span.parameters, count, start)
        return [conversation_from(row) for row in rows]

    def place_in(self, span: ChatSpan, conversation_id: int) -> int | None:
        """Return where in a span a conversation is; None where it is not in it."""
        of = f"SELECT count(*) FROM conversations WHERE {span.where}"
        if not self._database.rows(f"{of} AND id = ?", *span.parameters, conversation_id)[0][0]:
            return None
        return int(self._database.rows(f"{of} AND {span.order.before}", *span.parameters, conversation_id)[0][0])

    def pinned(self) -> ChatSpan:
        """Return the pinned conversations, the one pinned first at the top."""
        return self._span(_PINNED, (), _PINNED_FIRST)

    def deleted(self) -> ChatSpan:
        """Return the conversations in the bin, the last one deleted first."""
        return self._span(_DELETED, (), _DELETED_LAST)

    def archived(self) -> list[ChatSpan]:
        """Return the conversations in the archive: the newest first, those whose date is unknown last."""
        table = "conversations INDEXED BY conversations_archived"
        (counts,) = self._database.rows(f"SELECT count(*), {self._late_and_early()} FROM {table} WHERE {_ARCHIVED}")
        return _by_date(_ARCHIVED, (), *counts)

    def by_folder(self) -> dict[int | None, list[ChatSpan]]:
        """Return the conversations by folder, pinned ones left out; None is outside of any, deleted folders count."""
        columns = f"folder_id, count(*), {self._late_and_early()}"
        rows = self._database.rows(f"SELECT {columns} FROM conversations WHERE {_LISTED} GROUP BY folder_id")
        return {row[0]: _by_date(f"{_LISTED} AND folder_id IS ?", (row[0],), *row[1:]) for row in rows}

    def dated(self, folders: Sequence[int | None], now: float) -> list[tuple[str, ChatSpan]]:
        """Return the conversations of some folders as sections, each with its heading.

        Args:
            folders: Their ids; None is outside of any.
            now: Seconds since the epoch.
        """
        sections: list[tuple[str, ChatSpan]] = []
        where, today = _in_folders(folders), datetime.fromtimestamp(now)
        before: float = END_OF_DATES
        while (when := self._newest(folders, before)) is not None:
            words, since = _section(when, today)
            limits = "updated_at >= ? AND updated_at < ?"
            count = self._count_in(folders, limits, since, before)
            sections.append((words, ChatSpan(f"{where} AND {limits}", (since, before), _NEWEST, count)))
            before = since
        for no_date in _NO_DATES:
            if count := self._count_in(folders, no_date, END_OF_DATES):
                sections.append(("Unknown date", ChatSpan(f"{where} AND {no_date}", (END_OF_DATES,), _NEWEST, count)))
        return sections

    # one folder after the other: of several at once, SQLite would read the whole index

    def _newest(self, folders: Sequence[int | None], before: float) -> float | None:
        sql = f"SELECT max(updated_at) FROM conversations WHERE {_LISTED} AND folder_id IS ? AND {_IS_DATE}"
        times = (self._database.rows(sql, each, before)[0][0] for each in folders)
        return max((each for each in times if each is not None), default=None)

    def _count_in(self, folders: Sequence[int | None], condition: str, *parameters: object) -> int:
        sql = f"SELECT count(*) FROM conversations WHERE {_LISTED} AND folder_id IS ? AND {condition}"
        return sum(self._database.rows(sql, each, *parameters)[0][0] for each in folders)

    def _late_and_early(self) -> str:
        """Return SQL for how many have a time after the last date, or before the first one: mostly none."""
        return _LATE_AND_EARLY if self._database.rows(_ANY_WITHOUT_DATE)[0][0] else "0, 0"

    def _span(self, where: str, parameters: tuple[object, ...], order: _Order) -> ChatSpan:
        ((count,),) = self._database.rows(f"SELECT count(*) FROM conversations WHERE {where}", *parameters)
        return ChatSpan(where, parameters, order, count)


def _in_folders(folders: Sequence[int | None]) -> str:
    ids = [str(each) for each in folders if each is not None]
    if not ids:
        return f"{_LISTED} AND folder_id IS NULL"
    return f"{_LISTED} AND (folder_id IS NULL OR folder_id IN ({', '.join(ids)}))"


def _by_date(where: str, parameters: Iterable[object], count: int, late: float, early: float) -> list[ChatSpan]:
    spans = [ChatSpan(f"{where} AND {_IS_DATE}", (*parameters, END_OF_DATES), _NEWEST, count - int(late + early))]
    for no_date, number in zip(_NO_DATES, (late, early), strict=True):
        spans.append(ChatSpan(f"{where} AND {no_date}", (*parameters, END_OF_DATES), _NEWEST, int(number)))
    return [span for span in spans if span.count]


def _section(when: float, today: datetime) -> tuple[str, float]:
    """Return the heading of a time, and since when it holds."""
    date = datetime.fromtimestamp(when)
    days = (today.date() - date.date()).days
    for limit, words in ((0, "Today"), (1, "Yesterday"), (7, "Previous 7 days"), (30, "Previous 30 days")):
        if days <= limit:  # a clock may have been put back: then it is of today
            return words, min(when, _midnight(today - timedelta(days=limit)))
    if date.year == today.year:
        return f"{date:%B}", min(when, _midnight(date.replace(day=1)))
    return str(date.year), min(when, _midnight(date.replace(month=1, day=1)))


def _midnight(date: datetime) -> float:
    return max(0.0, date.replace(hour=0, minute=0, second=0, microsecond=0).timestamp())
