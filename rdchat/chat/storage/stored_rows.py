"""Converts database rows to conversations, folders and messages, and back.

A file may be made by hand or be of another version, so reading never fails: a value that cannot be used becomes None or
a default. The columns of a message follow from the types of the fields of `Message` (`_column`), but for those in
`_SPECIAL`, at the end.
"""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from enum import StrEnum
from functools import lru_cache, partial
from types import NoneType
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

from rdchat.chat.conversation import NO_THINKING, Conversation, Message, MessageStatus, OwnOptions
from rdchat.chat.projects import Folder, Project
from rdchat.chat.storage.connections import Rows
from rdchat.chat.storage.file_check import LONGEST_VALUE
from rdchat.files import from_plain, json_or_none, plain, reader_of
from rdchat.inference.api import AnswerShape, Role, SamplingParams, Statistics, ThinkingChoice

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# A title that was tampered with may have any length, and would delay the list by a second for each 2 MB.
CONVERSATION_COLUMNS = (
    "id, substr(title, 1, 1000), created_at, updated_at, system_prompt, sampling, folder_id, pinned_at,"
    " archived_at IS NOT NULL, deleted_at, thinking, answer_shape, own_options"
)
# The same for lists, without the options: an import may have megabytes of them in each chat.
LISTED_COLUMNS = (
    "id, substr(title, 1, 1000), created_at, updated_at, NULL, NULL, folder_id, pinned_at,"
    " archived_at IS NOT NULL, deleted_at, NULL, NULL, NULL"
)
# A folder whose parent is gone or nested itself is at the top.
FOLDER_COLUMNS = (
    "id, substr(name, 1, 1000), (SELECT p.id FROM folders p WHERE p.id = folders.parent_id AND p.parent_id IS NULL"
    " AND p.deleted_at IS NULL), expanded, deleted_at, project"
)
_ROLES = {each.value: each for each in (Role.USER, Role.TOOL)}

# SQLite's integers are signed, reply seeds are not.
_HALF_RANGE = 2**63
_RANGE = 2**64
# The limits of a reply's counters, far beyond real values.
_MIN = 1e-9
_MAX = 2**53
_MAX_ENTRIES = 1000
# The longest JSON that is parsed, far beyond what is written here.
_LONGEST_JSON = 1 << 22
NO_DATE = -1.0
"""Stored in place of an unknown date."""
END_OF_DATES = 253_402_214_400
"""31 December 9999, a day before the last one of any time zone, in seconds since the epoch."""

# Fields of `Message` that are not columns of its row.
_NO_COLUMNS = {"files", "sibling", "siblings"}


def conversation_from(row: Sequence[Any]) -> Conversation:
    """Read a row of `CONVERSATION_COLUMNS`. A chat that was pinned at no valid date is still pinned."""
    return Conversation(
        id=row[0],
        title=row[1],
        created_at=_date(row[2]),
        updated_at=_date(row[3]),
        system_prompt=row[4],
        sampling=_from_json(SamplingParams(), row[5]),
        folder_id=row[6],
        pinned_at=None if row[7] is None else _date(row[7]) or 0.0,
        archived=bool(row[8]),
        deleted_at=_date(row[9]),
        thinking_choice=_member_of(ThinkingChoice, None)(row[10]),
        answer_shape=shape_from(json_or_none(row[11] or "")),
        own=_own_options(row[12]),
    )


def _own_options(text: str | None) -> OwnOptions:
    return _from_json(OwnOptions(), text) or OwnOptions()


def drop_consent(connection: sqlite3.Connection) -> None:
    """Have each chat of a backup ask before it goes to a remote server, and start no server when it is opened.

    The options are read as the app reads them: SQLite's functions would find another one of two equal names.
    """
    for chat_id, text in connection.execute("SELECT id, own_options FROM conversations").fetchall():
        own = json_column(replace(_own_options(text), sent_to=(), starts_servers=False))
        connection.execute("UPDATE conversations SET own_options = ? WHERE id = ?", (own, chat_id))


def shape_from(data: Any) -> AnswerShape | None:
    """Return the shape of a chat's answers from parsed JSON; None without a usable one."""
    try:
        return plain(AnswerShape, data)
    except (TypeError, ValueError):
        return None


def conversations(rows: Rows, where: str, *parameters: object) -> list[Conversation]:
    """Return the conversations for which an SQL condition holds, in its order."""
    sql = f"SELECT {CONVERSATION_COLUMNS} FROM conversations WHERE {where}"
    return [conversation_from(row) for row in rows(sql, *parameters)]


def listed_chats(rows: Rows, where: str, *parameters: object) -> list[Conversation]:
    """Return the same conversations for a list: without their options."""
    sql = f"SELECT {LISTED_COLUMNS} FROM conversations WHERE {where}"
    return [conversation_from(row) for row in rows(sql, *parameters)]


def chats_with_caches(rows: Rows) -> list[tuple[int, float | None]]:
    """Return id and date of the chats whose caches may be kept on disk. Any thread may call this."""
    results = rows("SELECT id, created_at, own_options FROM conversations WHERE deleted_at IS NULL AND unlisted <> 1")
    return [(chat_id, _date(created)) for chat_id, created, own in results if _own_options(own).keep_cache]


@lru_cache(maxsize=300)
def folder_from(row: tuple[Any, ...]) -> Folder:
    """Read a row of `FOLDER_COLUMNS`; the folders are read often, and their instructions may be long."""
    project = _from_json(Project(), row[5], longest=LONGEST_VALUE)
    return Folder(row[0], row[1], row[2], bool(row[3]), _date(row[4]), project or Project())


def message_from(row: Sequence[Any]) -> Message:
    """Read a row of `MESSAGE_FIELDS`, perhaps followed by index and number of alternatives.

    An unknown word still leaves the text readable: as a complete reply with an unknown finish reason.
    """
    values = {name: column.read(value) for (name, column), value in zip(_COLUMNS.items(), row, strict=False)}
    sibling, siblings = row[len(_COLUMNS) :] or (0, 1)
    return Message(**values, sibling=sibling, siblings=siblings)


def message_row(message: Message) -> list[Any]:
    """Return a message's row of `MESSAGE_FIELDS`."""
    return [column.write(getattr(message, name)) for name, column in _COLUMNS.items()]


def assignment(**fields: Any) -> tuple[str, list[Any]]:
    """Return SQL that sets fields of a message, and its parameters."""
    return ", ".join(f"{name} = ?" for name in fields), [_COLUMNS[name].write(value) for name, value in fields.items()]


def json_column(value: "DataclassInstance | None") -> str | None:
    """Return a dataclass as JSON for a column; None stays None."""
    return None if value is None else json.dumps(asdict(value), separators=(",", ":"))


def options_columns(chat: Conversation) -> tuple[object, ...]:
    """Return a chat's options for the columns system_prompt, sampling, thinking, answer_shape and own_options."""
    prompt = None if chat.system_prompt is None else text_column(chat.system_prompt)
    own = None if chat.own == OwnOptions() else json_column(chat.own)
    return prompt, json_column(chat.sampling), chat.thinking_choice, json_column(chat.answer_shape), own


def text_column(text: str) -> str:
    """Replace lone surrogates, which a paste can contain and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class _Column:
    """Converts a field from its column, whatever it contains, and back."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value
    is_json: bool = False


def _column(hint: Any) -> _Column:
    """Return the column of a type; None is stored as NULL if the type allows it."""
    if get_origin(hint) is tuple:
        return _Column(partial(_items, reader_of(hint)), _items_column, is_json=True)
    kind: Any = next((each for each in get_args(hint) if each is not NoneType), hint)
    if is_dataclass(kind):
        return _Column(partial(_from_json, cast("Any", kind)()), json_column, is_json=True)
    if issubclass(kind, StrEnum):
        return _Column(_member_of(kind, None))
    if kind is str:
        return _Column(lambda text: text, lambda text: None if text is None else text_column(text))
    return _Column(bool if kind is bool else lambda value: value)


def _member_of(kind: type[StrEnum], default: StrEnum | None) -> Callable[[Any], Any]:
    """Return the function that reads a column with a member of an enum; it returns `default` for any other value."""
    return lambda value: kind(value) if value in kind else default


def _items(read: Callable[[Any], tuple[Any, ...]], text: str | None) -> tuple[Any, ...]:
    """Read the first items of a tuple; none if it is damaged or very long.

    Offsets of control tokens that are not read are then ordinary text, and calls are gone.
    """
    if text is None or len(text) > _LONGEST_JSON:
        return ()
    try:
        return read(json.loads(text)[:_MAX_ENTRIES])
    # An object has no beginning: a LookupError.
    except (TypeError, ValueError, LookupError, RecursionError):
        return ()


def _items_column(items: tuple[Any, ...]) -> str | None:
    # Letters stay as they are, so that the search finds them.
    return text_column(json.dumps(items, default=asdict, ensure_ascii=False)) if items else None


def _date(seconds: float | None) -> float | None:
    """Return a time from 1970 to 9999; None for any other number."""
    return seconds if seconds is not None and 0 <= seconds < END_OF_DATES else None


def _is_countable(data: Any) -> bool:
    """Return whether no figure from a reply's counters overflows or fills the window."""
    if isinstance(data, dict):
        return all(_is_countable(value) for value in data.values())
    if isinstance(data, list):
        return len(data) <= _MAX_ENTRIES and all(_is_countable(value) for value in data)
    return not isinstance(data, int | float) or data == 0 or _MIN <= data < _MAX


def _from_json[T: "DataclassInstance"](
    default: T,
    text: str | None,
    is_right: Callable[[Any], bool] = lambda _data: True,
    longest: int = _LONGEST_JSON,
) -> T | None:
    """Read a value of any version; None if it is missing, unreadable or very long."""
    if text is None or len(text) > longest:
        return None
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or not is_right(data):
            return None
        return from_plain(default, data)[0]
    except (ValueError, RecursionError):
        return None


# Fields that are not read and written by their type alone.
_SPECIAL = {
    "role": _Column(lambda role: _ROLES.get(role, Role.ASSISTANT)),
    "status": _Column(_member_of(MessageStatus, MessageStatus.COMPLETE)),
    "created_at": _Column(_date, lambda date: NO_DATE if date is None else date),
    "seed": _Column(
        lambda seed: None if seed is None else seed % _RANGE,
        lambda seed: None if seed is None else (seed + _HALF_RANGE) % _RANGE - _HALF_RANGE,
    ),
    "statistics": _Column(lambda text: _from_json(Statistics(), text, _is_countable), json_column, is_json=True),
    "thinking": _Column(
        lambda text: _from_json(NO_THINKING, text, _is_countable) or NO_THINKING,
        lambda thinking: None if thinking == NO_THINKING else json_column(thinking),
        is_json=True,
    ),
}
_COLUMNS = {
    name: _SPECIAL.get(name) or _column(hint)
    for name, hint in get_type_hints(Message).items()
    if name not in _NO_COLUMNS
}
MESSAGE_FIELDS = tuple(_COLUMNS)
JSON_FIELDS = tuple(name for name, column in _COLUMNS.items() if column.is_json)
MESSAGE_COLUMNS = ", ".join(MESSAGE_FIELDS)
