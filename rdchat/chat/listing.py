"""Conversations as rows of a list: the pinned ones, folders, then all others by date."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rdchat.chat.conversation import Conversation, Folder

PINNED, FOLDERS = "Pinned", "Folders"


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


type Row = SectionRow | FolderRow | ChatRow


def rows_of(conversations: Sequence[Conversation], folders: Sequence[Folder], now: float) -> list[Row]:
    """Return the rows of the list.

    Args:
        conversations: Newest first, without those in the archive.
        folders: By name.
        now: Seconds since the epoch.
    """
    pinned = sorted((chat for chat in conversations if chat.pinned_at is not None), key=_pin_time)
    rows: list[Row] = [SectionRow(PINNED), *map(ChatRow, pinned)] if pinned else []
    known = {folder.id for folder in folders}
    inside: dict[int, list[Conversation]] = {folder.id: [] for folder in folders}
    outside: list[Conversation] = []
    for chat in conversations:
        if chat.pinned_at is None:
            (inside[chat.folder_id] if chat.folder_id in known else outside).append(chat)
    if folders:
        rows.append(SectionRow(FOLDERS))
        for folder in folders:
            if folder.parent_id is None:
                rows += _folder_rows(folder, [each for each in folders if each.parent_id == folder.id], inside)
    return rows + _dated(outside, now)


def _folder_rows(folder: Folder, nested: Sequence[Folder], inside: dict[int, list[Conversation]]) -> Iterable[Row]:
    total = sum(len(inside[each.id]) for each in (folder, *nested))
    yield FolderRow(folder, 0, total)
    if not folder.expanded:
        return
    for each in nested:
        yield FolderRow(each, 1, len(inside[each.id]))
        if each.expanded:
            yield from (ChatRow(chat, 2) for chat in inside[each.id])
    yield from (ChatRow(chat, 1) for chat in inside[folder.id])


def _dated(conversations: Iterable[Conversation], now: float) -> list[Row]:
    rows: list[Row] = []
    last = ""
    today = datetime.fromtimestamp(now)
    for chat in conversations:
        words = _section(chat.updated_at, today)
        if words != last:
            rows.append(SectionRow(words))
            last = words
        rows.append(ChatRow(chat))
    return rows


def _section(when: float | None, today: datetime) -> str:
    try:
        date = datetime.fromtimestamp(-1e300 if when is None else when)
    except (ValueError, OverflowError, OSError):  # no calendar has it
        return "Unknown date"
    days = (today.date() - date.date()).days
    for limit, words in ((0, "Today"), (1, "Yesterday"), (7, "Previous 7 days"), (30, "Previous 30 days")):
        if days <= limit:  # a clock may have been put back: then it is of today
            return words
    return f"{date:%B}" if date.year == today.year else str(date.year)


def _pin_time(chat: Conversation) -> float:
    return chat.pinned_at or 0.0
