"""All questions are made in one place, and none of their buttons counts at once, whenever it is added."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QMessageBox, QPushButton, QWidget
from pytestqt.qtbot import QtBot

import rdchat
from rdchat.inference.api import ToolCall
from rdchat.services.chat.tool_call_control import WaitingCall
from rdchat.tools.definitions import ToolDefinition
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.style import FileMode, Sheet, Theme, ask, ask_to_open, column, message_box
from rdchat.ui.transcript.pending_calls import CallCard
from tests.project.scripts import module_tree
from tests.ui.early_presses import no_time_passes, press_everything
from tests.ui.shown_widgets import click_on

ROOT = Path(rdchat.__file__).parent
# Qt's classes that ask by themselves, and where one of them is made or extended.
_DIALOGS = {
    "QMessageBox", "QDialog", "QFileDialog", "QInputDialog", "QErrorMessage", "QProgressDialog", "QColorDialog",
    "QFontDialog", "QWizard", "QPrintDialog", "QDialogButtonBox",
}  # fmt: skip
_MAKERS = {
    ("ui/style/labels.py", "message_box", "QMessageBox"),
    ("ui/style/opening.py", "_dialog", "QFileDialog"),
    ("ui/style/layouts.py", "Sheet", "QDialog"),
    ("ui/style/opening.py", "SideWindow", "QDialog"),  # a window of its own asks nothing
    ("ui/style/buttons.py", "dialog_buttons", "QDialogButtonBox"),  # for sheets
}
_STATIC = {"question", "information", "warning", "critical", "about", "aboutQt", "getText", "getItem", "getInt"}


def dialogs_made(tree: ast.Module, file: str) -> set[tuple[str, str, str]]:
    """Return the file, the function or class, and Qt's class of each dialog that a module makes by itself."""
    found = set[tuple[str, str, str]]()
    for top in tree.body:
        for node in ast.walk(top):
            used = list[ast.expr]()
            if isinstance(node, ast.Call):
                used = [node.func]
                if isinstance(node.func, ast.Attribute) and node.func.attr.startswith(("get", *_STATIC)):
                    used.append(node.func.value)
            elif isinstance(node, ast.ClassDef):
                used = node.bases
            names = {getattr(each, "id", getattr(each, "attr", "")) for each in used}
            found |= {(file, getattr(top, "name", ""), name) for name in names & _DIALOGS}
    return found


def test_questions_are_made_in_one_place() -> None:
    found = set[tuple[str, str, str]]()
    for path in sorted(ROOT.rglob("*.py")):
        found |= dialogs_made(module_tree(path), path.relative_to(ROOT).as_posix())
    assert found == _MAKERS, "use ask, message_box or Sheet of rdchat.ui.style: they wait until a question can be read"


@pytest.mark.parametrize(
    "line",
    ["QMessageBox()", "QtWidgets.QInputDialog(window)", "QMessageBox.question(a, b, c)", "class A(QDialog): pass"],
)
def test_a_question_made_elsewhere_is_found(line: str) -> None:
    assert dialogs_made(ast.parse(f"def make():\n    {line}\n"), "a.py")


def box(window: QWidget, _theme: Theme) -> QWidget:
    return ask(window, "Remove it?", "", "Remove", lambda: None)


def message(window: QWidget, _theme: Theme) -> QWidget:
    shown = message_box(QMessageBox.Icon.Warning, "It failed", parent=window)
    shown.setStandardButtons(QMessageBox.StandardButton.Retry | QMessageBox.StandardButton.Close)
    shown.open()
    return shown


def sheet(window: QWidget, theme: Theme) -> QWidget:
    shown = Sheet(window, theme, "Restore?", "", [("Cancel", lambda: None), ("Restore", lambda: None)])
    shown.open()
    return shown


def files(window: QWidget, _theme: Theme) -> QWidget:
    return ask_to_open(window, "Open", FileMode.ExistingFile, lambda _names: None)


def banner(window: QWidget, theme: Theme) -> QWidget:
    shown = Banner(theme, "Look for new versions?")
    shown.add_action("Look", lambda: None)
    column(shown, within=window)
    shown.show()
    return shown


def card(window: QWidget, theme: Theme) -> QWidget:
    tool = ToolDefinition("files", "read", "Reads a file.", {}, read_only=True, remote=False)
    waiting = WaitingCall(ToolCall("files__read", "{}", "1"), tool, may_always=True, status="running", remote=False)
    shown = CallCard(waiting, theme)
    column(shown, within=window)
    shown.show()
    return shown


def add(question: QWidget, text: str) -> QPushButton:
    """Add a button as a question of this kind gets one."""
    if isinstance(question, QMessageBox):
        return question.addButton(text, QMessageBox.ButtonRole.AcceptRole)
    if isinstance(question, Banner):
        return question.add_action(text, lambda: None, closes=False)
    place = QWidget()
    button = QPushButton(text)
    column(button, within=place)
    question.layout().addWidget(place)
    place.show()
    return button


@pytest.mark.parametrize("ask_it", [box, message, sheet, files, banner, card])
def test_no_button_counts_at_once_whenever_it_comes(
    qtbot: QtBot, theme: Theme, ask_it: Callable[[QWidget, Theme], QWidget]
) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(600, 400)
    window.show()
    with no_time_passes():
        question = ask_it(window, theme)
        press_everything(question)
        added = add(question, "Later")
        QApplication.processEvents()
        press_everything(question)
    # The question was read; a button that comes now was not.
    with no_time_passes():
        last = add(question, "Last")
        # Layouts show what is new in the next turn of the event loop.
        QApplication.processEvents()
        assert last.isVisible()
        press_everything(question)
    with qtbot.waitSignal(added.clicked):
        click_on(added)
    question.close()


def test_dialogs_are_opened_where_the_tests_of_windows_press_at_once() -> None:
    """`tests/ui/conftest.py` follows `open`: where a test opens a dialog, all of it is pressed at once."""
    found = set[str]()
    for path in sorted((ROOT / "ui").rglob("*.py")):
        for node in ast.walk(module_tree(path)):
            if isinstance(node, ast.Attribute) and node.attr in ("exec", "exec_"):
                found.add(path.name)
    assert found == {"list_view.py"}, "a drag is no dialog"
