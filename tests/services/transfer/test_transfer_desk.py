"""Imports, exports and restores that the window begins: done by a child process, while the store is used."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.chat.conversation import Notice
from rdchat.chat.storage.reader_notes import ReadingPlace
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.requests import Role
from rdchat.services.app.instance_channel import InstanceRequest
from rdchat.services.transfer.remote_requests import RemoteRequests
from rdchat.services.transfer.transfer_desk import TransferDesk
from rdchat.work import frames
from tests.chat.transfer.samples import chatgpt_chat, chatgpt_node, chatgpt_with_everything
from tests.garbage_children import KINDS, put_in_place
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window, pause_midway
from tests.stores import written_by_hand

WAIT_MS = 20_000


@pytest.fixture
def desk(window: Window, tmp_path: Path) -> Iterator[TransferDesk]:
    desk = TransferDesk(window.controller, window.store, tmp_path / "settings.json")
    yield desk
    desk.close()


def rivers(tmp_path: Path) -> Path:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chatgpt_with_everything()]))
    return path


def test_imported_chats_are_listed_and_taken_away_again(desk: TransferDesk, window: Window, tmp_path: Path):
    preferences = window.controller.preferences
    preferences.change(replace(preferences.settings, titles_by_model=False))
    window.ask("Hi")
    with window.qtbot.waitSignal(desk.imported, timeout=WAIT_MS) as imported:
        desk.import_files([rivers(tmp_path)])
        assert desk.busy
    (report,) = imported.args
    assert window.titles == ["Hi", "Rivers"]
    window.controller.chat.open(report.chats[0])
    with window.qtbot.waitSignal(desk.import_undone, timeout=WAIT_MS) as undone:
        desk.undo_import(report)
    assert undone.args == [1]
    assert window.titles == ["Hi"]
    assert window.controller.chat.conversation.title == "Hi"


def test_a_reply_in_an_imported_chat_is_stopped_where_the_import_is_undone(
    desk: TransferDesk, window: Window, engine: ScriptedEngine, tmp_path: Path
):
    with window.qtbot.waitSignal(desk.imported, timeout=WAIT_MS) as imported:
        desk.import_files([rivers(tmp_path)])
    (report,) = imported.args
    window.controller.chat.open(report.chats[0])
    pause_midway(window, engine)
    window.controller.chat.start_new()
    with window.qtbot.waitSignal(desk.import_undone, timeout=WAIT_MS):
        desk.undo_import(report)
    engine.gate.open()
    window.qtbot.waitUntil(lambda: not window.controller.unsaved.chats_being_written, timeout=WAIT_MS)
    assert window.titles == []
    assert not window.seen.storage_failures


def test_a_reply_is_written_on_while_files_are_imported(
    desk: TransferDesk, window: Window, engine: ScriptedEngine, tmp_path: Path
):
    pause_midway(window, engine)
    with window.qtbot.waitSignal(desk.imported, timeout=WAIT_MS):
        desk.import_files([rivers(tmp_path)])
        engine.gate.open()
    window.qtbot.waitUntil(lambda: not window.controller.unsaved.chats_being_written, timeout=WAIT_MS)
    assert not window.seen.storage_failures
    assert window.store.messages(window.store.conversations()[0].id)[-1].text == "Hello, you!"


def test_an_import_that_is_cancelled_leaves_nothing(desk: TransferDesk, window: Window, tmp_path: Path):
    chats = [
        chatgpt_chat(*[chatgpt_node(str(n), str(n - 1) if n else None, "user", "words " * 400) for n in range(100)],
                     title=f"Chat {number}")
        for number in range(40)
    ]  # fmt: skip
    (tmp_path / "conversations.json").write_text(json.dumps(chats))
    progress: list[float] = []
    desk.progressed.connect(lambda each: progress.append(each.fraction or 0))
    with window.qtbot.waitSignal(desk.imported, timeout=WAIT_MS) as imported:
        desk.import_files([tmp_path / "conversations.json"])
        window.qtbot.waitUntil(lambda: any(progress), timeout=WAIT_MS)
        desk.cancel()
    (report,) = imported.args
    assert report.cancelled
    assert not report.chats
    assert window.store.database.rows("SELECT count(*) FROM conversations")[0][0] == 0


def test_an_export_comes_back_as_it_was(desk: TransferDesk, window: Window, tmp_path: Path):
    window.ask("Hi")
    with window.qtbot.waitSignal(desk.exported, timeout=WAIT_MS) as exported:
        desk.export_all(tmp_path / "all.json", "json", details=False)
    assert exported.args[0].chats == 1
    data = json.loads((tmp_path / "all.json").read_text())
    assert [each["text"] for each in data["chats"][0]["messages"]] == ["Hi", "Hello, you!"]
    assert data["preferences"]["sampling"]["temperature"] == 0.7


def test_a_restore_brings_chats_and_settings_back_and_is_undone(desk: TransferDesk, window: Window, tmp_path: Path):
    preferences = window.controller.preferences
    preferences.change(replace(preferences.settings, system_prompt="Then", titles_by_model=False))
    window.ask("First")
    with window.qtbot.waitSignal(desk.backed_up, timeout=WAIT_MS):
        desk.back_up(tmp_path / "backup.zip")
    preferences.change(replace(preferences.settings, system_prompt="Now"))
    window.controller.chat.start_new()
    window.ask("Second")
    with window.qtbot.waitSignal(desk.restore_prepared, timeout=WAIT_MS) as prepared:
        desk.prepare_restore(tmp_path / "backup.zip")
    assert prepared.args[0].chats == 1
    assert window.titles == ["Second", "First"]
    with window.qtbot.waitSignal(desk.restored, timeout=WAIT_MS) as restored:
        desk.restore()
    assert window.titles == ["First"]
    assert window.texts == ["First", "Hello, you!"]
    assert preferences.settings.system_prompt == "Then"
    assert window.ask("More").text == "Hello, you!"
    with window.qtbot.waitSignal(desk.restore_prepared, timeout=WAIT_MS):
        desk.undo_restore(restored.args[0])
    desk.restore()
    assert window.titles == ["Second", "First"]
    assert preferences.settings.system_prompt == "Now"


def test_what_is_being_erased_or_copied_does_not_go_on_in_a_restored_store(
    desk: TransferDesk, window: Window, tmp_path: Path
):
    store, order = window.store, window.controller.chats.order
    chats = [store.create_conversation(title) for title in ("Erased", "Copied", "Cut")]
    for chat in chats:
        last = None
        for number in range(300):
            last = store.add_message(chat.id, last, Role.USER, f"word{number} " * 200).id
    with window.qtbot.waitSignal(desk.backed_up, timeout=WAIT_MS):
        desk.back_up(tmp_path / "backup.zip")
    store.delete_conversation(chats[0].id)
    store.message_bin.delete(store.messages(chats[2].id)[1].id)
    with written_by_hand(store) as connection:
        connection.execute("UPDATE deleted_messages SET deleted_at = deleted_at - 31 * 86400")
    with window.qtbot.waitSignal(desk.restore_prepared, timeout=WAIT_MS):
        desk.prepare_restore(tmp_path / "backup.zip")
    order.erase(order.deleted())
    order.duplicate(chats[1])
    assert len(store.database._bulk) == 3
    desk.restore()
    window.qtbot.waitUntil(lambda: not store.database._bulk, timeout=WAIT_MS)
    assert [len(store.messages(chat.id)) for chat in chats] == [300, 300, 300]
    assert sorted(window.titles) == ["Copied", "Cut", "Erased"]
    assert not window.seen.storage_failures


def test_nothing_that_was_kept_by_an_id_holds_for_a_restored_chat(desk: TransferDesk, window: Window, tmp_path: Path):
    (tmp_path / "other").mkdir()
    other = ConversationStore.open(tmp_path / "other" / "conversations.db")
    tax = other.create_conversation("Tax")
    last = None
    for number in range(4):
        last = other.add_message(tax.id, last, Role.USER, f"Text {number}").id
    other.close()
    window.ask("Hi")
    chats, files = window.controller.chats, window.controller.chat.files
    assert chats.chat.conversation is not None
    assert chats.chat.conversation.id == tax.id
    chats.rename_conversation(tax.id, "Renamed")
    chats.chat.keep_reading_place(tax.id, ReadingPlace(window.controller.chat.path[0].id, 3))
    files.add([str(rivers(tmp_path))])
    with window.qtbot.waitSignal(desk.restore_prepared, timeout=WAIT_MS):
        desk.prepare_restore(tmp_path / "other" / "conversations.db")
    desk.restore()
    assert chats.order.history.words == ""
    chats.undo()
    assert window.titles == ["Tax"]
    chats.chat.open(tax.id)
    assert chats.chat.reading_place is None
    assert files.files == ()
    chats.chat.start_new()
    assert [file.name for file in files.files] == ["conversations.json"]


def test_nothing_is_restored_while_a_reply_is_written(
    desk: TransferDesk, window: Window, engine: ScriptedEngine, tmp_path: Path
):
    window.ask("Hi")
    with window.qtbot.waitSignal(desk.backed_up, timeout=WAIT_MS):
        desk.back_up(tmp_path / "backup.zip")
    pause_midway(window, engine, "More")
    with window.qtbot.waitSignal(desk.restore_prepared, timeout=WAIT_MS):
        desk.prepare_restore(tmp_path / "backup.zip")
    with window.qtbot.waitSignal(desk.failed) as failed:
        desk.restore()
    assert failed.args == [Notice("A reply is being written", "Stop it or wait for its end, then restore again.")]
    assert window.texts == ["Hi", "Hello, you!", "More", "Hello,"]
    desk.forget_restore()
    assert not desk.busy
    assert not (tmp_path / "part-restore").exists()


def test_a_second_task_is_refused_while_one_is_under_way(desk: TransferDesk, window: Window, tmp_path: Path):
    with window.qtbot.waitSignal(desk.imported, timeout=WAIT_MS):
        desk.import_files([rivers(tmp_path)])
        with window.qtbot.waitSignal(desk.failed) as failed:
            desk.back_up(tmp_path / "backup.zip")
    assert "busy" in failed.args[0].title
    assert not (tmp_path / "backup.zip").exists()


def test_a_child_that_dies_is_told_of(desk: TransferDesk, window: Window, tmp_path: Path):
    with window.qtbot.waitSignal(desk.failed, timeout=WAIT_MS) as failed:
        desk.back_up(tmp_path / "backup.zip")
        os.kill(desk._process.pid or 0, signal.SIGKILL)  # before it is ready, so the task is not given to another
    assert "ended unexpectedly" in failed.args[0].title
    assert not desk.busy


class _Answers(InstanceRequest):
    """A request without a socket, with what it was answered."""

    def __init__(self, asked: dict[str, object]) -> None:
        super(InstanceRequest, self).__init__()
        self.asked = asked
        self.told: list[dict[str, object]] = []

    def tell(self, message: dict[str, object]) -> None:
        self.told.append(message)

    def end(self, message: dict[str, object]) -> None:
        self.told.append(message)


@pytest.mark.parametrize(
    "asked", [{"do": "import"}, {"do": "erase", "paths": ["x"]}, {"do": "import", "paths": [3]}, {}]
)
def test_a_request_that_is_none_is_refused(desk: TransferDesk, asked: dict[str, object]):
    request = _Answers(asked)
    RemoteRequests(desk).take(request)
    assert [list(each) for each in request.told] == [["failed"]]
    assert not desk.busy


def test_an_app_that_ends_in_the_midst_of_an_import_shows_none_of_it(
    desk: TransferDesk, window: Window, tmp_path: Path
):
    chats = [chatgpt_chat(chatgpt_node("q", None, "user", "words " * 9000), title=f"Chat {n}") for n in range(100)]
    (tmp_path / "conversations.json").write_text(json.dumps(chats))
    progress: list[float] = []
    desk.progressed.connect(lambda each: progress.append(each.fraction or 0))
    desk.import_files([tmp_path / "conversations.json"])
    window.qtbot.waitUntil(lambda: any(progress), timeout=WAIT_MS)
    desk.close()
    assert not desk.busy
    assert window.store.conversations() == []
    # what is hidden is erased now, or after the next start
    count = "SELECT count(*) FROM conversations WHERE deleted_at IS NULL"
    window.qtbot.waitUntil(lambda: window.store.database.rows(count)[0][0] == 0, timeout=WAIT_MS)


@pytest.mark.parametrize(("kind", "said"), [(kind, "") for kind in KINDS] + [("garbage", "[1]"), ("garbage", "{}")])
def test_a_process_that_tells_garbage_is_ended_and_said(
    desk: TransferDesk, window: Window, tmp_path: Path, kind: str, said: str, monkeypatch: pytest.MonkeyPatch
):
    """It went on unseen, while the window said that nothing of it was kept."""
    put_in_place(monkeypatch, *(("garbage", said) if said else KINDS[kind]))
    monkeypatch.setattr(frames, "MOST_BYTES", 2**20)
    with window.qtbot.waitSignal(desk.failed, timeout=60_000) as failed:
        desk.import_files([rivers(tmp_path)])
    (notice,) = failed.args
    assert isinstance(notice, Notice)
    assert not desk.busy
