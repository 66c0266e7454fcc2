"""Tab reaches every control and shows its focus, and every action is in a menu or in the palette."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QAction, QImage
from PySide6.QtWidgets import QAbstractButton, QApplication, QMenu, QPlainTextEdit, QTabWidget, QTextEdit, QWidget
from pytestqt.qtbot import QtBot

import rdchat.ui
from rdchat import host
from rdchat.ui.style import IconButton, Theme, show_in_front
from rdchat.ui.window.main_window import MainWindow
from rdchat.ui.window.side_windows import help_text, shortcuts_text
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import focus_on, press_key


@pytest.fixture
def panel_visible() -> bool:
    return True


def _focused() -> QWidget:
    return QApplication.focusWidget()


@pytest.mark.slow
def test_tab_goes_from_the_reply_to_the_field_and_then_to_the_panel(chat: Chat, window: MainWindow) -> None:
    chat.start("Hello")
    composer = window.conversation.composer
    composer.set_text("and")
    reply = list(window.conversation.transcript.widgets.values())[-1]
    focus_on(reply.body)
    visited: list[QWidget] = []
    while not window.panel.isAncestorOf(_focused()):
        visited.append(_focused())
        press_key(_focused(), "Tab")
        assert len(visited) < 30
    assert visited[-2:] == [composer.field, composer.button]
    names = [widget.accessibleName() for widget in visited if reply.isAncestorOf(widget)]
    assert {"Copy reply", "Regenerate reply", "Details"} <= set(names)
    press_key(_focused(), "Shift+Backtab")
    assert _focused() is visited[-1]


def test_tab_goes_to_the_toolbar_whose_buttons_are_pressed_by_space(chat: Chat, window: MainWindow) -> None:
    """Tab passed all of them but the model's."""
    chat.start()
    focus_on(window.conversation.composer.field)
    names = [each.accessibleName() for each in stops_of(window) if window.header.isAncestorOf(each)]
    assert names == ["Sidebar", "New Chat", "New Temporary Chat", "Model", "Chat Options", "Speed Panel"]
    button = window.header.widgetForAction(window.actions_.panel)
    focus_on(button)
    press_key(button, "Space")
    assert not window.panel.isVisible()
    assert button.hasFocus()


def test_the_focus_of_a_message_that_goes_is_not_left_to_chance(chat: Chat, window: MainWindow) -> None:
    """It went to the button that attaches files, or to one that copies another message."""
    chat.start()
    field = window.conversation.composer.field
    transcript = window.conversation.transcript
    chat.say("Hello")
    window.actions_.new_chat.trigger()
    chat.say("Two")
    for act in (window.actions_.next_chat.trigger, window.actions_.delete.trigger, chat.open.start_new):
        transcript.focus_last()
        assert not field.hasFocus()
        act()
        assert field.hasFocus()
    chat.say("Three")
    chat.write_again()
    reply = transcript.widgets[chat.path[-1].id]
    (previous,) = [each for each in reply.findChildren(IconButton) if each.accessibleName() == "Previous version"]
    focus_on(previous)
    press_key(previous, "Space")
    assert transcript.widgets[chat.path[-1].id].body.hasFocus()


def test_the_focus_stays_on_the_button_that_sends_and_stops(chat: Chat, window: MainWindow) -> None:
    chat.start()
    button = window.conversation.composer.button
    window.conversation.composer.set_text("Hello")
    focus_on(button)
    chat.engine.gate.shut()
    press_key(button, "Space")
    chat.qtbot.waitUntil(lambda: button.accessibleName() == "Stop")
    assert button.hasFocus()
    press_key(button, "Space")
    chat.finish_reply()
    assert button.hasFocus()
    assert not button.isEnabled()


def test_what_has_the_focus_is_in_view_also_when_tab_comes_from_outside(chat: Chat, window: MainWindow) -> None:
    """At the end of a long chat, Tab from the list went to the first message's buttons, above the window."""
    chat.start("A short question.")
    chat.say("A long question. " * 400)
    transcript = window.conversation.transcript
    focus_on(window.conversation.composer.field)
    bar = transcript.verticalScrollBar()
    chat.qtbot.waitUntil(lambda: bar.maximum() > transcript.viewport().height())
    bar.setValue(bar.maximum())
    for _ in range(60):
        press_key(_focused(), "Tab")
        if transcript.column.isAncestorOf(_focused()):
            break
    assert transcript.column.isAncestorOf(_focused())
    assert not _focused().visibleRegion().isEmpty()


_AROUND = 16
# Differences of a channel that an eye sees as a line, and the share of the outline that has one.
_SEEN = 40
_SHARE = 0.4
_MOST_STOPS = 90

draws_rings = pytest.mark.skipif(host.MACOS, reason="a Mac's own style draws the rings")
both = pytest.mark.parametrize("scheme", [Qt.ColorScheme.Light, Qt.ColorScheme.Dark], ids=["light", "dark"])


def _seen(one: QImage, other: QImage) -> int:
    """Return how many pixels of two pictures differ so much that one sees it."""
    pixels = [
        np.frombuffer(each.convertToFormat(QImage.Format.Format_RGB32).constBits(), np.uint8).astype(int)
        for each in (one, other)
    ]
    differences = np.abs(pixels[0] - pixels[1]).reshape(-1, 4)
    return int((differences.max(axis=1) >= _SEEN).sum())


def _picture(widget: QWidget) -> QImage:
    window = widget.window()
    area = QRect(widget.mapTo(window, QPoint()), widget.size()).adjusted(-_AROUND, -_AROUND, _AROUND, _AROUND)
    return window.grab(area & window.rect()).toImage()


def stops_of(window: QWidget) -> Iterator[QWidget]:
    """Go from stop to stop by Tab, until one comes again."""
    press_key(QApplication.focusWidget(), "Tab")
    seen: set[QWidget] = set()
    while (widget := QApplication.focusWidget()) is not None and widget not in seen and len(seen) < _MOST_STOPS:
        seen.add(widget)
        yield widget
        press_key(QApplication.focusWidget(), "Tab")


def _described(widget: QWidget) -> str:
    names = [type(each).__name__ for each in (widget.parentWidget(), widget) if each]
    return f"{'/'.join(names)} {widget.accessibleName() or getattr(widget, 'text', str)()!r}"


def without_ring(window: QWidget) -> list[str]:
    """Return the stops of Tab in a window that look as they do without the focus, and buttons without a name."""
    missing = []
    count = 0
    for widget in stops_of(window):
        count += 1
        if isinstance(widget, QPlainTextEdit | QTextEdit):
            widget.setCursorWidth(0)  # a caret is no ring
        focused = _picture(widget)
        widget.clearFocus()
        seen = _seen(focused, _picture(widget))
        widget.setFocus(Qt.FocusReason.TabFocusReason)
        if seen < _SHARE * min(widget.width(), 2 * _AROUND):
            missing.append(f"{_described(widget)}: {seen} pixels of {widget.width()} x {widget.height()}")
        if isinstance(widget, QAbstractButton) and not (widget.accessibleName() or widget.text()):
            missing.append(f"{_described(widget)} has no name")
    assert count > 1, "Tab goes nowhere"
    return missing


@draws_rings
@both
def test_every_stop_of_the_main_window_shows_the_focus(
    chat: Chat, window: MainWindow, theme: Theme, scheme: Qt.ColorScheme
) -> None:
    theme.set_scheme(scheme)
    window.resize(1300, 1500)
    chat.start()
    chat.say("Hello **there**, see https://example.org\n\n```\n" + "x" * 400 + "\n```")
    window.conversation.files.add_text("A text")
    window.commands.search_in_front()
    composer = window.conversation.composer
    composer.set_text("and")
    focus_on(composer.field)
    for section in window.panel.sections:
        section.fold(False)
    chat.qtbot.waitUntil(lambda: composer.files.geometry().bottom() < composer.height())
    assert without_ring(window) == []


@pytest.mark.slow
@draws_rings
@both
def test_every_stop_of_settings_and_models_shows_the_focus(
    chat: Chat, window: MainWindow, theme: Theme, scheme: Qt.ColorScheme
) -> None:
    theme.set_scheme(scheme)
    chat.start()
    missing: list[str] = []
    for side in (window.settings_window, window.windows.models):
        show_in_front(side)
        side.activateWindow()
        tabs = side.tabs.tabBar() if isinstance(side.tabs, QTabWidget) else side.tabs
        for index in range(tabs.count()):
            tabs.setCurrentIndex(index)
            tabs.setFocus(Qt.FocusReason.TabFocusReason)
            missing += [f"{tabs.tabText(index)}: {each}" for each in without_ring(side)]
    window.windows.end_background_work()
    assert missing == []


@draws_rings
@both
def test_every_stop_of_chat_options_shows_the_focus(
    chat: Chat, window: MainWindow, theme: Theme, scheme: Qt.ColorScheme
) -> None:
    theme.set_scheme(scheme)
    chat.start()
    window.actions_.options.trigger()
    popup = QApplication.activePopupWidget()
    missing = without_ring(popup)
    popup.close()
    assert missing == []


IN_NO_MENU = {
    "draft_speculative", "draft_drafter", "draft_lookup", "ledger", "quote", "find_next", "find_previous",
    "regenerate_with", "copy_reply", "write", "duplicate", "train",
}  # fmt: skip
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
        walk(menu, top.text().replace("&", ""))
    return places


def test_every_action_is_in_a_menu_or_in_the_palette(chat: Chat, window: MainWindow) -> None:
    chat.start("Hello")
    places = _in_menus(window)
    listed = {entry.key: entry for source in window.palette_.sources for entry in source()}
    for name, (action, _) in window.actions_._actions.items():
        in_palette = f"do {name}" in listed
        assert action in places or in_palette, f"{name} cannot be reached"
        assert in_palette or not action.isEnabled() or name == "palette"
        assert (action in places) == (name not in IN_NO_MENU)
        assert action in places or action in window.actions(), f"the keys of {name} do nothing"
    tables = shortcuts_text(window)
    keys = [
        action.shortcut().toString(action.shortcut().SequenceFormat.NativeText)
        for action in [*places, *window.actions()]
    ]
    assert all(f"| {key} |" in tables for key in keys if key)
    assert listed["do draft_lookup"].detail == "Ctrl+Alt+5"
    assert listed["do benchmark"].detail == "Drafting  Ctrl+Alt+B"
    assert sum(bool(each.text()) for each in places) <= 55, "too many to look for one"


def test_help_has_the_guide_without_what_is_not_there_and_with_reports(qtbot: QtBot, window: MainWindow) -> None:
    window.actions_.guide.trigger()
    page = window.windows.guide
    for words in ("Several Macs", "A report helps others to help you"):
        qtbot.waitUntil(lambda words=words: words in page.text.body.toPlainText())
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
        "Remove this message",
    }
