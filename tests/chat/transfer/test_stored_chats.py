"""Chats of another database are imported; what cannot be read costs no other chat."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role
from tests.chat.transfer.conftest import ImportFiles
from tests.stores import connect_by_hand


@pytest.mark.slow
def test_one_chat_that_cannot_be_read_costs_no_other_one_and_nothing_is_left_beside_the_file(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    paths = [tmp_path / "one" / "chats.db", tmp_path / "two" / "chats.db"]
    for path in paths:
        with closing(ConversationStore(path)) as other:
            for title in ("First", "Second"):
                other.add_message(
                    other.create_conversation(title).id, None, Role.USER, f"{title} of {path.parent.name}"
                )
        path.with_name("chats.db.lock").unlink()
    with closing(connect_by_hand(paths[0], autocommit=True)) as by_hand:
        (trigger,) = by_hand.execute("SELECT sql FROM sqlite_schema WHERE name = 'messages_changed'").fetchone()
        by_hand.execute("DROP TRIGGER messages_changed")
        by_hand.execute("UPDATE messages SET text = printf('%.*c', ?, 'x') WHERE id = 1", (65 << 20,))
        by_hand.execute(trigger)
    report = import_files(*paths)
    assert [(each.title, each.reason) for each in report.not_taken] == [("First", "It cannot be read.")]
    assert len(store.conversations()) == 3
    assert [list(path.parent.iterdir()) for path in paths] == [[path] for path in paths]


def test_a_database_that_another_tool_left_in_the_midst_of_writing_is_not_read_half(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    path = tmp_path / "whole" / "chats.db"
    left = tmp_path / "left"
    with closing(ConversationStore(path)) as other:
        for number in range(50):
            chat = other.create_conversation(f"Chat {number}")
            other.add_message(chat.id, None, Role.USER, "committed " * 3000)
    left.mkdir()
    with closing(connect_by_hand(path, autocommit=True)) as by_hand:
        by_hand.executescript("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 2; BEGIN")
        by_hand.executescript("UPDATE conversations SET title = 'HALF'; DELETE FROM messages WHERE id > 5")
        for name in ("chats.db", "chats.db-journal"):
            shutil.copy(path.with_name(name), left / name)
    assert not import_files(left / "chats.db").is_complete
    assert not store.conversations()
