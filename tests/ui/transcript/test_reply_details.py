"""A reply's own statistics: under the pointer, with the keyboard, and in a small window."""

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QEnterEvent
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Drafting, MessageStatus
from rdchat.inference.api import Mode
from rdchat.ui.speed.sections import FigureRow
from rdchat.ui.transcript.message_actions import ReplyDetails
from rdchat.ui.transcript.view import TranscriptView
from tests.ui.shown_widgets import press_key
from tests.ui.transcript.conftest import Show, answered, button, widget_of
from tests.ui.transcript.samples import DRAFTED

LOOKED_UP = Drafting(Mode.LOOKUP, drafter="prompt lookup")


@pytest.fixture
def view(show: Show) -> TranscriptView:
    return show(answered("Hello", statistics=DRAFTED, drafting=LOOKED_UP, model="tiny"))


def line_of(view: TranscriptView) -> QLabel:
    return widget_of(view, 2).actions_row.facts


def enter(view: TranscriptView) -> None:
    place = QPointF(1, 1)
    QApplication.sendEvent(widget_of(view, 2), QEnterEvent(place, place, place))


def leave(view: TranscriptView) -> None:
    QApplication.sendEvent(widget_of(view, 2), QEvent(QEvent.Type.Leave))


def test_a_line_shows_under_the_pointer(view: TranscriptView) -> None:
    line = line_of(view)
    leave(view)  # the window may have come up under the pointer
    assert line.text() == ""
    enter(view)
    assert line.text().startswith("Prompt lookup · 30.0 tokens/s · 2.00 tokens per step")
    leave(view)
    assert line.text() == ""


def test_and_while_a_button_of_the_reply_has_the_focus(qtbot: QtBot, view: TranscriptView) -> None:
    view.activateWindow()
    button(widget_of(view, 2), "Copy reply").setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(lambda: line_of(view).text() != "")


def test_details_open_with_everything_and_lead_to_the_tokens(qtbot: QtBot, view: TranscriptView) -> None:
    button(widget_of(view, 2), "Details").click()
    details = view.findChild(ReplyDetails)
    qtbot.waitUntil(details.isVisible)
    told = [figure.value.accessibleName() for figure in details.findChildren(FigureRow)]
    assert "Steps with a draft: 30" in told
    assert "Time to first token: 120 ms" in told
    shown = [figure for figure in details.findChildren(FigureRow) if figure.isVisible()]
    assert 1 <= len(shown) <= 3
    button(details, "More").click()
    assert all(figure.isVisible() for figure in details.findChildren(FigureRow))
    with qtbot.waitSignal(view.tokens_requested) as asked:
        button(details, "Show Tokens").click()
    assert asked.args == [2]
    qtbot.waitUntil(lambda: view.findChild(ReplyDetails) is None)


def test_escape_closes_the_details(qtbot: QtBot, view: TranscriptView) -> None:
    button(widget_of(view, 2), "Details").click()
    press_key(view.findChild(ReplyDetails), "Esc")
    qtbot.waitUntil(lambda: view.findChild(ReplyDetails) is None)


def test_tokens_are_a_click_away(qtbot: QtBot, view: TranscriptView) -> None:
    with qtbot.waitSignal(view.tokens_requested) as asked:
        button(widget_of(view, 2), "Show tokens").click()
    assert asked.args == [2]


def test_a_reply_without_statistics_has_no_details(show: Show) -> None:
    view = show(answered("", MessageStatus.FAILED, None, error="It broke off."))
    widget = widget_of(view, 2)
    assert not button(widget, "Details").isEnabled()
    assert not button(widget, "Show tokens").isEnabled()
