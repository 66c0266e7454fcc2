"""The window's menu of imports, exports and backups, for the tests of its sheets."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QPushButton
from pytestqt.qtbot import QtBot

from rdchat.inference.api import Role
from rdchat.services.transfers import Transfers
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.import_export.import_export import ImportExport
from rdchat.ui.style import Sheet, Theme
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat

WAIT_MS = 60_000


class Menu:
    """The window's menu with what it opens."""

    def __init__(self, qtbot: QtBot, window: MainWindow, transfers: ImportExport, desk: Transfers) -> None:
        self.qtbot = qtbot
        self.window = window
        self.transfers = transfers
        self.desk = desk
        self.actions = window.actions_

    @property
    def sheet(self) -> Sheet:
        return self.window.findChildren(Sheet)[-1]

    @property
    def title(self) -> str:
        """The title of the open sheet; empty without one."""
        return next((each.windowTitle() for each in self.window.findChildren(Sheet) if each.isVisible()), "")

    @property
    def banner(self) -> Banner | None:
        return self.window.conversation.banners.banner("transfer")

    def click(self, text: str) -> None:
        buttons = [each for each in self.sheet.findChildren(QPushButton) if each.isVisible() and each.text() == text]
        self.qtbot.mouseClick(buttons[0], Qt.MouseButton.LeftButton)

    def choose(self, *paths: Path) -> None:
        """Choose files in the dialog that is open."""
        (dialog,) = [each for each in self.window.findChildren(QFileDialog) if each.isVisible()]
        signal = (
            dialog.filesSelected if len(paths) > 1 or dialog.fileMode() is QFileDialog.FileMode.ExistingFiles else None
        )
        dialog.close()
        if signal is not None:
            dialog.filesSelected.emit([str(path) for path in paths])
        else:
            dialog.fileSelected.emit(str(paths[0]))
            dialog.filesSelected.emit([str(paths[0])])

    def wait_for_sheet(self, title: str) -> None:
        self.qtbot.waitUntil(lambda: self.title == title, timeout=WAIT_MS)

    def wait_for_banner(self, words: str) -> None:
        self.qtbot.waitUntil(lambda: self.banner is not None and words in self.banner.accessibleName(), timeout=WAIT_MS)

    def undo(self) -> None:
        assert self.banner is not None
        button = next(each for each in self.banner.findChildren(QPushButton) if each.text() == "Undo")
        self.qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


@pytest.fixture
def menu(qtbot: QtBot, chat: Chat, window: MainWindow, theme: Theme, tmp_path: Path) -> Iterator[Menu]:
    """A window with one chat, open."""
    bread = chat.store.create_conversation("Bread")
    chat.store.add_message(bread.id, None, Role.USER, "How?")
    chat.controller.chats.open_latest()
    desk = Transfers(chat.controller, chat.store, tmp_path / "settings.json")
    transfers = ImportExport(window, chat.controller, desk, theme)
    yield Menu(qtbot, window, transfers, desk)
    desk.end_transfers()
    for sheet in window.findChildren(Sheet):
        sheet.done(0)
