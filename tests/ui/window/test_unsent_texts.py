"""What is typed and neither sent nor saved is there again after the app was closed, or another store was opened."""

import base64
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import NoReturn

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QPlainTextEdit
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Message
from rdchat.chat.settings import SettingsStore
from rdchat.chat.storage import Database
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageFullError
from rdchat.inference.api import Role
from rdchat.services.chat import unsent_memory
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.files.chips import FileChip
from rdchat.ui.style import Theme
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.transcript.view import TranscriptView
from rdchat.ui.window.main_window import MainWindow
from tests.services.fakes import ScriptedEngine
from tests.services.window import WAIT_MS
from tests.ui.shown_widgets import press_key
from tests.ui.transcript.conftest import edited_text

# A PNG of one pixel.
_RED = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")


class App:
    """Begins and ends the app's window over one store."""

    def __init__(self, theme: Theme, folder: Path) -> None:
        self._theme = theme
        self._folder = folder

    @contextmanager
    def running(self) -> Iterator[tuple[MainWindow, ChatController]]:
        store = ConversationStore(self._folder / "chats.db")
        settings = SettingsStore(self._folder / "settings.json")
        with ExitStack() as ends:
            ends.callback(store.close)
            controller = ChatController(store, settings, EngineClient(ScriptedEngine, nullcontext))
            ends.callback(controller.shut_down)
            view = TranscriptView(self._theme, unsent=controller.chat.unsent)
            window = MainWindow(controller, self._theme, view)
            ends.callback(_end, window)
            window.show()
            controller.open_last_chat()
            yield window, controller


def _no_room(*_arguments: object) -> NoReturn:
    raise StorageFullError("The disk is full.", "Free some space.")


def _end(window: MainWindow) -> None:
    window.close()
    window.deleteLater()
    QCoreApplication.sendPostedEvents(window, QEvent.Type.DeferredDelete.value)


@pytest.fixture
def app(theme: Theme, tmp_path: Path) -> App:
    return App(theme, tmp_path)


@pytest.fixture
def messages(tmp_path: Path) -> list[Message]:
    """A question and its reply, in the store."""
    store = ConversationStore(tmp_path / "chats.db")
    chat = store.create_conversation("One")
    question = store.add_message(chat.id, None, Role.USER, "One?")
    reply = store.add_message(chat.id, question.id, Role.ASSISTANT, "One.")
    store.close()
    return [question, reply]


def widget_of(window: MainWindow, message: Message) -> MessageWidget:
    shown = (each for each in window.findChildren(MessageWidget) if not each.isHidden())
    return next(each for each in shown if each.message.id == message.id)


def editor_of(window: MainWindow, message: Message) -> QPlainTextEdit:
    (editor,) = widget_of(window, message).findChildren(QPlainTextEdit)
    return editor


def files_of(controller: ChatController) -> list[tuple[str, str]]:
    """Return name and text of each file in the message field."""
    return [(file.name, text) for file, text in controller.chat.files.to_send()]


def attach(qtbot: QtBot, window: MainWindow, controller: ChatController, *paths: Path) -> list[tuple[str, str]]:
    """Attach an image that is no file, and files; return what is sent of them."""
    before = len(controller.chat.files.files)
    window.conversation.files.add_image(lambda: _RED)
    window.conversation.files.attach_files([str(path) for path in paths])
    qtbot.waitUntil(lambda: len(files_of(controller)) == before + 1 + len(paths), timeout=WAIT_MS)
    return files_of(controller)


@pytest.mark.slow
def test_files_come_back_until_they_are_removed_or_sent(
    qtbot: QtBot, app: App, messages: list[Message], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("شاي ☕ and notes")
    with app.running() as (window, controller):
        window.conversation.composer.set_text("What is on it?")
        there = attach(qtbot, window, controller, tmp_path / "notes.txt")
        controller.chat.start_new()
        new = attach(qtbot, window, controller)
        controller.chat.open_chat(messages[0].conversation_id)
    (tmp_path / "notes.txt").unlink()
    with app.running() as (window, controller):
        assert (window.conversation.composer.text, files_of(controller)) == ("What is on it?", there)
        chips = [each for each in window.findChildren(FileChip) if each.isVisible()]
        assert len(chips) == 2
        controller.chat.start_new()
        assert files_of(controller) == new
        controller.chat.open_chat(messages[0].conversation_id)
        # They are read once: what is removed now stays so.
        controller.chat.files.remove_file(controller.chat.files.files[0].id)
        controller.chat.start_new()
        controller.chat.open_chat(messages[0].conversation_id)
        assert files_of(controller) == there[1:]
    with app.running() as (window, controller):
        assert files_of(controller) == there[1:]
        controller.chat.start_new()
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE)
        qtbot.waitUntil(lambda: not controller.chat.files.reason_to_wait())
        controller.send("Sent with it")
        qtbot.waitUntil(lambda: controller.chat.streaming_id is None and len(controller.chat.path) == 2)
        assert [file.name for file in controller.chat.path[0].files] == [name for name, _ in new]
        sent = controller.chat.id
    with app.running() as (_, controller):
        assert (controller.chat.id, files_of(controller)) == (sent, [])
        controller.chat.start_new()
        assert files_of(controller) == []


def test_files_are_there_after_a_kill(
    qtbot: QtBot, app: App, messages: list[Message], theme: Theme, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    chat = messages[0].conversation_id
    with app.running() as (window, controller):
        there = attach(qtbot, window, controller)
        reading = "SELECT conversation_id, name FROM unsent_files"
        with closing(sqlite3.connect(tmp_path / "chats.db")) as reader:
            qtbot.waitUntil(lambda: reader.execute(reading).fetchall() == [(chat, there[0][0])])
            # What a killed process leaves on the disk.
            killed.mkdir()
            for path in tmp_path.glob("chats.db*"):
                if path.is_file() and path.suffix != ".lock":
                    shutil.copy(path, killed / path.name)
    with App(theme, killed).running() as (_, controller):
        assert files_of(controller) == there


def test_files_that_are_too_large_to_be_kept_are_named(
    qtbot: QtBot, app: App, messages: list[Message], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(unsent_memory, "_MAX_STORED", 2000)
    (tmp_path / "long.txt").write_text("long " * 500)
    with app.running() as (window, controller):
        first = attach(qtbot, window, controller)
        assert not window.conversation.composer.note.isVisible()
        attach(qtbot, window, controller, tmp_path / "long.txt")
        assert window.conversation.composer.note.text() == unsent_memory._TOO_LARGE
    with app.running() as (_, controller):
        assert len(files_of(controller)) == 2
        assert files_of(controller)[0] == first[0]


@pytest.mark.slow
def test_fields_and_editors_come_back(qtbot: QtBot, app: App, messages: list[Message]) -> None:
    with app.running() as (window, controller):
        window.conversation.composer.set_text("And two?")
        for message in messages:
            widget_of(window, message).edit()
            editor_of(window, message).setPlainText(f"{message.text} And a half")
        controller.chat.start_new()
        window.conversation.composer.set_text("Something else")
        window.conversation.files.add_text("A long text")
        window.conversation.composer.set_text("Something more")
        assert controller.chat.typed == "Something more"
    with app.running() as (window, controller):
        assert window.conversation.composer.text == "And two?"
        for message in messages:
            assert edited_text(widget_of(window, message)) == f"{message.text} And a half"
        press_key(editor_of(window, messages[1]), "Esc")
        window.conversation.composer.set_text("")
        controller.chat.start_new()
        assert window.conversation.composer.text == "Something more"
        assert files_of(controller) == [("Pasted text.txt", "A long text")]
        controller.chat.files.remove_files()
    with app.running() as (window, controller):
        assert window.conversation.composer.text == ""
        assert files_of(controller) == []
        assert [edited_text(widget_of(window, message)) for message in messages] == ["One? And a half", None]


@pytest.mark.slow
def test_what_is_sent_or_saved_does_not_come_back(qtbot: QtBot, app: App, messages: list[Message]) -> None:
    with app.running() as (window, controller):
        widget_of(window, messages[1]).edit()
        editor_of(window, messages[1]).setPlainText("Mine.")
        press_key(editor_of(window, messages[1]), "Ctrl+Return")
        assert controller.chat.path[-1].text == "Mine."
        assert widget_of(window, controller.chat.path[-1]).message.edited
        controller.chat.start_new()
        qtbot.waitUntil(lambda: controller.model_slot.info is not None)
        qtbot.keyClicks(window.conversation.composer.field, "Two?")
        controller.chat.unsent.store()  # as after a pause
        press_key(window.conversation.composer.field, "Return")
        qtbot.waitUntil(lambda: controller.chat.streaming_id is None and len(controller.chat.path) == 2)
    with app.running() as (window, controller):
        assert (window.conversation.composer.text, controller.chat.path[0].text) == ("", "Two?")
        controller.chat.start_new()
        assert window.conversation.composer.text == ""
        controller.chat.open_chat(messages[0].conversation_id)
        assert edited_text(widget_of(window, controller.chat.path[1])) is None


@pytest.mark.slow
def test_an_edit_that_is_refused_stays_in_its_editor(
    qtbot: QtBot, app: App, messages: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    with app.running() as (window, controller):
        widget_of(window, messages[0]).edit()
        editor_of(window, messages[0]).setPlainText("An hour's work")
        with monkeypatch.context() as full:
            full.setattr(Database, "write", _no_room)
            editor_of(window, messages[0]).setFocus()
            press_key(editor_of(window, messages[0]), "Return")
        assert [message.text for message in controller.chat.path] == ["One?", "One."]
        assert edited_text(widget_of(window, messages[0])) == "An hour's work"
    with app.running() as (window, controller):
        assert edited_text(widget_of(window, messages[0])) == "An hour's work"
        press_key(editor_of(window, messages[0]), "Return")
        qtbot.waitUntil(lambda: controller.chat.path[0].text == "An hour's work")
        controller.chat.show_alternative(controller.chat.path[0].id, -1)
        assert edited_text(widget_of(window, messages[0])) is None


def test_what_is_typed_is_stored_soon(qtbot: QtBot, app: App, messages: list[Message], tmp_path: Path) -> None:
    chat = messages[0].conversation_id
    with app.running() as (window, _), closing(sqlite3.connect(tmp_path / "chats.db")) as reader:
        window.conversation.composer.set_text("Long thought about")
        typed = "SELECT conversation_id, text FROM unsent_texts"
        qtbot.waitUntil(lambda: reader.execute(typed).fetchall() == [(chat, "Long thought about")])
