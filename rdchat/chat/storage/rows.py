"""Between rows of the database and the data of a chat."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rdchat.chat.conversation import (
    NO_THINKING,
    ContextCut,
    Conversation,
    Drafting,
    Folder,
    MadeWith,
    Message,
    MessageStatus,
    Thinking,
)
from rdchat.chat.plain_data import from_plain
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Role, SamplingParams, ThinkingChoice

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# a title that was tampered with may be of any length, and would take the list a second for each 2 MB
CONVERSATION_COLUMNS = (
    "id, substr(title, 1, 1000), created_at, updated_at, system_prompt, sampling, folder_id, pinned_at,"
    " archived_at IS NOT NULL, deleted_at, thinking"
)
FOLDER_COLUMNS = "id, substr(name, 1, 1000), parent_id, expanded, deleted_at"

MESSAGE_COLUMNS = (
    "id, conversation_id, parent_id, role, text, status, created_at, model, seed, finish_reason, error, statistics,"
    " drafting, control_offsets, thinking, context_cut, edited, made_with"
)

# of the same places: what a model is told of a message, or not, follows from these
TOLD_COLUMNS = (
    "id, conversation_id, parent_id, role, text, status, created_at, model, seed, finish_reason, error, NULL,"
    " NULL, control_offsets, thinking, context_cut, edited, NULL"
)

_ROLES = {Role.USER.value: Role.USER}
_STATUSES = {each.value: each for each in MessageStatus}
_FINISH_REASONS = {each.value: each for each in FinishReason}
_CHOICES = {each.value: each for each in ThinkingChoice}
_HALF_RANGE, _RANGE = 2**63, 2**64  # SQLite's integers are signed, reply seeds are not
_LEAST, _MOST, _MOST_ENTRIES = 1e-9, 2**53, 1000  # of the counters of a reply: no real ones are beyond
END_OF_DATES = 253_402_214_400
"""31 December 9999, a day before the last one of any time zone, in seconds since the epoch."""


def conversation_from(row: Sequence[Any]) -> Conversation:
    """Read a row of `CONVERSATION_COLUMNS`."""
    return Conversation(
        id=row[0],
        title=row[1],
        created_at=_date(row[2]),
        updated_at=_date(row[3]),
        system_prompt=row[4],
        sampling=_sampling(row[5]),
        folder_id=row[6],
        pinned_at=None if row[7] is None else _date(row[7]) or 0.0,
        archived=bool(row[8]),
        deleted_at=_date(row[9]),
        thinking_choice=_CHOICES.get(row[10]),
    )


def folder_from(row: Sequence[Any]) -> Folder:
    """Read a row of `FOLDER_COLUMNS`."""
    return Folder(row[0], row[1], row[2], bool(row[3]), _date(row[4]))


@lru_cache(maxsize=256)  # the list of all chats is read anew with each message, and most of them have the same
def _sampling(text: str | None) -> SamplingParams | None:
    return _from_json(SamplingParams(), text)


def message_from(row: Sequence[Any]) -> Message:
    """Read a row of `MESSAGE_COLUMNS`, then the place among the alternatives and their number.

    A word that no version of rdchat wrote leaves the text to be read: as a reply, complete, whose end is not known.
    """
    return Message(
        id=row[0],
        conversation_id=row[1],
        parent_id=row[2],
        role=_ROLES.get(row[3], Role.ASSISTANT),
        text=row[4],
        status=_STATUSES.get(row[5], MessageStatus.COMPLETE),
        created_at=_date(row[6]),
        model=row[7],
        seed=None if row[8] is None else row[8] % _RANGE,
        finish_reason=_FINISH_REASONS.get(row[9]),
        error=row[10],
        statistics=_statistics(row[11]),
        drafting=_from_json(Drafting(), row[12]),
        control_offsets=_offsets(row[13]),
        thinking=_from_json(NO_THINKING, row[14], _is_countable) or NO_THINKING,
        context_cut=_from_json(ContextCut(), row[15]),
        edited=bool(row[16]),
        made_with=_from_json(MadeWith(), row[17]),
        sibling=row[18],
        siblings=row[19],
    )


def seed_column(seed: int | None) -> int | None:
    """Map 0 .. 2**64 - 1 to SQLite's signed 64 bits."""
    return seed - _RANGE if seed is not None and seed >= _HALF_RANGE else seed


def json_column(value: "DataclassInstance | None") -> str | None:
    return None if value is None else json.dumps(asdict(value), separators=(",", ":"))


def text_column(text: str) -> str:
    """Replace half surrogates, which a paste can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def thinking_column(thinking: Thinking) -> str | None:
    return None if thinking == NO_THINKING else json_column(thinking)


def offsets_column(offsets: Sequence[int]) -> str | None:
    return json.dumps(list(offsets), separators=(",", ":")) if offsets else None


def _offsets(text: str | None) -> tuple[int, ...]:
    """Read offsets; none where they cannot be read, which makes ordinary text of what stands there."""
    if not text:
        return ()
    try:
        offsets = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(each for each in offsets if isinstance(each, int)) if isinstance(offsets, list) else ()


def _date(seconds: float | None) -> float | None:
    """Return a time that a calendar has, from 1970 to 9999; None for any other number."""
    return seconds if seconds is not None and 0 <= seconds < END_OF_DATES else None


def _statistics(text: str | None) -> Statistics | None:
    """Read a reply's counters; None where figures of them would overflow, divide by zero or fill the window."""
    read = _from_json(Statistics(), text, _is_countable)
    return None if read is None or (read.rounds and not sum(read.accepted_lengths)) else read


def _is_countable(data: Any) -> bool:
    if isinstance(data, dict):
        return all(_is_countable(value) for value in data.values())
    if isinstance(data, list):
        return len(data) <= _MOST_ENTRIES and all(_is_countable(value) for value in data)
    return not isinstance(data, int | float) or data == 0 or _LEAST <= data < _MOST


def _from_json[T: "DataclassInstance"](
    default: T, text: str | None, is_right: Callable[[Any], bool] = lambda _data: True
) -> T | None:
    """Read a value of any version; None where there is none or it cannot be read."""
    if text is None:
        return None
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or not is_right(data):
            return None
        return from_plain(default, data)[0]
    except (ValueError, RecursionError):
        return None
