"""The whole store in one file, and back: nothing is lost, whatever the file is and whenever the process dies."""

import json
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.backups import BackupFacts, Restored, carry_out, decide, finish, withdraw
from rdchat.errors import StorageError, StorageLockedError
from rdchat.inference.api import Role
from tests.chat.conftest import StartProcess
from tests.chat.transfer import tasks
from tests.chat.transfer.tasks import prepare
from tests.stores import connect_by_hand

CARRY_OUT = """
import os, signal, sys
from pathlib import Path
from rdchat.chat.transfer import backups

data, left = Path(sys.argv[1]), int(sys.argv[2])
rename, rmtree = Path.rename, backups.shutil.rmtree

def counted(call):
    def step(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return step

Path.rename = counted(rename)
backups.shutil.rmtree = counted(rmtree)
backups.decide(data)
backups.carry_out(data, data / "conversations.db", data / "settings.json")
"""


def fill(path: Path, title: str) -> None:
    """Make a store with one chat, and settings of that name."""
    with closing(ConversationStore(path / "conversations.db")) as store:
        chat = store.create_conversation(title)
        store.add_message(chat.id, None, Role.USER, f"About {title}")
    (path / "settings.json").write_text(json.dumps({"system_prompt": title}))


def titles(path: Path) -> list[str]:
    with closing(ConversationStore(path)) as store:
        assert store.notice is None
        return [each.title for each in store.conversations()]


def back_up(folder: Path, path: Path) -> BackupFacts:
    return tasks.back_up(folder / "conversations.db", folder / "settings.json", path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with the chats that are there now."""
    (tmp_path / "data").mkdir()
    fill(tmp_path / "data", "Now")
    return tmp_path / "data"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of other chats."""
    (tmp_path / "old").mkdir()
    fill(tmp_path / "old", "Then")
    back_up(tmp_path / "old", tmp_path / "backup.zip")
    return tmp_path / "backup.zip"


def restore(backup: Path, data: Path, settings: Path | None = None) -> Restored:
    prepare(backup, data, settings)
    decide(data)
    kept = carry_out(data, data / "conversations.db", data / "settings.json")
    assert kept is not None
    return kept


def finish_in(data: Path) -> Restored | None:
    return finish(data, data / "conversations.db", data / "settings.json")


def test_token_ids_in_a_backup_are_not_trusted(data: Path, backup: Path, tmp_path: Path) -> None:
    with closing(ConversationStore(tmp_path / "old" / "conversations.db")) as store:
        store.reply_tokens.save_tokens(store.reply_tokens.newest_message, "tokenizer", [1, 2, 3])
        assert store.reply_tokens.bytes == 12
    backup.unlink()
    back_up(tmp_path / "old", backup)
    prepare(backup, data)
    with closing(ConversationStore(data / "part-restore" / "conversations.db")) as store:
        assert store.reply_tokens.bytes == 0


def test_a_backup_has_what_the_open_store_has_at_that_moment(data: Path, tmp_path: Path):
    with closing(ConversationStore(data / "conversations.db")) as store:
        store.create_conversation("Just now")  # in the write-ahead log still
        facts = back_up(data, tmp_path / "backup.zip")
        store.create_conversation("Later")
    assert (facts.chats, facts.messages, facts.settings) == (2, 1, True)
    with zipfile.ZipFile(tmp_path / "backup.zip") as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path / "unpacked")
    assert titles(tmp_path / "unpacked" / "conversations.db") == ["Just now", "Now"]
    assert json.loads((tmp_path / "unpacked" / "backup.json").read_text())["chats"] == 2
    assert not list(tmp_path.glob("part-*"))


def test_what_is_in_the_bin_is_counted_neither_in_a_backup_nor_before_a_restore(data: Path, tmp_path: Path):
    with closing(ConversationStore(data / "conversations.db")) as store:
        trashed = store.create_conversation("Trashed")
        cut = store.create_conversation("Cut")
        store.add_message(trashed.id, None, Role.USER, "Hi")
        store.delete_conversation(trashed.id)
        store.message_trash.delete(store.add_message(cut.id, None, Role.USER, "Hi").id)
    made = back_up(data, tmp_path / "backup.zip")
    asked = prepare(tmp_path / "backup.zip", data)
    assert (made.chats, made.messages) == (asked.chats, asked.messages) == (2, 1)


def test_a_restore_puts_chats_and_settings_back_and_is_undone_with_what_it_kept(data: Path, backup: Path):
    def now() -> tuple[list[str], str]:
        return titles(data / "conversations.db"), json.loads((data / "settings.json").read_text())["system_prompt"]

    facts = prepare(backup, data)
    assert (facts.chats, facts.messages, facts.settings) == (1, 1, True)
    assert facts.made_at is not None
    assert now() == (["Now"], "Now"), "nothing is touched before it is decided"
    kept = restore(backup, data)
    assert now() == (["Then"], "Then")
    assert titles(Path(kept.database)) == ["Now"]
    again = restore(Path(kept.database), data, Path(kept.settings))
    assert now() == (["Now"], "Now")
    assert titles(Path(again.database)) == ["Then"]
    assert Path(kept.database).exists(), "a copy of it was restored"


@pytest.mark.parametrize("steps", [3, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (0, 1, 2, 4, 5, 6))])
def test_a_restore_that_is_killed_leaves_the_old_or_the_new_chats_and_is_finished_next_time(
    data: Path, backup: Path, start_process: StartProcess, steps: int
):
    with closing(ConversationStore(data / "conversations.db")) as store:
        store.create_conversation("In the log")
        prepare(backup, data)
    process = start_process(CARRY_OUT, data, steps)
    process.wait()
    finish_in(data)
    if steps == 0:  # before it was decided
        assert titles(data / "conversations.db") == ["In the log", "Now"]
        assert json.loads((data / "settings.json").read_text()) == {"system_prompt": "Now"}
    else:
        assert titles(data / "conversations.db") == ["Then"]
        assert json.loads((data / "settings.json").read_text()) == {"system_prompt": "Then"}
        (kept,) = data.glob("conversations-before-restore-*.db")
        assert titles(kept) == ["In the log", "Now"]
        assert len(list(data.glob("settings-before-restore-*.json"))) == 1
    assert not (data / "restore").exists()
    assert not (data / "part-restore").exists()


@pytest.mark.slow
def test_what_a_killed_app_left_in_the_log_is_kept_too(data: Path, backup: Path, start_process: StartProcess):
    write_and_die = """
import os, signal, sys
from pathlib import Path
from rdchat.chat.store import ConversationStore
ConversationStore(Path(sys.argv[1])).create_conversation("In the log")
os.kill(os.getpid(), signal.SIGKILL)
"""
    start_process(write_and_die, data / "conversations.db").wait()
    assert (data / "conversations.db-wal").stat().st_size
    kept = restore(backup, data)
    assert titles(Path(kept.database)) == ["In the log", "Now"]
    assert titles(data / "conversations.db") == ["Then"]


def spoil_database(archive: zipfile.ZipFile, backup: Path, change: Callable[[Path], object]) -> None:
    """Write a backup whose database is changed."""
    with zipfile.ZipFile(backup) as source:
        source.extract("conversations.db", backup.parent)
        change(backup.parent / "conversations.db")
        archive.writestr("backup.json", source.read("backup.json"))
    archive.write(backup.parent / "conversations.db", "conversations.db")


def execute(sql: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        with closing(connect_by_hand(path)) as connection:
            connection.executescript(sql)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (execute("PRAGMA user_version = 99"), "newer version"),
        (execute("PRAGMA application_id = 5"), "not a backup"),
        (execute("CREATE TRIGGER evil AFTER INSERT ON messages BEGIN DELETE FROM messages; END"), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"CREATE INDEX", b"CREAT\xc5 INDEX")), "is damaged"),
        (lambda path: path.write_bytes(b""), "not a backup"),
    ],
)
def test_a_backup_is_checked_before_anything_is_touched(
    data: Path, backup: Path, tmp_path: Path, change: Callable[[Path], object], words: str
):
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        spoil_database(archive, backup, change)
    before = sorted(path.name for path in data.iterdir())
    with pytest.raises(StorageError, match=words):
        prepare(tmp_path / "bad.zip", data)
    assert sorted(path.name for path in data.iterdir()) == before
    assert titles(data / "conversations.db") == ["Now"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda content: content[: len(content) // 2], "damaged"),
        (lambda content: content[:2000] + b"\0\1\2\3" + content[2004:], "damaged"),
        (lambda content: b"PK\5\6" + bytes(18), "not a backup"),
    ],
)
def test_a_damaged_archive_is_refused(data: Path, backup: Path, spoil: Callable[[bytes], bytes], words: str):
    backup.write_bytes(spoil(backup.read_bytes()))
    with pytest.raises(StorageError, match=words):
        prepare(backup, data)
    assert titles(data / "conversations.db") == ["Now"]
    assert not (data / "part-restore").exists()


def test_a_date_that_no_calendar_has_is_unknown(data: Path, backup: Path, tmp_path: Path):
    with zipfile.ZipFile(backup) as source, zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        about = json.loads(source.read("backup.json")) | {"made_at": 1e300, "chats": "many", "path": 7}
        archive.writestr("backup.json", json.dumps(about))
        archive.writestr("conversations.db", source.read("conversations.db"))
    facts = prepare(tmp_path / "odd.zip", data)
    assert (facts.made_at, facts.chats, facts.settings) == (None, 1, False)


def test_a_restore_that_cannot_move_the_chats_gives_up_and_leaves_them(
    data: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
):
    prepare(backup, data)
    decide(data)
    rename = Path.rename

    def fail_to_put(self: Path, target: Path) -> Path:
        if self.parent.name == "restore":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_to_put)
    with pytest.raises(StorageError, match="cannot be put into"):
        carry_out(data, data / "conversations.db", data / "settings.json")
    monkeypatch.undo()
    withdraw(data, data / "conversations.db")
    assert titles(data / "conversations.db") == ["Now"]
    assert not (data / "restore").exists()


def test_a_decided_restore_waits_for_the_process_that_has_the_store(data: Path, backup: Path):
    prepare(backup, data)
    decide(data)
    with closing(ConversationStore(data / "conversations.db")), pytest.raises(StorageLockedError):
        finish_in(data)
    assert finish_in(data) is not None
    assert titles(data / "conversations.db") == ["Then"]
