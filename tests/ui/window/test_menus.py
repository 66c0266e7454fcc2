"""The menus' actions, and what every control of the window owes to screen readers."""

import ast
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtGui import QAction, QKeySequence, QShortcut
from PySide6.QtWidgets import QLineEdit, QMessageBox
from pytestqt.qtbot import QtBot

import rdchat
from rdchat import paths
from rdchat.chat.listing import ChatRow
from rdchat.inference.api import FinishReason
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import focus_on, press_key
from tests.ui.transcript.conftest import button
from tests.ui.window.macos_shortcuts import RESERVED, STANDARD

OURS = {"Ctrl+Shift+C": "shows colours, which the app has none of; chat apps copy the last reply with it"}


def test_text_size_keys(chat: Chat, window: MainWindow, theme: Theme) -> None:
    window.actions_.larger.trigger()
    window.actions_.larger.trigger()
    assert (chat.settings.values.text_size, theme.text_size) == (15, 15)
    window.actions_.smaller.trigger()
    assert theme.text_size == 14
    window.actions_.usual.trigger()
    assert theme.text_size == 13
    for _ in range(40):
        window.actions_.smaller.trigger()
    assert theme.text_size == 9


def test_regenerate_and_copy_are_offered_once_there_is_a_reply(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    assert not window.actions_.regenerate.isEnabled()
    chat.say("Hello")
    qtbot.waitUntil(window.actions_.regenerate.isEnabled)
    window.actions_.regenerate.trigger()
    qtbot.waitUntil(lambda: chat.path[-1].siblings == 2 and not chat.writing)
    assert window.actions_.copy_reply.isEnabled()


def test_rename_from_the_menu_edits_in_place(chat: Chat, window: MainWindow) -> None:
    chat.store.create_conversation("Old title")
    chat.start()
    window.actions_.rename.trigger()
    editor = window.sidebar.list.viewport().findChild(QLineEdit)
    editor.setText("New title")
    press_key(editor, "Return")
    chat.qtbot.waitUntil(lambda: window.windowTitle() == "New title")
    assert window.focusWidget() is window.sidebar.list


def test_the_chat_menu_and_the_context_menu_of_a_chat_have_the_same_actions(chat: Chat, window: MainWindow) -> None:
    stored = chat.store.create_conversation("Bread")
    chat.start()
    for archived in (False, True):
        chat.chats.order.set_archived(stored, archived=archived)
        chat.open.open_chat(stored.id)
        row = ChatRow(chat.store.conversation(stored.id))
        offered = [action.text() for action in window.sidebar.row_actions.menu_for(row).actions() if action.text()]
        names = ("rename", "pin", "duplicate", "export_chat", "archive", "delete")
        actions = [getattr(window.actions_, name) for name in names]
        window.actions_.refresh()
        offered.remove("Move to Folder")
        assert [action.text().replace(" Chat", "") for action in actions] == offered
        assert all(action.isEnabled() for action in actions)
    chat.open.start_new()
    chat.qtbot.waitUntil(lambda: not any(action.isEnabled() for action in actions))


def test_menu_roles(window: MainWindow) -> None:
    actions = window.actions_
    assert actions.about.menuRole() is QAction.MenuRole.AboutRole
    assert actions.settings.menuRole() is QAction.MenuRole.PreferencesRole
    assert actions.quit.menuRole() is QAction.MenuRole.QuitRole


def test_edit_actions_act_on_the_focus(window: MainWindow) -> None:
    field = window.conversation.composer.field
    focus_on(field)
    window.conversation.composer.set_text("some words")
    window.actions_.select_all.trigger()
    assert field.textCursor().selectedText() == "some words"
    window.actions_.cut.trigger()
    assert field.toPlainText() == ""
    window.actions_.paste.trigger()
    assert field.toPlainText() == "some words"


def test_about_tells_versions_and_shows_the_log(window: MainWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    window.actions_.about.trigger()
    box = window.findChild(QMessageBox)
    assert "MLX" in box.informativeText()
    assert "Apache License 2.0" in box.informativeText()
    opened: list[Path] = []
    monkeypatch.setattr("rdchat.ui.window.commands.show_folder", opened.append)
    button(box, "Show Log").click()
    assert opened == [paths.log_path()]


def keys_of(window: MainWindow) -> dict[str, str]:
    """Return the keys of all actions in this system's words for standard ones."""
    found = {}
    for action in window.actions_.findChildren(QAction):
        for shortcut in action.shortcuts():
            assert shortcut.toString() not in found, "two actions share a key"
            found[shortcut.toString()] = action.text()
    return found


def test_no_key_is_macos_own(window: MainWindow) -> None:
    """Option-Command-D, which showed the draft settings, hides the Dock."""
    keys = keys_of(window)
    assert {"Ctrl+Shift+D", "Ctrl+Alt+S", "Ctrl+Shift+T", "Ctrl+,", "Ctrl+F", "Esc", "Ctrl+C", "Ctrl+0"} <= keys.keys()
    assert keys["Ctrl+N"] == "New Chat"
    assert not {"Ctrl+N", "Ctrl+Return"} & RESERVED.keys(), "keys of the quick window"
    standard = {binding.toString() for key in QKeySequence.StandardKey for binding in QKeySequence.keyBindings(key)}
    taken = {key: RESERVED[key] for key in keys.keys() & RESERVED.keys() - standard}
    assert not taken
    misused = {key: (action, STANDARD[key]) for key, action in keys.items() if STANDARD.get(key, action) != action}
    assert misused.keys() <= OURS.keys()


def test_the_list_is_written_as_qt_writes_keys(qtbot: QtBot) -> None:
    keys = [*RESERVED, *STANDARD, *OURS]
    assert [QKeySequence(key).toString() for key in keys] == keys


def test_no_key_is_set_where_this_test_does_not_look() -> None:
    """Elsewhere only standard keys are used, such as the one that closes a window; `opening.py` has Ctrl-Tab."""
    elsewhere = []
    for path in Path(rdchat.__file__).parent.rglob("*.py"):
        source = path.read_text()
        for node in ast.walk(ast.parse(source if "Shortcut" in source or "setKey" in source else "")):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func).split(".")[-1]
            arguments = [ast.unparse(item) for item in node.args]
            if name in {QShortcut.__name__, "setShortcut", "setShortcuts", "setKey"} and path.name not in {
                "menus.py",
                "quick_window.py",
                "opening.py",
            }:
                elsewhere.append((path.name, arguments[:1]))
    assert {argument.rpartition(".")[0] for _, arguments in elsewhere for argument in arguments} == {
        "QKeySequence.StandardKey"
    }


def test_the_window_menu_lists_what_is_open(window: MainWindow) -> None:
    """A race behind the main window was not found again."""
    menu = next(action.menu() for action in window.menuBar().actions() if action.text() == "&Window")
    for _ in range(2):
        menu.aboutToShow.emit()
        assert [action.text() for action in menu.actions()] == ["Minimise", "", window.windowTitle()]
    window.actions_.ledger.trigger()
    menu.aboutToShow.emit()
    window.windows.ledger.showMinimized()
    menu.actions()[-1].trigger()
    assert menu.actions()[-1].text() == "Time Ledger"
    assert not window.windows.ledger.isMinimized()


def test_escape_in_the_turn_of_the_return_stops_the_reply(chat: Chat, window: MainWindow) -> None:
    """The action of Escape was enabled in the next turn only, and the key was lost."""
    chat.start()
    chat.engine.gate.shut()
    field = window.conversation.composer.field
    field.setPlainText("Hello")
    press_key(field, "Return")
    assert chat.controller.replies.state is not EngineState.IDLE
    press_key(field, "Esc")
    chat.qtbot.waitUntil(lambda: chat.path[-1].finish_reason is FinishReason.CANCELLED)


def test_changes_in_each_turn_do_not_put_off_the_actions(window: MainWindow, qtbot: QtBot) -> None:
    """Each piece of a reply began to wait anew, so on a busy machine Stop could stay disabled until the end."""
    refreshes: list[int] = []
    window.actions_._changed.timeout.connect(lambda: refreshes.append(1))
    pieces = QTimer(interval=0)
    pieces.timeout.connect(window.actions_.refresh_soon)
    pieces.start()
    qtbot.waitUntil(lambda: bool(refreshes))
