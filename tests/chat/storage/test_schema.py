import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.chat.conversation import OwnOptions
from rdchat.chat.storage import Database
from rdchat.chat.storage.file_check import APPLICATION_ID, MIGRATIONS, migrate, schema_version
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role, ToolCall
from tests.stores import connect_by_hand

NEXT = (*MIGRATIONS, "ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0")
BROKEN = (*MIGRATIONS, "ALTER TABLE conversations ADD COLUMN pinned INTEGER; SELECT no_such_function()")


@pytest.fixture(autouse=True)
def quick_stores() -> None:
    """Make stores step by step, as the app does."""


def test_an_empty_database_gets_every_version_in_turn() -> None:
    with closing(sqlite3.connect(":memory:", autocommit=True)) as connection:
        for newest in range(len(NEXT) + 1):
            migrate(connection, NEXT[:newest])
            assert schema_version(connection) == newest
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("SELECT pinned FROM conversations").fetchall() == []


def test_old_chats_keep_the_clock_and_the_folder(database: Path) -> None:
    said = 'Call \\"name\\": \\"time__current_time\\" and "folder"'
    calls = [
        ToolCall("time__current_time", json.dumps({"zone": '"name": "folder__read_file"'}), "a"),
        ToolCall("folder__read_file", "{}", "b"),
        ToolCall("files__read_file", "{}", "c"),
    ]
    with closing(ConversationStore(database)) as store:
        tools = ("time", "files", "folder")
        off = ("time__current_time", "folder__read_file")
        chat = store.create_conversation("time").id
        store.set_chat_options(replace(store.conversation(chat), own=OwnOptions(tools=tools, tools_off=off)))
        reply = store.add_message(chat, None, Role.ASSISTANT, said, tool_calls=tuple(calls))
        results = [store.add_message(chat, reply.id, Role.TOOL, said, tool_name=call.name).id for call in calls]
    with closing(connect_by_hand(database, autocommit=True)) as connection:
        connection.executescript(MIGRATIONS[3])
    with closing(ConversationStore(database)) as store:
        own = store.conversation(chat).own
        assert own.tools == ("rdchat-clock", "files", "rdchat-folder")
        assert own.tools_off == ("rdchat-clock__current_time", "rdchat-folder__read_file")
        reply = store.message(reply.id)
        names = ["rdchat-clock__current_time", "rdchat-folder__read_file", "files__read_file"]
        assert [call.name for call in reply.tool_calls] == names
        assert [call.arguments for call in reply.tool_calls] == [call.arguments for call in calls]
        assert [store.message(each).tool_name for each in results] == names
        assert reply.text == said


def test_a_step_that_fails_leaves_the_version_before() -> None:
    with closing(sqlite3.connect(":memory:", autocommit=True)) as connection:
        with pytest.raises(sqlite3.Error, match="no_such_function"):
            migrate(connection, BROKEN)
        assert schema_version(connection) == len(MIGRATIONS)
        with pytest.raises(sqlite3.Error, match="no such column"):
            connection.execute("SELECT pinned FROM conversations")


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
