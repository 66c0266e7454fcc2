"""Bad input of every kind: the real condition, and the message in the window.

Everything is real: window, engine thread, storage. The model is a small random one, so it answers quickly, if not well.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, Qt, QTimer, Slot
from PySide6.QtWidgets import QApplication, QMessageBox, QPlainTextEdit
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import open_app
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import FinishReason
from rdchat.inference.prompts import tokenizer_process
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.transcript.message_kinds import PersonMessage
from tests.disks import SmallDisk, small_disk
from tests.e2e.windows import (
    WAIT_MS,
    ask,
    assert_usable,
    pick_model,
    press,
    running_app,
    shown_messages,
    start_with,
    type_and_send,
    wait_for_words,
    words,
)
from tests.inference.prompts.folders import with_template
from tests.processes import held_by_another_process, python_process
from tests.slow_replies import slow_replies

pytestmark = pytest.mark.slow

HOLD_CHATS = """
import sys
from pathlib import Path
from rdchat.chat.store import ConversationStore
store = ConversationStore(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def copy_of(model: Path, folder: Path, **config: object) -> Path:
    """Copy a model folder, with changes to its config.json."""
    shutil.copytree(model, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


# Prompts


def test_a_prompt_longer_than_the_context(qapp: QApplication, qtbot: QtBot, small_model: Path) -> None:
    start_with(small_model)
    with running_app(qapp, qtbot) as app:
        qtbot.waitUntil(lambda: app.controller.replies.state is EngineState.IDLE, timeout=WAIT_MS)
        field = app.window.conversation.composer.field
        field.setPlainText("x" * 100_000)  # pasted, in one line
        qtbot.keyClick(field, Qt.Key.Key_Return)
        told = (
            f"This chat has 100,008 tokens; together with the reply, {small_model.name} takes 512. "
            "Shorten the prompt, start a new chat, or choose a model with a longer context."
        )
        wait_for_words(qtbot, told, "Try Again")

        prompt = shown_messages(app)[0]
        assert isinstance(prompt, PersonMessage)
        prompt.edit()
        editor = prompt.findChild(QPlainTextEdit)
        assert editor is not None
        editor.setPlainText("Hi")
        press(qtbot, "Save and Send")
        qtbot.waitUntil(lambda: app.controller.chat.path[-1].status is MessageStatus.COMPLETE, timeout=WAIT_MS)
        wait_for_words(qtbot, "Hi")
        assert told not in words()
        assert_usable(qtbot, app, small_model)


# Model folders


def missing(_good: Path, place: Path) -> str:
    return f"There is no model at {place}."


def truncated(good: Path, place: Path) -> str:
    shutil.copytree(good, place)
    weights = place / "model.safetensors"
    whole = weights.stat().st_size
    with weights.open("r+b") as file:
        file.truncate(whole // 2)
    return f"{weights} is incomplete: {whole // 2:,} of {whole:,} bytes."


def unknown_architecture(good: Path, place: Path) -> str:
    copy_of(good, place, model_type="banana")
    return "The installed mlx-lm does not support the architecture 'banana'."


HINTS: dict[Callable[[Path, Path], str], str] = {
    missing: "Check the path. Choose an MLX model folder: one with config.json, model*.safetensors and tokenizer.json.",
    truncated: "Download or convert the model again.",
    unknown_architecture: "Choose another model, or update mlx-lm if a newer version supports it.",
}


@pytest.mark.parametrize("harm", HINTS)
def test_a_model_that_cannot_be_used(
    qapp: QApplication, qtbot: QtBot, small_model: Path, tmp_path: Path, harm: Callable[[Path, Path], str]
) -> None:
    bad = tmp_path / "bad"
    told = harm(small_model, bad)
    start_with(bad)
    with running_app(qapp, qtbot) as app:
        said = f"{told} {HINTS[harm]}"
        wait_for_words(qtbot, "The model did not load", said, "Try Again", "Choose Another Model…")
        assert "No model loaded" in words()  # in the header
        press(qtbot, "Try Again")
        qtbot.waitUntil(lambda: app.controller.replies.state is EngineState.NO_MODEL, timeout=WAIT_MS)
        wait_for_words(qtbot, "The model did not load", said)
        assert_usable(qtbot, app, small_model)
        assert said not in words()


def test_a_bad_folder_picked_in_the_middle_of_a_chat(
    qapp: QApplication, qtbot: QtBot, small_model: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad"
    told = f"{truncated(small_model, bad)} {HINTS[truncated]}"
    start_with(small_model)
    with running_app(qapp, qtbot) as app:
        qtbot.waitUntil(lambda: app.controller.replies.state is EngineState.IDLE, timeout=WAIT_MS)
        said = ask(qtbot, app, "Hello").text
        pick_model(qtbot, app, bad)
        wait_for_words(qtbot, "The model did not load", told, "Hello")  # a banner above the chat
        assert [widget.written_text for widget in shown_messages(app)] == ["Hello", said]
        shutil.copy(small_model / "model.safetensors", bad)  # downloaded again
        press(qtbot, "Try Again")
        qtbot.waitUntil(lambda: app.controller.replies.state is EngineState.IDLE, timeout=WAIT_MS)
        assert told not in words()
        assert ask(qtbot, app, "More").status is MessageStatus.COMPLETE
        assert_usable(qtbot, app, small_model)


def test_a_template_without_end_can_be_stopped_and_quit(
    qapp: QApplication, qtbot: QtBot, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the interpreter's lock: rendered in this process, it froze the window for good."""
    monkeypatch.setattr(tokenizer_process, "_TRY_S", 0.5)  # each load tries the template, for so long
    bad = with_template(small_model, tmp_path / "bad", "{{ 9**(9**9) }}")
    start_with(bad)
    with running_app(qapp, qtbot) as app:
        controller = app.controller
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE, timeout=WAIT_MS)
        type_and_send(qtbot, app, "Hello")
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.PREFILL, timeout=WAIT_MS)
        qtbot.keyClick(app.window.conversation.composer.field, Qt.Key.Key_Escape)
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE)
        assert controller.chat.path[-1].finish_reason is FinishReason.CANCELLED
        assert_usable(qtbot, app, small_model)
        pick_model(qtbot, app, bad)
        qtbot.waitUntil(
            lambda: controller.model_slot.info is not None and controller.model_slot.info.path == bad, timeout=WAIT_MS
        )
        type_and_send(qtbot, app, "Hello")
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.PREFILL, timeout=WAIT_MS)
    # `running_app` has closed the window, and asserted that the engine thread came back


# The database


class AtTheDialog(QObject):
    """Reads the dialog that holds up the start, mends what it tells of, and presses a button."""

    def __init__(self, qtbot: QtBot, mend: Callable[[], object], button: str) -> None:
        super().__init__()
        self._qtbot = qtbot
        self._mend = mend
        self._button = button
        self.told: list[str] = []
        QTimer.singleShot(0, self, self._act)

    @Slot()
    def _act(self) -> None:
        self._qtbot.waitUntil(lambda: isinstance(QApplication.activeModalWidget(), QMessageBox), timeout=WAIT_MS)
        dialog = QApplication.activeModalWidget()
        assert isinstance(dialog, QMessageBox)
        self._qtbot.waitExposed(dialog)
        try:
            self.told = words()
            self._mend()
            press(self._qtbot, self._button)
            assert not dialog.isVisible(), f"{self._button} does not close the dialog"
        except BaseException:
            dialog.reject()  # a test that fails here must not hang in the dialog
            raise


def test_a_database_that_another_process_holds(qapp: QApplication, qtbot: QtBot, small_model: Path) -> None:
    start_with(small_model)
    database = paths.database_path()
    settings = SettingsStore(paths.settings_path())
    with python_process(HOLD_CHATS, database) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"

        person = AtTheDialog(qtbot, lambda: None, "Close")
        assert open_app(qapp, settings) is None
        assert f"Another rdchat is using the chats in {database.parent}." in person.told
        assert "Quit rdchat first, or use its open window." in person.told

        def quit_the_other() -> None:
            holder.kill()
            holder.wait()

        person = AtTheDialog(qtbot, quit_the_other, "Retry")
        opened = open_app(qapp, settings)
        assert f"Another rdchat is using the chats in {database.parent}." in person.told
    assert opened is not None
    with running_app(qapp, qtbot, app=opened) as app:
        assert_usable(qtbot, app, small_model)


def test_a_database_that_another_program_locks_in_the_middle_of_a_chat(
    qapp: QApplication, qtbot: QtBot, small_model: Path
) -> None:
    start_with(small_model)
    with running_app(qapp, qtbot) as app:
        qtbot.waitUntil(lambda: app.controller.replies.state is EngineState.IDLE, timeout=WAIT_MS)
        ask(qtbot, app, "First")
        what = f"Another program is using {paths.database_path()}."
        hint = "Close that program, then try again."
        with held_by_another_process(paths.database_path()):
            type_and_send(qtbot, app, "Second")
            wait_for_words(qtbot, what, hint, f"{what} {hint}")  # a banner, and the line below the message field
            assert app.window.conversation.composer.text == "Second"  # nothing is lost
        qtbot.keyClick(app.window.conversation.composer.field, Qt.Key.Key_Return)
        qtbot.waitUntil(lambda: len(app.controller.chat.path) == 4, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: app.controller.chat.path[-1].status is MessageStatus.COMPLETE, timeout=WAIT_MS)
        assert what not in words()
        assert_usable(qtbot, app, small_model)


def make_corrupt(database: Path) -> None:
    """Overwrite a page of a real database."""
    store = ConversationStore(database)
    for number in range(50):
        store.create_conversation(f"Chat {number} " + "word " * 40)
    store.close()
    with database.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)


def test_a_damaged_database_is_moved_aside_whole(qapp: QApplication, qtbot: QtBot, small_model: Path) -> None:
    start_with(small_model)
    database = paths.database_path()
    make_corrupt(database)
    content = database.read_bytes()
    title = "Your chats could not be read"
    with running_app(qapp, qtbot, app=open_app(qapp, SettingsStore(paths.settings_path()))) as app:
        (kept,) = database.parent.glob("conversations-damaged-*.db")
        cause = f"Their file is damaged. It was kept as {kept}, and rdchat started with an empty list."
        wait_for_words(qtbot, title, cause)
        assert_usable(qtbot, app, small_model)
    assert kept.read_bytes() == content
    with running_app(qapp, qtbot, app=open_app(qapp, SettingsStore(paths.settings_path()))) as app:
        wait_for_words(qtbot, "Hello")  # the new list is kept, and nothing is said again
        assert title not in words()
    assert kept.read_bytes() == content


def test_chats_of_a_later_version_are_named_and_left_as_they_are(qapp: QApplication, qtbot: QtBot) -> None:
    database = paths.database_path()
    ConversationStore(database).close()
    change = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA user_version = 99'); c.close()"
    with python_process(change, database) as later:
        assert later.wait() == 0
    content = database.read_bytes()
    person = AtTheDialog(qtbot, lambda: None, "Close")
    assert open_app(qapp, SettingsStore(paths.settings_path())) is None
    assert any("from a later version of rdchat" in each for each in person.told)
    assert database.read_bytes() == content


# A full disk


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    """A small disk with the chats and the settings on it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(folder))
    with small_disk(folder, kibibytes=4096) as mounted:
        yield mounted


def test_a_disk_that_fills_up_while_a_reply_is_written(
    disk: SmallDisk,
    qapp: QApplication,
    qtbot: QtBot,
    small_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow_replies(monkeypatch, 0.005)  # it does not end before it is stopped
    start_with(copy_of(small_model, tmp_path / "long", max_position_embeddings=32_768), max_tokens=20_000)
    store = ConversationStore(paths.database_path())
    what = f"{paths.database_path()} cannot grow: the disk is full."
    with running_app(qapp, qtbot, store) as app:
        controller = app.controller
        field = app.window.conversation.composer.field
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE, timeout=WAIT_MS)
        type_and_send(qtbot, app, "Write")
        qtbot.waitUntil(
            lambda: len(controller.chat.path) == 2 and len(controller.chat.path[1].text) > 20, timeout=WAIT_MS
        )
        disk.fill()
        wait_for_words(qtbot, what, "Free some space. What was saved before is safe.")
        told_at = len(controller.chat.path[1].text)
        qtbot.waitUntil(lambda: len(controller.chat.path[1].text) > told_at + 20, timeout=WAIT_MS)  # it writes on
        qtbot.keyClick(field, Qt.Key.Key_Escape)
        qtbot.waitUntil(lambda: controller.chat.path[1].finish_reason is FinishReason.CANCELLED, timeout=WAIT_MS)
        reply = controller.chat.path[1]
        assert len(reply.text) > told_at
        wait_for_words(qtbot, what, "Stopped.")
        assert store.message(reply.id).status is MessageStatus.STREAMING  # the disk has only the beginning
        assert len(store.message(reply.id).text) < len(reply.text)
        assert shown_messages(app)[1].written_text == reply.text

        disk.free()
        qtbot.waitUntil(lambda: what not in words(), timeout=WAIT_MS)
        assert store.message(reply.id).text == reply.text
        assert store.message(reply.id).status is MessageStatus.COMPLETE
        assert_usable(qtbot, app, small_model)


def test_a_disk_that_is_full_at_the_start(disk: SmallDisk, qapp: QApplication, qtbot: QtBot, small_model: Path) -> None:
    start_with(small_model)
    disk.fill()
    person = AtTheDialog(qtbot, disk.free, "Retry")
    opened = open_app(qapp, SettingsStore(paths.settings_path()))
    assert any("the disk is full" in each for each in person.told)
    with running_app(qapp, qtbot, app=opened) as app:
        assert_usable(qtbot, app, small_model)
