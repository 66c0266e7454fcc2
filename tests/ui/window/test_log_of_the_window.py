"""Whatever a person types, opens, drops, imports or receives, and whatever fails with it: no word of it is logged."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat.chat.notes import Note
from rdchat.chat.settings import SettingsStore
from rdchat.errors import ModelError, StorageError
from rdchat.inference.api import Role
from rdchat.services.app.event_loop import UnexpectedErrors
from rdchat.services.app.start_request import StartRequest
from rdchat.services.window.transfers import Transfers
from rdchat.ui.window.main_window import MainWindow
from rdchat.work.job import error_of
from tests.services.fakes import Reply
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import drop, files_data
from tests.written_log import text_of, written

__all__ = ["written"]

WORD = "xylophone"


class Desk:
    """A window with what a way in needs."""

    def __init__(self, qtbot: QtBot, window: MainWindow, chat: Chat, folder: Path) -> None:
        self.qtbot = qtbot
        self.window = window
        self.chat = chat
        self.folder = folder

    def file(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.write_text(content)
        return path

    def transfer(self, act: Callable[..., None], *arguments: object) -> None:
        outcomes = list[object]()
        act(*arguments, lambda _progress: None, outcomes.append)
        self.qtbot.waitUntil(lambda: bool(outcomes))


def ask(desk: Desk) -> None:
    desk.chat.engine.replies = [Reply((WORD,))]
    desk.chat.say(WORD)


def fail_to_reply(desk: Desk) -> None:
    desk.chat.engine.replies = [Reply(error=KeyError(WORD))]
    desk.chat.controller.send(WORD)
    desk.chat.wait_for_reply()


def refuse(desk: Desk) -> None:
    desk.chat.engine.replies = [Reply(refusal=ModelError(f"No {WORD}"))]
    desk.chat.controller.send(WORD)
    desk.qtbot.waitUntil(lambda: not desk.chat.writing)


def load(desk: Desk) -> None:
    model = f"/models/{WORD}"
    for error in (RuntimeError(f"[load] {model}"), ModelError(f"{model} is damaged")):
        desk.chat.engine.load_errors[model] = error
        with desk.qtbot.waitSignal(desk.chat.slot.failed):
            desk.chat.slot.load_model(model)


def note(desk: Desk) -> None:
    assert desk.chat.controller.notes.keep(Note("", None, None), WORD)


def project(desk: Desk) -> None:
    desk.chat.chats.order.create_folder(WORD)


def search(desk: Desk) -> None:
    desk.window.sidebar.search.setText(WORD)
    desk.window.sidebar.search.typing.timeout.emit()


def tool_result(desk: Desk) -> None:
    made = desk.chat.store.create_conversation(WORD)
    desk.chat.store.add_message(made.id, None, Role.TOOL, WORD)
    desk.chat.open.open_chat(made.id)


def store_fails(desk: Desk) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise StorageError(f"{WORD} cannot be stored.") from sqlite3.OperationalError(WORD)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk.chat.store, "add_message", fail)
        desk.chat.controller.send(WORD)
        QApplication.processEvents()


def link(desk: Desk) -> None:
    desk.window.commands.carry_out(StartRequest(text=WORD, files=(str(desk.folder / f"{WORD}.txt"),)))


def dropped(desk: Desk) -> None:
    drop(desk.window, files_data(desk.file(f"{WORD}.txt", WORD), desk.folder / f"no {WORD}.pdf"))
    desk.qtbot.waitUntil(lambda: bool(desk.window.conversation.composer.note.text()))


def imported(desk: Desk) -> None:
    transfers = Transfers(desk.chat.controller, desk.chat.store, desk.folder / "settings.json")
    files = [
        desk.file(f"{WORD}.json", json.dumps({"title": WORD, "mapping": {WORD: WORD}})),
        desk.file(f"{WORD}.db", f"SQLite format 3\0{WORD}"),
        desk.folder / WORD,
    ]
    desk.transfer(transfers.import_files, files)
    desk.transfer(transfers.prepare_restore, files[0], None)
    desk.transfer(transfers.back_up, desk.folder / WORD / "none.zip")
    transfers.end_transfers()


def settings(desk: Desk) -> None:
    path = desk.file("other.json", json.dumps({"model": WORD, WORD: WORD, "text_size": WORD, "presets": [WORD]}))
    SettingsStore(path)
    path.write_text(f"{{{WORD}")
    SettingsStore(path)
    desk.chat.settings.change_values(models_folder=f"/home/{WORD}")


def slot_fails(desk: Desk) -> None:
    def fail() -> None:
        raise KeyError(WORD)

    errors = UnexpectedErrors()
    with desk.qtbot.waitSignal(errors.raised):
        QTimer.singleShot(0, fail)
    errors.release()


def work_fails(_desk: Desk) -> None:
    for error in (FileNotFoundError(2, WORD, WORD), UnicodeError(WORD), KeyError(WORD)):
        error_of(error, "work")


WAYS = [
    ask, fail_to_reply, refuse, load, note, project, search, tool_result, store_fails, link, dropped, imported,
    settings, slot_fails, work_fails,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_no_word_that_comes_in_is_logged(
    window: MainWindow, chat: Chat, tmp_path: Path, written: Path, way: Callable[[Desk], None]
) -> None:
    chat.start()
    folder = tmp_path / "persons"
    folder.mkdir()
    way(Desk(chat.qtbot, window, chat, folder))
    assert WORD not in text_of(written)
