"""A database that is deleted, moved or replaced while it is open."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.conversation import Notice
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError, StorageFullError, StorageLockedError
from rdchat.inference.api import Role
from tests.chat.conftest import StartProcess
from tests.disks import SmallDisk

BACK = "The file of your chats was restored"
HOLD = """
import sys
from pathlib import Path
from rdchat.chat.store import ConversationStore
store = ConversationStore(Path(sys.argv[1]))
store.create_conversation("of the other rdchat")
print("open", flush=True)
sys.stdin.read()
store.close()
"""


@pytest.fixture
def told() -> list[Notice]:
    return []


@pytest.fixture
def store(database: Path, told: list[Notice]) -> Iterator[ConversationStore]:
    """An open store with a chat, part of it in the file and part of it in the log only."""
    with closing(ConversationStore(database)) as store:
        store.create_conversation("in the file")
    with closing(ConversationStore(database)) as store:
        store.on_notice = told.append
        store.create_conversation("in the log")
        yield store


def titles(database: Path) -> list[str]:
    with closing(ConversationStore(database)) as store:
        assert store.notice is None
        return sorted(chat.title for chat in store.conversations())


def check_ours_goes_on(store: ConversationStore) -> None:
    store.create_conversation("after")
    store.close()
    assert titles(store.path) == ["after", "in the file", "in the log"]


@pytest.mark.parametrize("endings", [[""], ["", "-wal"], ["", "-wal", "-shm"], ["", "-wal", "-shm", ".lock"], None])
def test_a_deleted_database_is_written_again_with_all_that_was_in_it(
    store: ConversationStore, database: Path, told: list[Notice], endings: list[str] | None
) -> None:
    if endings is None:
        shutil.rmtree(database.parent)
    for ending in endings or []:
        database.with_name(database.name + ending).unlink()
    chat = store.create_conversation("after")
    assert [notice.title for notice in told] == [BACK]
    assert str(database) in told[0].detail
    store.add_message(chat.id, None, Role.USER, "text")
    assert len(told) == 1
    with pytest.raises(StorageLockedError):
        ConversationStore(database)
    store.close()
    assert titles(database) == ["after", "in the file", "in the log"]
    assert {path.name for path in database.parent.iterdir()} == {database.name, f"{database.name}.lock"}


def test_a_database_deleted_before_the_app_quits_is_there_again(store: ConversationStore, database: Path) -> None:
    database.unlink()
    store.close()
    assert titles(database) == ["in the file", "in the log"]


def test_a_database_that_was_moved_away_keeps_what_it_had_and_ours_goes_on(
    store: ConversationStore, database: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    database.rename(elsewhere)
    check_ours_goes_on(store)
    assert "in the file" in titles(elsewhere)


def test_a_database_put_in_the_place_of_ours_is_kept_and_told_of(
    store: ConversationStore, database: Path, told: list[Notice], tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    with closing(ConversationStore(other)) as another:
        another.create_conversation("of the other file")
    other.replace(database)
    check_ours_goes_on(store)
    (kept,) = database.parent.glob("conversations-replaced-*.db")
    assert told[0].detail.endswith(f"the other file was kept as {kept}.")
    assert titles(kept) == ["of the other file"]


def test_the_log_of_a_file_put_in_the_place_of_ours_stays_with_it(
    store: ConversationStore, database: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    writer = sqlite3.connect(other, autocommit=True)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE recipes (name TEXT)")
    writer.execute("INSERT INTO recipes VALUES ('soup')")
    shutil.copy(tmp_path / "other.db-wal", tmp_path / "copy-wal")
    shutil.copy(other, tmp_path / "copy")
    writer.close()
    (tmp_path / "copy").replace(database)
    (tmp_path / "copy-wal").replace(database.with_name(f"{database.name}-wal"))
    check_ours_goes_on(store)
    (kept,) = database.parent.glob("conversations-replaced-*.db")
    with closing(sqlite3.connect(kept)) as read:
        assert read.execute("SELECT name FROM recipes").fetchall() == [("soup",)]


def test_nothing_counts_as_stored_while_the_file_cannot_be_written_again(disk: SmallDisk, told: list[Notice]) -> None:
    path = disk.folder / "conversations.db"
    with closing(ConversationStore(path)) as store:
        store.on_notice = told.append
        store.create_conversation("before")
        path.unlink()
        disk.fill()
        with pytest.raises(StorageFullError):
            store.create_conversation("meanwhile")
        assert [chat.title for chat in store.conversations()] == ["before"]
        assert told == []
        disk.free()
        store.create_conversation("after")
        assert len(told) == 1
    assert titles(path) == ["after", "before"]


def test_a_folder_that_cannot_be_made_again_is_an_error_in_words(store: ConversationStore, database: Path) -> None:
    moved = database.parent.with_name("moved")
    database.parent.rename(moved)
    database.parent.touch()
    with pytest.raises(StorageError, match="is gone and cannot be written again"):
        store.create_conversation("after")
    database.parent.unlink()
    moved.rename(database.parent)
    check_ours_goes_on(store)


@pytest.mark.slow
def test_another_rdchat_that_took_the_place_of_a_deleted_folder_is_left_alone(
    store: ConversationStore, database: Path, start_process: StartProcess
) -> None:
    shutil.rmtree(database.parent)
    other = start_process(HOLD, database)
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"
    with pytest.raises(StorageLockedError, match="Another rdchat is using"):
        store.create_conversation("after")
    other.communicate("")
    assert titles(database) == ["of the other rdchat"]
    check_ours_goes_on(store)
    (kept,) = database.parent.glob("conversations-replaced-*.db")
    assert titles(kept) == ["of the other rdchat"]
