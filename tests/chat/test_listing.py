"""The list of chats, of which only the rows in view are read."""

import random

import pytest

from rdchat.chat.listing import ChatRow, ChatSpans, FolderRow, Listing, Row, SectionRow, chats_listing, key_of
from rdchat.chat.store import ConversationStore
from tests.chat.conftest import OpenStore
from tests.stores import written_by_hand

DAY_S = 86_400.0
NOW = 1_780_000_000.0  # in May 2026


def add(store: ConversationStore, title: str, updated_at: float, **columns: object) -> int:
    """Store a conversation as it is after some use."""
    chat = store.create_conversation(title)
    columns["updated_at"] = updated_at
    with written_by_hand(store) as connection:
        for name, value in columns.items():
            connection.execute(f"UPDATE conversations SET {name} = ? WHERE id = ?", (value, chat.id))
    return chat.id


def listing(store: ConversationStore) -> Listing:
    return chats_listing(store.spans, store.organiser.folders(), NOW)


def content_text(row: Row) -> str:
    if isinstance(row, SectionRow):
        return f"# {row.title}"
    if isinstance(row, FolderRow):
        return f"{'  ' * row.depth}{row.folder.name} {row.chats}"
    return f"{'  ' * row.depth}{row.conversation.title}"


def test_listing_is_by_pin_folder_and_date(open_store: OpenStore) -> None:
    store = open_store()
    organiser = store.organiser
    a, gone, shut = (organiser.create_folder(name).id for name in ("A", "Gone", "Shut"))
    b = organiser.create_folder("B", a).id
    organiser.set_expanded(shut, expanded=False)
    organiser.delete_folder(gone)
    chats: list[tuple[float, dict[str, object]]] = [
        (-3, {}), (0, {"folder_id": shut}), (1, {}), (1, {"pinned_at": 9.0}), (3, {"folder_id": b}),
        (3, {"folder_id": gone}), (20, {}), (60, {}), (700, {}), (1e300, {"pinned_at": 1.0}), (701, {}), (-1e300, {}),
        (3, {"folder_id": a}), (3, {"archived_at": 1.0}), (3, {"deleted_at": 1.0}), (3, {"unlisted": 1}),
        (1e300, {"folder_id": a}), (1e300, {}),
    ]  # fmt: skip
    for number, (days, columns) in enumerate(chats, start=1):
        add(store, f"c{number}", NOW - days * DAY_S, **columns)
    store.close()
    store = open_store()  # which mends dates that no calendar has
    expected = [
        "# Pinned", "c10", "c4", "# Folders", "A 3", "  B 1", "    c5", "  c13", "  c17", "Shut 1", "# Today", "c1",
        "# Yesterday", "c3", "# Previous 7 days", "c6", "# Previous 30 days", "c7", "# March", "c8", "# 2024", "c9",
        "c11", "# Unknown date", "c12", "c18",
    ]  # fmt: skip
    rows = listing(store)
    assert list(map(content_text, rows)) == expected
    assert [rows.index_of(key_of(row)) for row in rows] == list(range(len(expected)))
    assert rows.index_of(("chat", 2)) is None
    assert [section.title for place in (1, 4, 11) if (section := rows.section_of(place))] == [
        "Pinned", "Folders", "Today"
    ]  # fmt: skip
    near = [rows.chat_near(number, by) for by in (1, -1) for number in (4, 18, 2)]
    assert [chat and chat.title for chat in near] == ["c5", None, "c10", "c10", "c12", None]


@pytest.mark.slow
def test_long_lists_are_those_of_all_conversations_sorted(store: ConversationStore) -> None:
    choose = random.Random(0)
    folders = [store.organiser.create_folder(f"F{number}").id for number in range(3)]
    store.organiser.delete_folder(folders[2])
    times = [NOW - choose.choice([0.1, 5, 5, 5, 40, 400]) * DAY_S for _ in range(400)]
    for number, time in enumerate(times):
        add(store, f"c{number}", time, folder_id=choose.choice([None, None, *folders]))
    chats = [row.conversation for row in listing(store) if isinstance(row, ChatRow)]
    place = {None: 2, folders[2]: 2, folders[0]: 0, folders[1]: 1}
    assert chats == sorted(store.conversations(), key=lambda chat: place[chat.folder_id])


@pytest.mark.slow
def test_what_is_not_in_view_is_not_read(store: ConversationStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with written_by_hand(store) as connection:
        connection.executemany(
            "INSERT INTO conversations (title, created_at, updated_at) VALUES (?, 0, ?)",
            ((f"c{number}", NOW - number) for number in range(5000)),
        )
    read: list[int] = []
    whole = ChatSpans.read_chats
    monkeypatch.setattr(ChatSpans, "read_chats", lambda *about: (found := whole(*about), read.append(len(found)))[0])
    rows = listing(store)
    assert (len(rows), read) == (5001, [])
    shown = [rows[1], *(rows[place] for place in range(4900, 4930))]
    assert [row.conversation.title for row in shown if isinstance(row, ChatRow)][:2] == ["c0", "c4899"]
    assert sum(read) < 200
    place = rows.index_of(("chat", 3000))
    assert place is not None
    assert key_of(rows[place]) == ("chat", 3000)
    assert sum(read) < 300


def test_newest_and_titles_are_found_without_listing(store: ConversationStore) -> None:
    assert store.newest_conversations(1) == []
    odd = add(store, "Odd", -1e300)
    assert store.newest_conversations(1) == [store.conversation(odd)]
    put_away = add(store, "Put away", NOW + 1, archived_at=1.0)
    old = add(store, "Old", NOW - 9)
    new = add(store, "New", NOW)
    deleted = add(store, "Deleted", NOW + 2, deleted_at=1.0)
    assert store.newest_conversations(1) == [store.conversation(new)]
    assert list(store.find_chats([odd, old, put_away, deleted, 99])) == [odd, put_away, old]
    assert [store.has_title(title) for title in ("Old", "Put away", "Deleted", "None")] == [True, True, False, False]


def test_rows_of_chats_that_were_deleted_meanwhile_are_empty(store: ConversationStore) -> None:
    """Another process may delete chats between the count of the rows and the reading of a page."""
    chats = [add(store, f"chat {number}", number) for number in range(3)]
    rows = listing(store)
    store.delete_conversation(chats[0])
    assert [content_text(row).strip() for row in list(rows)[1:]] == ["chat 2", "chat 1", ""]
