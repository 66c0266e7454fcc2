"""The keys of the menu bar in the windows beside the main one, where those windows open, and the Help menu's pages."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QScrollArea
from pytestqt.qtbot import QtBot

from rdchat import mac_desktop
from rdchat.ui.style import Theme
from rdchat.ui.transcript.view import TranscriptView
from rdchat.ui.window import side_windows
from rdchat.ui.window.main_window import MainWindow
from rdchat.ui.window.side_windows import shortcuts_text
from tests.grids import share
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import activate, press_key


@pytest.mark.parametrize("name", share(["settings", "ledger", "shortcuts", "drafting_help"], 2))
def test_menu_keys_work_in_the_windowactivate(qtbot: QtBot, window: MainWindow, name: str) -> None:
    """Command-Option-L did nothing while the tokens window had the focus."""
    side = window.settings_window if name == "settings" else getattr(window.windows, name)
    side.show()
    activate(side)
    press_key(side, "Ctrl+Alt+R")
    qtbot.waitUntil(window.windows.benchmark_window.isVisible)
    window.windows.benchmark_window.close()
    activate(side)
    press_key(side, QKeySequence.StandardKey.Close)
    qtbot.waitUntil(lambda: not side.isVisible())
    assert window.isVisible()


def test_a_command_that_acts_on_the_chat_brings_the_main_window_to_the_front(qtbot: QtBot, window: MainWindow) -> None:
    window.windows.ledger.show()
    activate(window.windows.ledger)
    press_key(window.windows.ledger, "Ctrl+L")
    qtbot.waitUntil(window.isActiveWindow)
    qtbot.waitUntil(window.conversation.composer.field.hasFocus)
    window.windows.ledger.close()


def test_escape_closes_a_side_window_and_leaves_the_reply_alone(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.hold_reply("Hello")
    qtbot.waitUntil(window.actions_.stop.isEnabled)
    ledger = window.windows.ledger
    ledger.show()
    activate(ledger)
    press_key(ledger, "Esc")
    qtbot.waitUntil(lambda: not ledger.isVisible())
    assert window.actions_.stop.isEnabled()
    chat.finish_reply()


def test_find_goes_to_the_search_of_the_models_window(qtbot: QtBot, window: MainWindow) -> None:
    models = window.windows.models
    for page, field in ((models.installed, models.installed.search), (models.discover, models.discover.bar.field)):
        models.show_page(page)
        activate(models)
        models.tabs.setFocus()
        press_key(models, QKeySequence.StandardKey.Find)
        qtbot.waitUntil(field.hasFocus)
    models.close()


@pytest.mark.parametrize(("left", "stays"), [(120, True), (90_000, False)])
def test_side_windows_open_where_they_were_or_on_a_screen_that_exists(
    theme: Theme, chat: Chat, window: MainWindow, left: int, stays: bool
) -> None:
    ledger = window.windows.ledger
    ledger.setGeometry(left, 90, 640, 420)
    ledger.show()
    window.close()
    again = MainWindow(chat.controller, theme, TranscriptView(theme))
    chat.qtbot.addWidget(again)
    there = again.windows.ledger
    there.show()
    assert there.screen().availableGeometry().contains(there.geometry())
    assert (there.geometry() == ledger.geometry()) is stays
    there.close()


def test_each_table_of_keys_has_a_heading_and_a_key(window: MainWindow) -> None:
    """The menu of folders was an empty table without a name."""
    tables = shortcuts_text(window).split("## ")[1:]
    assert [table.splitlines()[0] for table in tables][:2] == ["File", "Edit"]
    assert all(table.splitlines()[0] and len(table.strip().splitlines()) > 4 for table in tables)


def test_help_scrolls_by_home_end_and_space(qtbot: QtBot, window: MainWindow) -> None:
    keys = window.windows.shortcuts
    keys.show()
    area = keys.findChild(QScrollArea)
    bar = area.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 2 * bar.pageStep())
    for key, place in (
        (Qt.Key.Key_End, bar.maximum()),
        (Qt.Key.Key_Home, 0),
        (Qt.Key.Key_Space, bar.pageStep()),
    ):
        QTest.keyClick(area, key)
        assert bar.value() == place
    press_key(area, "Shift+Space")
    assert bar.value() == 0


def test_no_window_stays_when_the_main_one_closes(window: MainWindow) -> None:
    window.windows.models.show()
    window.settings_window.show()
    window.close()
    assert not window.windows.models.isVisible()
    assert not window.settings_window.isVisible()


def test_what_is_needed_soon_is_imported_beside_the_window(
    qtbot: QtBot, window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a Mac PyObjC was first imported on the engine's thread, before the first reply."""
    imported: list[str] = []
    monkeypatch.setattr(side_windows, "import_module", imported.append)
    monkeypatch.setattr(mac_desktop, "FRAMEWORKS", ("Foundation", "AppKit"))
    window.windows.import_ahead()
    qtbot.waitUntil(lambda: imported == ["Foundation", "AppKit", "rdchat.ui.models.models_window"])
