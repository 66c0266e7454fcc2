"""Early presses answer no question, however it is asked or pressed; dialogs of files."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QAccessibleActionInterface, QExposeEvent, QKeyEvent, QRegion
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QLabel, QPushButton, QScrollArea, QWidget
from pytestqt.qtbot import QtBot

from rdchat.inference.api import ToolCall
from rdchat.services.chat.tool_call_control import Scope, WaitingCall
from rdchat.tools.definitions import ToolDefinition
from rdchat.ui.settings.tools_page import ToolsPage
from rdchat.ui.style import ConsentPause, FileMode, Theme, ask, ask_to_open, ask_to_save, column
from rdchat.ui.transcript.pending_calls import CallCard
from tests.clocks import ManualClock
from tests.grids import grid
from tests.ui.shown_widgets import activate, shown_child, turn_wheel

LEFT = Qt.MouseButton.LeftButton
NONE = Qt.KeyboardModifier.NoModifier
PAUSE_S = 0.5
_TOOL = ToolDefinition("files", "read", "Reads a file.", {}, read_only=True, remote=False)
_CALL = WaitingCall(ToolCall("files__read", "{}", "1"), _TOOL, may_always=False, status="running", remote=False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(ConsentPause, "clock", clock)
    return clock


class Question:
    """Something that asks, with the button that agrees."""

    def __init__(self, shown: QWidget, button: QPushButton) -> None:
        self.shown = shown
        self.button = button
        self.agreed = 0
        button.clicked.connect(self.note)

    def note(self) -> None:
        self.agreed += 1

    @property
    def answered(self) -> bool:
        """Whether it was answered, by yes or no."""
        return self.agreed > 0 or not self.shown.isVisible()


def call_card(window: QWidget, theme: Theme) -> Question:
    card = CallCard(_CALL, theme)
    column(card, within=window)
    card.show()
    return Question(card, card.buttons[Scope.ONCE])


def dialog(window: QWidget, _theme: Theme) -> Question:
    box = ask(window, "Send this to the server?", "It leaves this machine.", "Send", lambda: None)
    return Question(box, button_of(box, "Send"))


def server_sheet(window: QWidget, theme: Theme) -> Question:
    class Page(QWidget):
        _theme = theme

    page: Any = Page(window)
    ToolsPage._show_text(page, "Start one?", "rm -rf", "It runs.", ("Cancel", lambda: None), ("Start", lambda: None))
    sheet = shown_child(window, QDialog)
    return Question(sheet, button_of(sheet, "Start"))


def button_of(shown: QWidget, text: str) -> QPushButton:
    (button,) = [each for each in shown.findChildren(QPushButton) if each.text() == text]
    return button


@pytest.fixture
def window(qtbot: QtBot) -> QWidget:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(700, 500)
    window.show()
    qtbot.waitExposed(window)
    return window


@pytest.fixture(params=[call_card, dialog, server_sheet])
def question(request: pytest.FixtureRequest, clock: ManualClock, window: QWidget, theme: Theme) -> Question:
    """What asks just now."""
    made: Question = request.param(window, theme)
    made.button.setFocus()
    return made


def click(button: QPushButton) -> None:
    QTest.mouseClick(button, LEFT)


def second_click(button: QPushButton) -> None:
    QTest.mouseDClick(button, LEFT)
    QTest.mouseRelease(button, LEFT)


def key(which: Qt.Key, button: QPushButton, *, repeated: bool = False) -> None:
    for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
        QApplication.sendEvent(button, QKeyEvent(kind, which, NONE, "", repeated))


def screen_reader(button: QPushButton) -> None:
    actions = QAccessible.queryAccessibleInterface(button).actionInterface()
    actions.doAction(QAccessibleActionInterface.pressAction())


PRESSES: dict[str, Callable[[QPushButton], None]] = {
    "click": click,
    "second click": second_click,
    "Return": partial(key, Qt.Key.Key_Return),
    "Enter": partial(key, Qt.Key.Key_Enter),
    "Space": partial(key, Qt.Key.Key_Space),
}


@pytest.mark.parametrize("how", PRESSES)
def test_presses_count_only_after_the_pause(clock: ManualClock, question: Question, how: str) -> None:
    for passed in (0.0, 0.3, 0.19):
        clock.now += passed
        PRESSES[how](question.button)
        assert not question.answered
        assert question.button.isEnabled()
        assert question.button.window().focusWidget() is question.button
    clock.now += 0.02
    PRESSES[how](question.button)
    assert question.answered


def test_a_click_that_began_in_the_pause_does_not_count(clock: ManualClock, question: Question) -> None:
    QTest.mousePress(question.button, LEFT)
    QApplication.sendEvent(question.button, QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_Space, NONE))
    clock.now += 2
    QTest.mouseRelease(question.button, LEFT)
    QApplication.sendEvent(question.button, QKeyEvent(QEvent.Type.KeyRelease, Qt.Key.Key_Space, NONE))
    assert not question.agreed


@pytest.mark.parametrize("which", [Qt.Key.Key_Return, Qt.Key.Key_Space])
def test_a_key_that_repeats_never_counts(clock: ManualClock, question: Question, which: Qt.Key) -> None:
    clock.now += 100
    key(which, question.button, repeated=True)
    assert not question.answered
    key(which, question.button)
    assert question.answered


def test_the_press_of_a_screen_reader_counts_only_after_the_pause(
    qtbot: QtBot, clock: ManualClock, question: Question
) -> None:
    screen_reader(question.button)
    assert question.button.isDown(), "Qt clicks in a moment"
    qtbot.waitUntil(lambda: not question.button.isDown())
    assert not question.answered
    clock.now += 1
    with qtbot.waitSignal(question.button.clicked):
        screen_reader(question.button)


def test_a_long_double_click_of_the_system_makes_the_pause_longer(
    clock: ManualClock, window: QWidget, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QApplication, "doubleClickInterval", lambda: 900)
    question = call_card(window, theme)
    clock.now += 0.8
    click(question.button)
    assert not question.agreed
    clock.now += 0.11
    click(question.button)
    assert question.agreed


moves = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60), st.floats(0, 0.8)), min_size=1, max_size=12)


@settings(max_examples=15)
@given(moves=moves)
def test_whatever_moves_a_question_begins_the_pause_anew(
    clock: ManualClock, window: QWidget, theme: Theme, moves: list[tuple[int, int, float]]
) -> None:
    """What runs is what stood under the pointer half a second ago."""
    # Around the card there are parts as deep as in a transcript.
    outer = QWidget(window)
    inner = QWidget()
    inner.setParent(outer)
    outer.setGeometry(0, 0, 600, 400)
    inner.setGeometry(0, 0, 400, 300)
    outer.show()
    question = call_card(inner, theme)
    parts = (question.shown, inner, outer, window)
    QApplication.processEvents()
    seen = question.button.mapToGlobal(QPoint(0, 0))
    since = clock.now
    for index, by, passed in moves:
        parts[index].move(parts[index].pos() + QPoint(by, by))
        QApplication.processEvents()
        if (now := question.button.mapToGlobal(QPoint(0, 0))) != seen:
            seen = now
            since = clock.now
        clock.now += passed
        before = question.agreed
        click(question.button)
        assert (question.agreed > before) == (clock.now - since >= PAUSE_S)
    outer.deleteLater()


def uncover(window: QWidget) -> None:
    QApplication.sendEvent(window.windowHandle(), QExposeEvent(QRegion(window.rect())))


def close_box_above(window: QWidget) -> None:
    agreed: list[int] = []
    box = ask(window, "Remove it?", "", "Remove", lambda: agreed.append(1))
    QApplication.processEvents()
    QTest.keyClick(box, Qt.Key.Key_Escape)
    assert (box.isVisible(), agreed) == (False, []), "Escape answers no at any time"
    QApplication.processEvents()


def come_to_the_front(window: QWidget) -> None:
    other = QWidget()
    other.show()
    activate(other)
    activate(window)
    other.deleteLater()


COMES: dict[str, Callable[[QWidget], None]] = {
    "uncovered": uncover,
    "a box above closed": close_box_above,
    "to the front": come_to_the_front,
}


@pytest.mark.parametrize(("how", "press"), grid([*COMES], ["click", "Return"]))
def test_a_question_that_comes_into_view_begins_the_pause_anew(
    clock: ManualClock, window: QWidget, theme: Theme, how: str, press: str
) -> None:
    question = call_card(window, theme)
    QApplication.processEvents()
    clock.now += 60
    COMES[how](window)
    PRESSES[press](question.button)
    assert not question.agreed
    clock.now += PAUSE_S
    PRESSES[press](question.button)
    assert question.agreed


def test_a_widget_above_that_goes_or_a_new_parent_begins_the_pause_anew(
    clock: ManualClock, window: QWidget, theme: Theme
) -> None:
    above = QLabel("Above\n" * 5)
    place = QWidget()
    new_place = QWidget()
    column(above, place, new_place, within=window)
    question = call_card(place, theme)
    QApplication.processEvents()

    def move_to_another_parent() -> None:
        question.shown.setParent(new_place)
        question.shown.show()

    for change in (above.hide, move_to_another_parent, lambda: new_place.move(new_place.pos() + QPoint(0, 7))):
        clock.now += 60
        change()
        QApplication.processEvents()
        click(question.button)
        assert not question.agreed


def test_return_counts_only_after_the_pause_when_a_dialog_is_opened_or_comes_to_the_front(
    clock: ManualClock, window: QWidget
) -> None:
    box = ask(window, "Remove it?", "", "Remove", lambda: None)
    QTest.qWaitForWindowActive(box)
    key_press = QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_Return, NONE)
    QApplication.sendEvent(box, key_press)
    assert box.isVisible()
    clock.now += 60
    come_to_the_front(box)
    QApplication.sendEvent(box, key_press)
    assert box.isVisible()
    clock.now += PAUSE_S
    QApplication.sendEvent(box, key_press)
    assert not box.isVisible()


def test_a_card_that_scrolls_or_a_window_that_grows_below_the_pointer_begins_the_pause_anew(
    clock: ManualClock, window: QWidget, theme: Theme
) -> None:
    content = QWidget()
    above = QLabel("Above\n" * 60)
    place = QWidget()
    place.setMinimumHeight(200)
    column(above, place, within=content)
    area = QScrollArea(widgetResizable=True)
    area.setWidget(content)
    column(area, within=window)
    question = call_card(place, theme)
    QApplication.processEvents()
    bar = area.verticalScrollBar()
    bar.setValue(bar.maximum())
    QApplication.processEvents()

    def wheel() -> None:
        turn_wheel(area.viewport(), QPoint(0, 120), QPointF(area.viewport().rect().center()))

    for change in (
        lambda: bar.setValue(bar.value() - 3),
        lambda: window.resize(window.width() + 90, window.height() + 40),
        wheel,
    ):
        clock.now += 60
        before = question.button.mapToGlobal(QPoint(0, 0))
        agreed = question.agreed
        change()
        QApplication.processEvents()
        assert question.button.mapToGlobal(QPoint(0, 0)) != before
        click(question.button)
        assert question.agreed == agreed
        clock.now += PAUSE_S
        click(question.button)
        assert question.agreed == agreed + 1


def test_a_name_without_an_ending_gets_that_of_the_chosen_kind(qtbot: QtBot) -> None:
    parent = QWidget()
    saved = list[str]()
    qtbot.addWidget(parent)
    dialog = ask_to_save(parent, "Export", "benchmark.csv", ["CSV (*.csv)", "PNG (*.png)"], saved.append)
    assert dialog.acceptMode() is QFileDialog.AcceptMode.AcceptSave
    assert dialog.defaultSuffix() == "csv"
    dialog.filterSelected.emit("PNG (*.png)")
    assert dialog.defaultSuffix() == "png"
    dialog.fileSelected.emit("/tmp/benchmark.png")
    assert saved == ["/tmp/benchmark.png"]
    dialog.close()


def test_files_are_opened_as_asked_for(qtbot: QtBot) -> None:
    parent = QWidget()
    opened = list[list[str]]()
    qtbot.addWidget(parent)
    dialog = ask_to_open(parent, "Open", FileMode.ExistingFiles, opened.append, ["CSV (*.csv)"])
    assert (dialog.fileMode(), dialog.nameFilters()) == (FileMode.ExistingFiles, ["CSV (*.csv)"])
    dialog.filesSelected.emit(["/tmp/a.csv", "/tmp/b.csv"])
    assert opened == [["/tmp/a.csv", "/tmp/b.csv"]]
    dialog.close()
