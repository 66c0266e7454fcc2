"""Chats that an older version set aside as too new are offered again by the newer version."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.conversation import ContextCut
from rdchat.chat.storage.connections import decline_file, recoverable_files
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.schema import MIGRATIONS
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.requests import Role
from tests.chat.conftest import StartProcess
from tests.chat.transfer.conftest import ImportFiles
from tests.stores import written_by_hand

OF_SCHEMA_7 = Path(__file__).parents[2] / "fixtures" / "schema_7" / "conversations.db"
WRITE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.requests import Role
store = ConversationStore(Path(sys.argv[1]))
store.add_message(store.create_conversation("In the log").id, None, Role.USER, "Hi")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def files_set_aside(database: Path, start_process: StartProcess) -> Path:
    """A store of this version that an older one found and put aside, before it began its own."""
    with closing(ConversationStore(database)) as store:
        chat = store.create_conversation("Before")
        question = store.add_message(chat.id, None, Role.USER, "Why?")
        for text in ("Because.", "Well."):
            reply = store.add_message(chat.id, question.id, Role.ASSISTANT, text)
        store.set_context_cut(reply.id, ContextCut("So far.", "tiny"))
        store.organiser.move(chat.id, store.organiser.create_folder("Work").id)
        store.delete_conversation(store.create_conversation("In the bin").id)
    start_process(WRITE_AND_DIE, database).wait()
    older = MIGRATIONS[:-1]
    with closing(Database(database, older)) as old, written_by_hand(old) as connection:
        assert old.notice is not None
        connection.execute("INSERT INTO conversations (title, created_at, updated_at) VALUES ('Meanwhile', 0, 0)")
        connection.execute(
            "INSERT INTO messages (conversation_id, activated, role, status, created_at, text)"
            " VALUES (1, 1, 'user', 'complete', 0, 'Hm')"
        )
    (found,) = recoverable_files(database)
    return found


def test_they_come_beside_those_that_the_older_one_had(
    files_set_aside: Path, store: ConversationStore, import_files: ImportFiles
) -> None:
    assert store.notice is None
    assert import_files(files_set_aside).complete
    assert [chat.title for chat in store.conversations()] == ["In the log", "Before", "Meanwhile"]
    before = store.conversations()[1]
    assert [folder.id for folder in store.organiser.folders()] == [before.folder_id]
    path = store.messages(before.id)
    assert [message.text for message in path] == ["Why?", "Well."]
    assert path[1].context_cut == ContextCut("So far.", "tiny")
    assert [each.text for each in store.alternatives(path[1].id)] == ["Because.", "Well."]
    assert import_files(files_set_aside).already_here == 2


def test_they_are_not_named_again_once_they_are_left_aside(files_set_aside: Path, database: Path) -> None:
    whole = files_set_aside.read_bytes()
    decline_file(database, files_set_aside)
    assert recoverable_files(database) == []
    (kept,) = database.parent.glob("conversations-kept-*.db")
    assert kept.read_bytes() == whole
    assert kept.with_name(f"{kept.name}-wal").stat().st_size


def test_what_this_version_cannot_read_is_not_named(
    files_set_aside: Path, database: Path, import_files: ImportFiles
) -> None:
    folder = database.parent
    for change in ("user_version = 99", "application_id = 7"):
        with closing(
            sqlite3.connect(shutil.copy(OF_SCHEMA_7, folder / f"conversations-newer-{change[:3]}.db"))
        ) as made:
            made.execute(f"PRAGMA {change}")
    (folder / "conversations-newer-text.db").write_text("text")
    (folder / "conversations-newer-folder.db").mkdir()
    (folder / "other-newer-1.db").write_bytes(files_set_aside.read_bytes())
    assert recoverable_files(database) == [files_set_aside]
    report = import_files(*sorted(folder.glob("conversations-newer-[au]*.db")))
    assert [each.problem for each in report.files] == [
        "conversations-newer-app.db is not a backup of rdchat.",
        "conversations-newer-use.db is from a newer version of rdchat.",
    ]


def test_a_database_of_an_older_version_is_imported_and_not_changed(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    shutil.copy(OF_SCHEMA_7, tmp_path / "old.db")
    assert import_files(tmp_path / "old.db").complete
    assert {chat.title for chat in store.conversations()} == {"Growing things", "Put aside"}
    assert (tmp_path / "old.db").read_bytes() == OF_SCHEMA_7.read_bytes()


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
    with closing(sqlite3.connect(paths[0], autocommit=True)) as by_hand:
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
    path, left = tmp_path / "whole" / "chats.db", tmp_path / "left"
    with closing(ConversationStore(path)) as other:
        for number in range(50):
            chat = other.create_conversation(f"Chat {number}")
            other.add_message(chat.id, None, Role.USER, "committed " * 3000)
    left.mkdir()
    with closing(sqlite3.connect(path, autocommit=True)) as by_hand:
        by_hand.executescript("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 2; BEGIN")
        by_hand.executescript("UPDATE conversations SET title = 'HALF'; DELETE FROM messages WHERE id > 5")
        for name in ("chats.db", "chats.db-journal"):
            shutil.copy(path.with_name(name), left / name)
    assert not import_files(left / "chats.db").complete
    assert not store.conversations()
