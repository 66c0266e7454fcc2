"""Databases that are damaged, of another version, another program's, locked, or read-only."""

import errno
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError, StorageLockedError
from rdchat.inference.api import Role
from tests.chat.conftest import StartProcess
from tests.disks import SmallDisk, pinned
from tests.grids import share
from tests.processes import held_by_another_process
from tests.stores import assert_set_aside, kept_databases

HOLD = """
import sys
from pathlib import Path
from rdchat.chat.store import ConversationStore
store = ConversationStore(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""
DIE_AS_NEWER_VERSION = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], autocommit=True)
connection.execute("PRAGMA user_version = 99")
connection.execute("UPDATE conversations SET system_prompt = 'from the future'")
os._exit(0)
"""


@pytest.fixture
def filled(database: Path) -> Path:
    """A closed database of some twenty pages."""
    with closing(ConversationStore(database)) as store:
        chat = store.create_conversation("before")
        parent = None
        for number in range(30):
            parent = store.add_message(chat.id, parent, Role.USER, f"{number} " + "word " * 300).id
    return database


@pytest.mark.parametrize("kept", share([1, 50, 99, 100, 511, 512, 4095, 4096, 4097, 0.3, 0.5, 0.9, -4096, -1], 5))
def test_a_truncated_database_is_set_aside(filled: Path, kept: float) -> None:
    content = filled.read_bytes()
    content = content[: int(len(content) * kept) if 0 < kept < 1 else int(kept)]
    filled.write_bytes(content)
    assert_set_aside(filled)


@pytest.mark.parametrize(
    "content",
    [b"\0" * 8192, b"Dear diary,\n" * 1000, random.Random(0).randbytes(20_000), b"SQLite format 3\0" + b"\xff" * 9000],
    ids=["zeros", "text", "noise", "a header and noise"],
)
def test_a_file_that_is_no_database_is_set_aside(database: Path, content: bytes) -> None:
    database.parent.mkdir()
    database.write_bytes(content)
    assert_set_aside(database)


@pytest.mark.slow
def test_a_damaged_page_is_found_wherever_it_is(filled: Path) -> None:
    whole = filled.read_bytes()
    pages = len(whole) // 4096
    assert pages > 15
    for page in range(pages):
        content = whole[: page * 4096] + b"\xff" * 4096 + whole[(page + 1) * 4096 :]
        filled.write_bytes(content)
        with closing(ConversationStore(filled)) as store:
            assert store.notice is not None, page
            assert "damaged" in store.notice.detail
    assert len(kept_databases(filled)) == pages  # none replaced another


def test_an_empty_file_is_a_new_database(database: Path) -> None:
    database.parent.mkdir()
    database.touch()
    with closing(ConversationStore(database)) as store:
        assert store.notice is None
        assert store.conversations() == []


def test_a_later_versions_database_is_refused_and_left_with_its_log(filled: Path, start_process: StartProcess) -> None:
    """Its version stands in the write-ahead log only: the later app died before a checkpoint."""
    start_process(DIE_AS_NEWER_VERSION, filled).wait()
    log = filled.with_name(f"{filled.name}-wal")
    content = filled.read_bytes(), log.read_bytes()
    with pytest.raises(StorageError, match="from a later version of rdchat"):
        ConversationStore(filled)
    assert (filled.read_bytes(), log.read_bytes()) == content
    assert kept_databases(filled) == {}


@pytest.mark.parametrize("application", [0, 0x52444348], ids=["another program's", "from before the first release"])
def test_a_database_of_another_kind_is_refused_and_left_as_it_is(database: Path, application: int) -> None:
    database.parent.mkdir()
    with closing(sqlite3.connect(database)) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
        other.execute(f"PRAGMA application_id = {application}")
        other.execute("PRAGMA user_version = 17")
    content = database.read_bytes()
    with pytest.raises(StorageError, match="was not written by this rdchat"):
        ConversationStore(database)
    assert database.read_bytes() == content
    assert kept_databases(database) == {}


def test_a_second_process_is_told_so_until_the_first_dies(database: Path, start_process: StartProcess) -> None:
    first = start_process(HOLD, database)
    assert first.stdout is not None
    assert first.stdout.readline() == "open\n"
    with pytest.raises(StorageLockedError) as caught:
        ConversationStore(database)
    assert caught.value.message == f"Another rdchat is using the chats in {database.parent}."
    assert caught.value.hint == "Quit rdchat first, or use its open window."
    first.kill()
    first.wait()
    ConversationStore(database).close()


def test_a_database_that_another_program_holds_is_named_and_left(filled: Path) -> None:
    with held_by_another_process(filled), pytest.raises(StorageLockedError, match=r"is using .*conversations\.db"):
        ConversationStore(filled)
    with closing(ConversationStore(filled)) as store:
        assert store.notice is None
        with held_by_another_process(filled), pytest.raises(StorageLockedError, match="Another program is using"):
            store.create_conversation("one")
        store.create_conversation("two")
        assert [chat.title for chat in store.conversations()] == ["two", "before"]


def test_only_a_disk_that_failed_is_asked_for_its_room(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is gone, or hangs, has no answer."""

    def gone(_folder: Path) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(shutil, "disk_usage", gone)
    with held_by_another_process(filled), pytest.raises(StorageLockedError):
        ConversationStore(filled)


def test_a_database_that_breaks_while_it_is_open_is_reported(database: Path) -> None:
    with closing(ConversationStore(database)) as store:
        store.create_conversation()
        with closing(sqlite3.connect(database)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.write_bytes(b"\xff" * 40_000)
        store.rows("PRAGMA shrink_memory")
        with pytest.raises(StorageError, match="is damaged") as caught:
            store.conversations("word")
        assert "start it again" in caught.value.hint
    with closing(ConversationStore(database)) as store:
        assert store.notice is not None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot make its folder") as caught:
        ConversationStore(tmp_path / "file" / "data" / "conversations.db")
    assert "RDCHAT_DATA_DIR" in caught.value.hint


def test_a_folder_in_the_place_of_the_database_is_left_alone(database: Path) -> None:
    database.mkdir(parents=True)
    with pytest.raises(StorageError, match="cannot open"):
        ConversationStore(database)
    assert database.is_dir()
    assert kept_databases(database) == {}


def test_a_disk_that_cannot_be_written_to_is_reported_and_nothing_moves(disk: SmallDisk) -> None:
    database = disk.folder / "conversations.db"
    database.write_bytes(b"damaged")
    disk.make_read_only()
    with pytest.raises(StorageError, match="Read-only file system") as caught:
        ConversationStore(database)
    assert str(disk.folder) in caught.value.message
    assert [path.name for path in disk.folder.iterdir()] == ["conversations.db"]


def test_a_damaged_database_that_cannot_be_moved_stays_with_its_log(database: Path) -> None:
    database.parent.mkdir()
    database.write_bytes(b"damaged " * 1000)
    log = database.with_name(f"{database.name}-wal")
    log.write_bytes(b"its log")
    with pinned(database):
        with pytest.raises(StorageError, match=os.strerror(errno.EBUSY)) as caught:
            ConversationStore(database)
        assert caught.value.message.startswith(f"{database} is damaged, and rdchat cannot move it")
        assert database.read_bytes() == b"damaged " * 1000
        assert log.read_bytes() == b"its log"
    assert kept_databases(database) == {}
