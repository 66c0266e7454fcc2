"""Conversations as rows of a list."""

from collections.abc import Callable

from rdchat.chat.conversation import Conversation, Folder
from rdchat.chat.listing import FolderRow, SectionRow, rows_of

DAY_S = 86_400.0


def test_listing_is_by_pin_folder_and_date() -> None:
    now = 1_780_000_000.0  # in May 2026
    chat: Callable[..., Conversation] = lambda number, days, **more: Conversation(  # noqa: E731
        number, f"c{number}", 0.0, None if days is None else now - days * DAY_S, **more
    )
    folders = [Folder(1, "A"), Folder(2, "B", 1), Folder(3, "Shut", expanded=False)]
    rows = rows_of(
        [
            chat(1, -3), chat(2, 0, folder_id=3), chat(3, 1), chat(4, 1, pinned_at=9.0), chat(5, 3, folder_id=2),
            chat(6, 3, folder_id=99), chat(7, 20), chat(8, 60), chat(9, 700), chat(10, None, pinned_at=1.0),
            chat(11, 701), chat(12, None), chat(13, 3, folder_id=1),
        ],
        folders,
        now,
    )  # fmt: skip
    words = [
        f"# {row.words}" if isinstance(row, SectionRow)
        else f"{'  ' * row.depth}{row.folder.name} {row.chats}" if isinstance(row, FolderRow)
        else f"{'  ' * row.depth}{row.conversation.title}"
        for row in rows
    ]  # fmt: skip
    assert words == [
        "# Pinned", "c10", "c4", "# Folders", "A 2", "  B 1", "    c5", "  c13", "Shut 1", "# Today", "c1",
        "# Yesterday", "c3", "# Previous 7 days", "c6", "# Previous 30 days", "c7", "# March", "c8", "# 2024", "c9",
        "c11", "# Unknown date", "c12",
    ]  # fmt: skip
