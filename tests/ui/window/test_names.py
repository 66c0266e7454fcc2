"""Each control that can be pressed has a name for a screen reader, in every window."""

from collections.abc import Iterator

import pytest
from PySide6.QtGui import QAccessible, QAccessibleInterface
from PySide6.QtWidgets import QApplication, QPlainTextEdit, QWidget

from rdchat.ui.style import PlainField, Theme, show_in_front
from rdchat.ui.transcript.message_widget import MessageWidget
from rdchat.ui.window.import_export import export_sheet
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat

_ROLE = QAccessible.Role
# What a person can press, choose or fill in. The rows of lists are many; their text is their name.
_CONTROLS = {
    *(_ROLE.Button, _ROLE.ButtonMenu, _ROLE.ButtonDropDown, _ROLE.CheckBox, _ROLE.RadioButton, _ROLE.ComboBox),
    *(_ROLE.PageTab, _ROLE.MenuItem, _ROLE.Link, _ROLE.Slider, _ROLE.SpinBox, _ROLE.EditableText, _ROLE.List),
}


@pytest.fixture
def panel_visible() -> bool:
    return True


def _parts(part: QAccessibleInterface, place: str) -> Iterator[tuple[QAccessibleInterface, str]]:
    """Walk over all that a screen reader finds in a window, and where each part stands."""
    for index in range(part.childCount()):
        child = part.child(index)
        if child is not None and child.isValid() and not child.state().invisible:
            inside = f"{place}, {type(child.object()).__name__}"
            yield child, inside
            if child.role() != _ROLE.List:
                yield from _parts(child, inside)


def controls(window: QWidget) -> dict[str, list[str]]:
    """Return where the controls in a window stand, by their names."""
    found: dict[str, list[str]] = {}
    for part, place in _parts(QAccessible.queryAccessibleInterface(window), type(window).__name__):
        if part.role() in _CONTROLS:
            found.setdefault(part.text(QAccessible.Text.Name).strip(), []).append(place)
    return found


def _named(*windows: QWidget) -> set[str]:
    """Check the controls of some windows, or of all that are open, and return their names."""
    shown = windows or tuple(each for each in QApplication.topLevelWidgets() if each.isVisible())
    names: set[str] = set()
    for window in shown:
        found = controls(window)
        assert "" not in found, found[""]
        names |= set(found)
    return names


@pytest.mark.slow
def test_every_control_of_every_window_has_a_name(theme: Theme, window: MainWindow, chat: Chat) -> None:
    chat.start("Hello **there**, see https://example.org")
    chat.write_again()
    window.conversation.files.add_text("A text")
    window.commands.search_in_front()
    names = _named(window)
    assert {"Search chats", "Find in this chat", "Message", "Attach files", "Copy reply"} <= names
    for each in window.findChildren(MessageWidget):
        if each.isVisible():
            each.edit()
    assert {"Save", "Cancel"} <= {name.split(" ")[0] for name in _named(window) - names}
    windows = window.windows
    windows.show_tokens(chat.path[-1].id)
    windows.compare(chat.path[-1].id)
    windows.open_benchmark("Who?")
    windows.open_discover("")
    for side in (windows.ledger, windows.benchmark_window, windows.quick, windows.shortcuts, windows.drafting_help):
        show_in_front(side)
    window.commands.show_versions()
    window.commands.regenerate_with()
    export_sheet(window, theme, "One", lambda *_choice: None, in_project=True).open()
    show_in_front(window.settings_window)
    assert len([each for each in QApplication.topLevelWidgets() if each.isVisible()]) >= 11
    _named()
    for side in (window.settings_window, windows.models, windows.benchmark_window):
        for index in range(side.tabs.count()):
            side.tabs.setCurrentIndex(index)
            assert len(_named(side)) >= 5
    for action in (window.actions_.palette, window.actions_.options):
        action.trigger()
        _named()
        popup = QApplication.activePopupWidget()
        popup.close()
    # Qt's own field draws its placeholder behind what an input method composes.
    fields = [each for each in QApplication.allWidgets() if isinstance(each, QPlainTextEdit) and not each.isReadOnly()]
    assert len(fields) > 5
    assert [each for each in fields if not isinstance(each, PlainField)] == []
    windows.end_background_work()
