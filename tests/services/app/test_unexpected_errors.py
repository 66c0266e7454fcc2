"""An error that no code expected is said to the person, not only printed."""

import sys
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QTimer
from pytestqt.exceptions import capture_exceptions
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Notice
from rdchat.services.app.event_loop import UnexpectedErrors


@pytest.fixture
def errors(qtbot: QtBot) -> Iterator[UnexpectedErrors]:
    errors = UnexpectedErrors()
    yield errors
    errors.release()


def fail() -> None:
    raise KeyError("shape")


def test_an_error_of_a_slot_is_shown_and_logged(
    qtbot: QtBot, errors: UnexpectedErrors, caplog: pytest.LogCaptureFixture
) -> None:
    with qtbot.waitSignal(errors.raised) as said:
        QTimer.singleShot(0, fail)
    (notice,) = said.args or ()
    assert isinstance(notice, Notice)
    assert notice.title == "Something unexpected went wrong"
    assert "KeyError" in notice.detail
    assert "shape" not in notice.detail  # an error's text may be the person's
    assert "KeyError: 'shape'" in caplog.text


def test_an_error_of_showing_it_does_not_show_it_again(qtbot: QtBot, errors: UnexpectedErrors) -> None:
    shown: list[Notice] = []

    def show(notice: Notice) -> None:
        shown.append(notice)
        fail()

    errors.raised.connect(show)
    with qtbot.waitSignal(errors.raised):
        QTimer.singleShot(0, fail)
    done: list[int] = []
    QTimer.singleShot(0, lambda: done.append(1))
    qtbot.waitUntil(lambda: done == [1])
    assert len(shown) == 1


def test_the_processes_own_hook_comes_back(qtbot: QtBot) -> None:
    with capture_exceptions():
        before = sys.excepthook
        errors = UnexpectedErrors()
        assert sys.excepthook != before
        errors.release()
        assert sys.excepthook is before
