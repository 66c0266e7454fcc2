"""Database files made by hand, which may contain code that SQLite would run."""

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.storage import reading
from rdchat.chat.storage.file_check import APPLICATION_ID
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api import Role
from tests.stores import assert_set_aside, change_by_hand, connect_by_hand
from tests.time_limits import at_most

ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"


@pytest.fixture
def filled(database: Path) -> Path:
    with closing(ConversationStore(database)) as store:
        chat = store.create_conversation("before")
        prompt = store.add_message(chat.id, None, Role.USER, "question")
        store.add_message(chat.id, prompt.id, Role.ASSISTANT, "answer")
    return database


HOSTILE: dict[str, Sequence[str]] = {
    "the lowest version": [f"PRAGMA user_version = {-(2**31)}"],
    "version 0 with our tables": ["PRAGMA user_version = 0"],
    "no table of messages": ["PRAGMA foreign_keys = OFF", "DROP TABLE messages"],
    "no column": ["ALTER TABLE messages DROP COLUMN drafting"],
    "a generated column": ["ALTER TABLE messages ADD COLUMN more TEXT AS (hex(zeroblob(1000000000)))"],
    "an endless view in the place of a table": [
        "ALTER TABLE messages RENAME TO old",
        f"CREATE VIEW messages AS {ENDLESS} x AS id FROM n",
    ],
    "an endless trigger": [
        f"CREATE TRIGGER more AFTER UPDATE ON messages BEGIN DELETE FROM message_traces WHERE trace IN ({ENDLESS} x"
        " FROM n); END"
    ],
    "an index of another meaning": [
        "DROP INDEX messages_activated",
        "CREATE INDEX messages_activated ON messages (conversation_id)",
    ],
    "the last id of all is taken": ["UPDATE sqlite_sequence SET seq = 9223372036854775807"],
    "an id that no signal carries": ["UPDATE messages SET id = 3000000000 WHERE id = 2"],
    "an id below 0": ["UPDATE messages SET id = -5 WHERE id = 2"],
    "a counter at its end": ["UPDATE messages SET activated = 9223372036854775807"],
    "a title of 100 MB": ["UPDATE conversations SET title = hex(zeroblob(50000000))"],
    "a reply under way of 100 MB": [
        "UPDATE messages SET status = 'streaming', text = hex(zeroblob(50000000)) WHERE id = 2"
    ],
    "a statement that is no SQL": [
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE messages (' WHERE name = 'messages'",
    ],
    "two tables on the same pages": [
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'titles_index_data')"
        " WHERE name = 'messages_index_data'",
    ],
    "a search index of another format": ["UPDATE messages_index_config SET v = 99 WHERE k = 'version'"],
}


@pytest.mark.parametrize(
    "statements",
    [pytest.param(each, marks=pytest.mark.slow if "MB" in name else (), id=name) for name, each in HOSTILE.items()],
)
def test_a_schema_that_no_version_made_is_set_aside_before_it_is_run(filled: Path, statements: Sequence[str]) -> None:
    change_by_hand(filled, *statements)
    assert_set_aside(filled)


def spoil_a_statement(database: Path) -> None:
    """Flip bits in a statement of the schema: SQLite quotes it in its error, which then is no UTF-8."""
    change_by_hand(database, "PRAGMA wal_checkpoint(TRUNCATE)")
    content = database.read_bytes()
    spoilt = content.replace(b"CREATE INDEX messages_by_model", b"CREAT\xc5 INDEX messages_by_model")
    assert spoilt != content
    database.write_bytes(spoilt)


def test_a_statement_that_is_no_text_is_set_aside(filled: Path) -> None:
    """One flipped bit kept the window from starting, "something unexpected"."""
    spoil_a_statement(filled)
    with pytest.raises(StorageError, match="are damaged, or of another version"), reading(filled):
        pass
    assert_set_aside(filled)


def test_our_mark_on_an_empty_file_is_a_new_database(database: Path) -> None:
    database.parent.mkdir()
    change_by_hand(database, f"PRAGMA application_id = {APPLICATION_ID}")
    with closing(ConversationStore(database)) as store:
        assert store.notice is None
        store.create_conversation()


def test_statistics_that_another_program_made_change_nothing(filled: Path) -> None:
    change_by_hand(filled, "ANALYZE")
    with closing(ConversationStore(filled)) as store:
        assert store.notice is None


@pytest.mark.slow
def test_a_text_of_100_mb_is_refused_in_plain_words_and_the_other_chats_open(filled: Path) -> None:
    change_by_hand(filled, "UPDATE messages SET text = hex(zeroblob(50000000)) WHERE id = 2")
    with closing(ConversationStore(filled)) as store:
        (chat,) = store.conversations()
        with pytest.raises(StorageError, match="too long: rdchat reads up to 64 MB"):
            store.messages(chat.id)
        other = store.create_conversation("other")
        assert store.messages(other.id) == []


def test_a_pipe_or_a_link_to_an_endless_device_is_refused(database: Path) -> None:
    database.parent.mkdir()
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        make(database)
        with at_most(60), pytest.raises(StorageError, match="was not written by this rdchat"):
            ConversationStore(database)
        with at_most(60), pytest.raises(StorageError, match="has no chats of rdchat"), reading(database):
            pass
        database.unlink()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE messages_index_data SET block = x'00ff00ff'",
        "UPDATE messages_index_data SET block = zeroblob(5) WHERE id = 10",
        "DELETE FROM messages_index_docsize",
    ],
)
def test_a_search_index_that_does_not_fit_the_chats_is_made_anew(filled: Path, statement: str) -> None:
    """With it no message could be added, and a chat deleted in it kept the store from opening for ever."""
    change_by_hand(filled, statement)
    with closing(ConversationStore(filled)) as store:
        assert store.notice is None
        (chat,) = store.conversations()
        assert len(store.messages(chat.id)) == 2
        store.add_message(chat.id, 2, Role.USER, "another question")
        assert store.conversations("another") == [store.conversation(chat.id)]
        store.delete_conversation(chat.id)
    with closing(ConversationStore(filled)) as store:
        assert store.conversations() == []


def test_opening_leaves_nothing_of_its_check(filled: Path) -> None:
    with closing(connect_by_hand(filled)) as read:
        tables = "conversations", "messages", "sqlite_sequence", "messages_index_docsize", "titles_index_docsize"
        before = [read.execute(f"SELECT * FROM {table}").fetchall() for table in tables]
        ConversationStore(filled).close()
        assert [read.execute(f"SELECT * FROM {table}").fetchall() for table in tables] == before
