"""Reads fields of strangers' JSON: one of a wrong type makes the chat a damaged one, a missing one is None or empty."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

from rdchat.chat.plain_data import from_plain
from rdchat.chat.storage.file_check import LONGEST_VALUE
from rdchat.chat.storage.rows import text_column
from rdchat.chat.storage.whole_chat import DamagedChatError
from rdchat.inference.api.requests import SamplingParams

_LONGEST_TEXT = LONGEST_VALUE // 4  # characters: in UTF-8, one has up to four bytes
_END_OF_DATES = 253_402_214_400  # 31 December 9999
_MILLISECONDS_FROM = 1e11  # such a number of seconds is in the year 5138

_TITLE = re.compile(rb'"title"\s*:\s*("(?:[^"\\]|\\.){0,500}")')

type Json = dict[str, Any]


def mapping(value: Any, what: str) -> Json:
    """Return a JSON object; an empty one for null."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DamagedChatError(f"{what} is not what it should be")
    return value


def items(value: Any, what: str) -> list[Any]:
    """Return a JSON array; an empty one for null."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise DamagedChatError(f"{what} is not what it should be")
    return value


def words(value: Any, what: str) -> str:
    """Return a text that can be stored; empty for null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DamagedChatError(f"{what} is not a text")
    _check_length(len(value), what)
    return text_column(value.replace("\0", ""))


def joined(texts: Iterable[str], between: str = "\n\n") -> str:
    """Return the parts of a message as one text that can be stored."""
    parts = list(texts)
    _check_length(sum(len(part) + len(between) for part in parts), "A message")
    return between.join(parts)


def name(value: Any) -> str | None:
    """Return a name such as a model's; None where there is none that can be shown."""
    return text_column(" ".join(value.split())[:200]) or None if isinstance(value, str) else None


def chat_name(chat: Any, place: int) -> str:
    """Return what to call a chat, the one at `place` from 0, from its JSON."""
    return (name(chat.get("title")) if isinstance(chat, dict) else None) or f"Chat {place + 1}"


def chat_name_in(beginning: bytes | bytearray, place: int) -> str:
    """Return what to call a chat, the one at `place` from 0, of whose JSON only the beginning is there."""
    found = _TITLE.search(beginning)
    with suppress(ValueError):
        return chat_name({"title": json.loads(found[1])} if found else None, place)
    return chat_name(None, place)


def date(value: Any) -> float | None:
    """Return seconds since the epoch of seconds, milliseconds or an ISO date; None of anything that is no date."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value < _END_OF_DATES * 1000:  # dividing a huge integer would overflow
        return None
    seconds = value / 1000 if value > _MILLISECONDS_FROM else float(value)
    return seconds if seconds < _END_OF_DATES else None


def sampling(values: Json) -> SamplingParams | None:
    """Return how tokens are chosen, of those values that rdchat can use; None where there are none."""
    known = {field: value for field, value in values.items() if value is not None}
    if not known:
        return None
    read, wrong = from_plain(SamplingParams(), known)
    return read if len(wrong) < len(known) else None


def _check_length(characters: int, what: str) -> None:
    if characters > _LONGEST_TEXT:
        raise DamagedChatError(f"{what} is longer than {_LONGEST_TEXT >> 20} million characters")


def thinking(text: str) -> str:
    """Return a text as a model's thinking, as the transcript folds it."""
    return f"<think>\n{text.strip()}\n</think>\n\n" if text.strip() else ""
