"""Imports, exports and restores that the window begins: done by a child process, while the store is used."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest

from rdchat.chat.conversation import ReadingPosition
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer import transfer_process
from rdchat.chat.transfer.chat_import import ImportWriter
from rdchat.chat.transfer.transfer_process import TransferProcess
from rdchat.errors import RdchatError, StorageError
from rdchat.inference.api import Role
from rdchat.services.chat import note_control
from rdchat.services.window.transfers import Transfers
from rdchat.work import served
from tests.chat.transfer.huge_chats import HUGE, within, write, write_zip
from tests.chat.transfer.project_entries import chat_entry, project_entry
from tests.chat.transfer.samples import chatgpt_chat, chatgpt_node, chatgpt_with_everything, ours
from tests.garbage_children import KINDS, put_in_place
from tests.grids import share
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, pause_midway
from tests.stores import add_long_path, written_by_hand

WAIT_MS = 60_000


@pytest.fixture
def desk(window: Window, tmp_path: Path) -> Iterator[Transfers]:
    desk = Transfers(window.controller, window.store, tmp_path / "settings.json")
    yield desk
    desk.end_transfers()


@pytest.fixture
def slow_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each chat of an import take its time: a quick disk has all of them before the import is stopped."""

    def take_slowly(writer: ImportWriter, frame: Any) -> None:
        sleep(0.1)
        take(writer, frame)

    take = ImportWriter.store_frame
    monkeypatch.setattr(ImportWriter, "store_frame", take_slowly)


class Task:
    """Runs a task of the desk, and keeps its progress and its outcome."""

    def __init__(self, start: Callable[..., None], *arguments: Any, **named: Any) -> None:
        self.progress: list[float] = []
        self.outcomes: list[Any] = []
        start(*arguments, lambda each: self.progress.append(each.fraction or 0), self.outcomes.append, **named)

    def outcome(self, window: Window, timeout: int = WAIT_MS) -> Any:
        window.wait_until(lambda: bool(self.outcomes), timeout=timeout)
        (outcome,) = self.outcomes
        return outcome


def back_up(desk: Transfers, window: Window) -> Any:
    return Task(desk.back_up, window.store.path.with_name("backup.zip")).outcome(window)


def prepare(desk: Transfers, window: Window) -> Any:
    """Prepare the restore of the backup."""
    return Task(desk.prepare_restore, window.store.path.with_name("backup.zip"), None).outcome(window)


def rivers(tmp_path: Path) -> Path:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chatgpt_with_everything()]))
    return path


@pytest.mark.parametrize("what", ["a title", "a note"])
def test_what_a_model_was_asked_before_a_restore_is_written_over_no_restored_chat(
    desk: Transfers, window: Window, engine: ScriptedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    (tmp_path / "other").mkdir()
    other = ConversationStore(tmp_path / "other" / "conversations.db")
    chat = other.create_conversation("Tax", from_prompt=True)
    question = other.add_message(chat.id, None, Role.USER, "What do I owe?")
    other.add_message(chat.id, question.id, Role.ASSISTANT, "Nothing.")
    other.close()
    later = list[Callable[[], None]]()
    pauses = SimpleNamespace(singleShot=lambda _ms, _owner, act: later.append(act))
    monkeypatch.setattr(note_control, "QTimer", pauses)
    window.settings.change_values(titles_by_model=what == "a title", notes_everywhere=what == "a note")
    engine.parameters = 1_500_000_000
    window.load("/models/large")
    engine.replies = [Reply(("Fine",)), Reply(("- Soup is hot.",)), *[Reply(("none",))] * 3]
    window.title_writer.quiet.setInterval(60_000)
    window.ask("Soup, please")
    engine.gate.shut()
    window.title_writer.quiet.setInterval(0)
    window.title_writer.wait_for_calm()
    for act in later:
        act()
    window.wait_until(lambda: engine.gate.is_waiting)
    window.title_writer.quiet.setInterval(60_000)
    assert window.stored_chat.id == chat.id
    Task(desk.prepare_restore, tmp_path / "other" / "conversations.db", None).outcome(window)
    desk.restore_backup()
    engine.gate.open()
    window.wait_until(lambda: not window.slot.engine.writing)
    assert (window.titles, window.notes.waiting) == (["Tax"], {})


@pytest.mark.slow
def test_imported_chats_are_listed_and_taken_away_again(desk: Transfers, window: Window, tmp_path: Path):
    settings = window.settings
    settings.change_values(titles_by_model=False)
    window.ask("Hi")
    task = Task(desk.import_files, [rivers(tmp_path)])
    assert desk.busy
    report = task.outcome(window)
    assert window.titles == ["Hi", "Rivers"]
    window.chat.open_chat(report.chats[0])
    assert not isinstance(Task(desk.undo_import, report).outcome(window), RdchatError)
    assert window.titles == ["Hi"]
    assert window.stored_chat.title == "Hi"


@pytest.mark.slow
def test_projects_and_notes_of_an_import_are_taken_away_too(desk: Transfers, window: Window, tmp_path: Path):
    window.ask("Hi")
    own = window.store.organiser.create_folder("Work")
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(ours(project_entry(("Work",), "files"), chat_entry(("Work",), "One"))))
    report = Task(desk.import_files, [path]).outcome(window)
    assert sorted(window.titles) == ["Hi", "One"]
    assert [folder.name for folder in window.store.organiser.folders()] == ["Work", "Work 2"]
    changed = []
    window.controller.notes.changed.connect(lambda: changed.append(window.store.organiser.notes()))
    Task(desk.undo_import, report).outcome(window)
    assert changed == [[]]
    assert window.store.organiser.folders() == [own]
    window.store.organiser.erase().result()
    assert window.store.rows("SELECT title FROM conversations") == [("Hi",)]


@pytest.mark.slow
def test_a_reply_in_an_imported_chat_is_stopped_where_the_import_is_undone(
    desk: Transfers, window: Window, engine: ScriptedEngine, tmp_path: Path
):
    report = Task(desk.import_files, [rivers(tmp_path)]).outcome(window)
    window.chat.open_chat(report.chats[0])
    pause_midway(window, engine)
    window.chat.start_new()
    Task(desk.undo_import, report).outcome(window)
    engine.gate.open()
    window.wait_until(lambda: not window.replies.chats_being_written)
    assert window.titles == []
    assert not window.seen.storage_failures


@pytest.mark.slow
def test_a_reply_is_written_on_while_files_are_imported(
    desk: Transfers, window: Window, engine: ScriptedEngine, tmp_path: Path
):
    pause_midway(window, engine)
    task = Task(desk.import_files, [rivers(tmp_path)])
    engine.gate.open()
    task.outcome(window)
    window.wait_until(lambda: not window.replies.chats_being_written)
    assert not window.seen.storage_failures
    assert window.store.messages(window.store.conversations()[0].id)[-1].text == "Hello, you!"


@pytest.mark.slow
def test_an_import_that_is_cancelled_leaves_nothing(
    desk: Transfers, window: Window, tmp_path: Path, slow_imports: None
):
    chats = [
        chatgpt_chat(*[chatgpt_node(str(n), str(n - 1) if n else None, "user", "words " * 400) for n in range(100)],
                     title=f"Chat {number}")
        for number in range(40)
    ]  # fmt: skip
    (tmp_path / "conversations.json").write_text(json.dumps(chats))
    task = Task(desk.import_files, [tmp_path / "conversations.json"])
    window.wait_until(lambda: any(task.progress))
    desk.cancel_task()
    report = task.outcome(window)
    assert report.cancelled
    assert not report.chats
    assert window.store.rows("SELECT count(*) FROM conversations")[0][0] == 0


@pytest.mark.slow
def test_an_export_comes_back_as_it_was(desk: Transfers, window: Window, tmp_path: Path):
    window.ask("Hi")
    assert Task(desk.export, None, tmp_path / "all.json", "json", details=False).outcome(window).chats == 1
    data = json.loads((tmp_path / "all.json").read_text())
    assert [each["text"] for each in data["chats"][0]["messages"]] == ["Hi", "Hello, you!"]
    assert data["preferences"]["sampling"]["temperature"] == 0.7


@pytest.mark.slow
def test_a_restore_brings_chats_and_settings_back_and_is_undone(desk: Transfers, window: Window):
    settings = window.settings
    settings.change_values(system_prompt="Then", titles_by_model=False)
    window.ask("First")
    back_up(desk, window)
    settings.change_values(system_prompt="Now")
    window.chat.start_new()
    window.ask("Second")
    assert prepare(desk, window).chats == 1
    assert window.titles == ["Second", "First"]
    kept = desk.restore_backup()
    assert window.titles == ["First"]
    assert window.texts == ["First", "Hello, you!"]
    assert settings.values.system_prompt == "Then"
    assert window.ask("More").text == "Hello, you!"
    Task(desk.undo_restore, kept).outcome(window)
    desk.restore_backup()
    assert window.titles == ["Second", "First"]
    assert settings.values.system_prompt == "Now"


@pytest.mark.slow
def test_what_is_being_erased_or_copied_does_not_go_on_in_a_restored_store(desk: Transfers, window: Window):
    store = window.store
    order = window.chats.order
    chats = [store.create_conversation(title) for title in ("Erased", "Copied", "Cut")]
    for chat in chats:
        add_long_path(store, chat)
    back_up(desk, window)
    store.delete_conversation(chats[0].id)
    store.message_trash.delete(store.messages(chats[2].id)[1].id)
    with written_by_hand(store) as connection:
        connection.execute("UPDATE deleted_messages SET deleted_at = deleted_at - 31 * 86400")
    prepare(desk, window)
    order.erase(window.store.organiser.deleted_chats())
    order.duplicate(chats[1])
    assert len(store._bulk) == 2
    desk.restore_backup()
    window.wait_until(lambda: not store._bulk)
    assert [len(store.messages(chat.id)) for chat in chats] == [300, 300, 300]
    assert sorted(window.titles) == ["Copied", "Cut", "Erased"]
    assert not window.seen.storage_failures


@pytest.mark.slow
def test_nothing_that_was_kept_by_an_id_holds_for_a_restored_chat(desk: Transfers, window: Window, tmp_path: Path):
    (tmp_path / "other").mkdir()
    other = ConversationStore(tmp_path / "other" / "conversations.db")
    tax = other.create_conversation("Tax")
    add_long_path(other, tax)
    other.close()
    window.ask("Hi")
    chats = window.chats
    files = window.chat.files
    assert chats.chat.stored_conversation is not None
    assert chats.chat.stored_conversation.id == tax.id
    chats.rename_conversation(tax.id, "Renamed")
    chats.chat.save_reading_position(tax.id, ReadingPosition(window.chat.path[0].id, 3))
    files.add_files([str(rivers(tmp_path))])
    Task(desk.prepare_restore, tmp_path / "other" / "conversations.db", None).outcome(window)
    desk.restore_backup()
    assert chats.order.history.last is None
    chats.undo()
    assert window.titles == ["Tax"]
    chats.chat.open_chat(tax.id)
    assert chats.chat.reading_position is None
    assert files.files == ()
    chats.chat.start_new()
    assert [file.name for file in files.files] == ["conversations.json"]


@pytest.mark.slow
def test_nothing_is_restored_while_a_reply_is_written(
    desk: Transfers, window: Window, engine: ScriptedEngine, tmp_path: Path
):
    window.ask("Hi")
    back_up(desk, window)
    pause_midway(window, engine, "More")
    prepare(desk, window)
    with pytest.raises(StorageError) as refused:
        desk.restore_backup()
    assert str(refused.value) == "A reply is being written. Stop it or wait for its end, then restore again."
    assert window.texts == ["Hi", "Hello, you!", "More", "Hello,"]
    desk.forget_restore()
    assert not desk.busy
    assert not (tmp_path / "part-restore").exists()


@pytest.mark.slow
def test_a_second_task_is_refused_while_one_is_under_way(desk: Transfers, window: Window, tmp_path: Path):
    task = Task(desk.import_files, [rivers(tmp_path)])
    assert "busy" in back_up(desk, window).message
    assert len(task.outcome(window).chats) == 1
    assert not (tmp_path / "backup.zip").exists()


def test_a_child_that_dies_is_told_of(desk: Transfers, window: Window, tmp_path: Path):
    task = Task(desk.back_up, tmp_path / "backup.zip")
    pid = desk._process.child.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)  # before it is ready, so the task is not given to another
    assert "ended unexpectedly" in task.outcome(window).message
    assert not desk.busy


@pytest.mark.slow
def test_an_app_that_ends_in_the_midst_of_an_import_shows_none_of_it(
    desk: Transfers, window: Window, tmp_path: Path, slow_imports: None
):
    chats = [chatgpt_chat(chatgpt_node("q", None, "user", "words " * 9000), title=f"Chat {n}") for n in range(100)]
    (tmp_path / "conversations.json").write_text(json.dumps(chats))
    task = Task(desk.import_files, [tmp_path / "conversations.json"])
    window.wait_until(lambda: any(task.progress))
    desk.end_transfers()
    assert not desk.busy
    assert window.store.conversations() == []
    # what is hidden is erased now, or after the next start
    count = "SELECT count(*) FROM conversations WHERE deleted_at IS NULL"
    window.wait_until(lambda: window.store.rows(count)[0][0] == 0)


@pytest.mark.parametrize(
    ("kind", "said"), share([(kind, "") for kind in KINDS] + [("garbage", "[1]"), ("garbage", "{}")], 3)
)
def test_a_process_that_tells_garbage_is_ended_and_said(
    desk: Transfers, window: Window, tmp_path: Path, kind: str, said: str, monkeypatch: pytest.MonkeyPatch
):
    """It went on unseen, while the window said that nothing of it was kept."""
    put_in_place(monkeypatch, *(("garbage", said) if said else KINDS[kind]))
    monkeypatch.setattr(served, "MAX_BYTES", 2**20)
    assert isinstance(Task(desk.import_files, [rivers(tmp_path)]).outcome(window, 60_000), RdchatError)
    assert not desk.busy


SIZE = 64 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    store = ConversationStore(tmp_path / "conversations.db")
    yield store
    store.close()


@pytest.fixture
def process() -> Iterator[TransferProcess]:
    process = TransferProcess()
    yield process
    process.close()


@pytest.mark.slow
@pytest.mark.parametrize("archived", [True, False])
def test_a_small_archive_stays_within_its_memory(
    process: TransferProcess, store: ConversationStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archived: bool
):
    """Parsed as a whole, dictionaries without content took 9.6 GB where the archive has 500 KB."""
    monkeypatch.setattr(transfer_process, "_MEMORY_BYTES", 200_000_000)
    parts = within(*HUGE["dictionaries without content"], SIZE)
    path = write_zip(tmp_path / "a.zip", parts) if archived else write(tmp_path / "conversations.json", parts)
    assert not archived or path.stat().st_size < 75_000
    with pytest.raises(StorageError, match=r"took more than 200 MB of memory, so it was ended"):
        process.import_files(store, [path], lambda _progress: None).result()
    assert not store.conversations()
