import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.storage.database import Database
from rdchat.chat.storage.schema import APPLICATION_ID, MIGRATIONS, migrate, schema_version
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError

NEXT = (*MIGRATIONS, "ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0")
BROKEN = (*MIGRATIONS, "ALTER TABLE conversations ADD COLUMN pinned INTEGER; SELECT no_such_function()")


def test_an_empty_database_gets_every_version_in_turn() -> None:
    with closing(sqlite3.connect(":memory:", autocommit=True)) as connection:
        for newest in range(len(NEXT) + 1):
            migrate(connection, NEXT[:newest])
            assert schema_version(connection) == newest
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("SELECT pinned FROM conversations").fetchall() == []


def test_a_database_of_an_older_version_is_brought_up_to_date_with_what_it_holds(database: Path) -> None:
    with closing(ConversationStore(database)) as store:
        store.create_conversation("from the old version")
    with closing(Database(database, NEXT)) as newer:
        assert newer.notice is None
        assert newer.rows("SELECT title, pinned FROM conversations") == [("from the old version", 0)]
        assert newer.rows("PRAGMA user_version") == [(len(NEXT),)]


def test_a_step_that_fails_leaves_the_version_before(database: Path) -> None:
    ConversationStore(database).close()
    with pytest.raises(StorageError, match="no_such_function"):
        Database(database, BROKEN)
    with closing(Database(database)) as old:
        assert old.notice is None
        assert old.rows("PRAGMA user_version") == [(len(MIGRATIONS),)]
        with pytest.raises(StorageError, match="no such column"):
            old.rows("SELECT pinned FROM conversations")


def test_settings_of_the_connection_hold(database: Path) -> None:
    with closing(Database(database)) as opened:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "checkpoint_fullfsync")
        read = [
            opened.write(lambda writer, name=name: writer.execute(f"PRAGMA {name}").fetchone()[0]) for name in pragmas
        ]  # type: ignore[misc]
    assert read == ["wal", 1, 1, 1]


def test_a_mistake_of_ours_is_no_storage_error(database: Path) -> None:
    with closing(Database(database)) as opened, pytest.raises(sqlite3.ProgrammingError):
        opened.rows("SELECT ?")
