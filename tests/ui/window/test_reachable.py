"""Every action is in a menu or in the palette, and its key is listed: nothing is reached by luck."""

import ast
import re
from pathlib import Path

import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QLabel, QMenu, QPushButton, QWidget
from pytestqt.qtbot import QtBot

import rdchat.ui
from rdchat.inference.api import Mode
from rdchat.ui.models.place_page import ServerSheet as ComputerSheet
from rdchat.ui.settings.tools_page import ServerSheet as ToolSheet
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from rdchat.ui.window.side_windows import help_text, shortcuts_text
from tests.ui.conftest import Chat

IN_NO_MENU = {"draft_speculative", "draft_drafter", "draft_lookup", "ledger"}
DELETES = re.compile(r"(Clear|Delete|Discard|Empty|Erase|Remove)\b")
CHATS = re.compile(r"\b(chats?|messages?|repl(?:y|ies))\b", re.IGNORECASE)


def _in_menus(window: MainWindow) -> dict[QAction, str]:
    places: dict[QAction, str] = {}

    def walk(menu: QMenu, place: str) -> None:
        for action in menu.actions():
            below = action.menu()
            places[action] = place
            if isinstance(below, QMenu):
                walk(below, f"{place} > {action.text()}")

    for top in window.menuBar().actions():
        menu = top.menu()
        assert isinstance(menu, QMenu)
        walk(menu, top.text().replace("&", ""))
    return places


def test_every_action_is_in_a_menu_or_in_the_palette(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.say("Hello")
    places = _in_menus(window)
    listed = {entry.key: entry for source in window.palette_.sources for entry in source()}
    for name, (action, command) in window.actions_._actions.items():
        in_palette = f"do {name}" in listed
        assert action in places or in_palette, f"{name} cannot be reached"
        assert in_palette or not action.isEnabled() or command.submenu is not None or name == "palette"
        assert (action in places) == (name not in IN_NO_MENU)
        assert action in places or action in window.actions(), f"the keys of {name} do nothing"
    tables = shortcuts_text(window)
    keys = [
        action.shortcut().toString(action.shortcut().SequenceFormat.NativeText)
        for action in [*places, *window.actions()]
    ]
    assert all(f"| {key} |" in tables for key in keys if key)
    assert listed["do draft_lookup"].detail == "Ctrl+Alt+5"
    assert {places[window.actions_.benchmark], places[window.actions_.report]} == {"Help > Measure"}
    assert listed["do benchmark"].detail == "Help > Measure  Ctrl+Alt+B"


@pytest.mark.parametrize("mode", [Mode.SPECULATIVE, Mode.LOOKUP])
def test_a_mode_of_no_menu_is_chosen_by_its_old_key(chat: Chat, window: MainWindow, mode: Mode) -> None:
    chat.start()
    action = getattr(window.actions_, f"draft_{mode.value}")
    assert action.shortcut().toString() == f"Ctrl+Alt+{[*Mode].index(mode) + 1}"
    action.trigger()
    assert chat.controller.drafting.settings.mode is mode
    assert window.panel.drafting.mode.currentText() == mode.label


def test_help_has_the_guide_without_what_is_not_there_and_the_reports_command(qtbot: QtBot, window: MainWindow) -> None:
    window.actions_.guide.trigger()
    window.actions_.report.trigger()
    for page, words in ((window.windows.guide, "Several Macs"), (window.windows.report_help, "rdchat report --out")):
        qtbot.waitUntil(lambda page=page, words=words: words in page.text.body.toPlainText())
        page.close()
    guide = help_text("guide")
    assert "](" not in re.sub(r"\]\(https?:", "", guide), "links to files that did not come with the app"
    assert "its words. **Help > Keyboard Shortcuts** lists all keys" in guide, "a line that was wrapped goes on"
    assert "\nrdchat ask" in guide
    assert "\n## Chats\n\n" in guide
    assert "guesses the next few tokens. Guessing is quick.\n2. " in help_text("drafting")
    assert help_text("drafting").startswith("# What is drafting?")


def test_no_button_begins_like_a_delete_of_chats_that_deletes_none() -> None:
    """The button "Clear Earlier Replies" forgot what drafts are copied from, and deleted no reply."""
    found = set()
    for path in Path(rdchat.ui.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            given = node.args if isinstance(node, ast.Call) else []
            texts = [each.value for each in given if isinstance(each, ast.Constant)]
            found |= {str(text) for text in texts if DELETES.match(str(text)) and CHATS.search(str(text))}
    assert found == {
        "Delete Chat",
        "Delete Message",
        "Delete the selected chat or folder for good",
        "Remove this message",
    }


def _texts(window: QWidget) -> set[str]:
    shown = [each.text() for kind in (QLabel, QPushButton) for each in window.findChildren(kind)]
    return {text for text in shown if re.search(r"\bservers?\b", text, re.IGNORECASE)}


def test_server_has_one_meaning(chat: Chat, theme: Theme, window: MainWindow) -> None:
    """Two sheets were called "Add a Server", beside a page of that name: tools, other computers, and rdchat's own."""
    sheets = ToolSheet(None, set(), theme, window), ComputerSheet(chat.controller.remote, theme, window)
    titles = {sheet.windowTitle() or sheet.findChildren(QLabel)[0].text() for sheet in sheets}
    assert titles == {"Add Tools", "Add a Computer"}
    assert not any(map(_texts, sheets))
    for sheet in sheets:
        sheet.deleteLater()
    settings = window.settings_window
    settings.show_page("Serve")
    assert "Server" not in [settings.tabs.tabText(place) for place in range(settings.tabs.count())]
