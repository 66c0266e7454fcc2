"""Keeps a question from being answered before it can have been read."""

import time
from typing import cast

from PySide6.QtCore import QChildEvent, QEvent, QObject, QSignalBlocker, Qt, QTimerEvent
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractButton, QApplication, QDialog, QWidget

# The shortest pause before an answer counts; a longer double click of the system prolongs it.
_SHORTEST_S = 0.5
# The events that begin the pause anew.
_APPEARED = (
    QEvent.Type.Show,
    QEvent.Type.Move,
    QEvent.Type.ParentChange,
    QEvent.Type.DevicePixelRatioChange,
    # The window came to the front, or what stood above it went.
    QEvent.Type.WindowActivate,
    QEvent.Type.WindowUnblocked,
    QEvent.Type.Expose,
)
_CLICKS = (QEvent.Type.MouseButtonPress, QEvent.Type.MouseButtonDblClick)
_KEYS = (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space, Qt.Key.Key_Select)


class ConsentPause(QObject):
    """Swallows presses of buttons that were begun before their question could be read.

    The pause lasts half a second, or as long as a double click if that is longer. It begins when the buttons appear,
    and anew when they move or grow on the screen, and when their window comes to the front or is uncovered: the press
    may be meant for what stood there before.
    A key that repeats never counts. The buttons stay enabled, so the focus and a screen reader's cursor stay on them.
    Escape answers no at any time.

    Args:
        question: A dialog or a part of a window. All buttons in it are answers, also those that are added later; in a
            dialog, the pause also holds for its default button.
    """

    clock = staticmethod(time.monotonic)

    def __init__(self, question: QWidget) -> None:
        super().__init__(question)
        self._question = question
        self._begun = self.clock()
        self._guard(question)

    @property
    def is_over(self) -> bool:
        """Whether presses count now."""
        return self.clock() - self._begun >= max(_SHORTEST_S, QApplication.doubleClickInterval() / 1000)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Begin the pause anew, or return True for a press to swallow it.

        What moves or appears may be any part around the buttons; what grows must be a button. Presses are swallowed at
        the buttons, and at a dialog, which would hand Return to its default button.
        """
        if event.type() is QEvent.Type.ChildPolished:
            self._guard(cast("QChildEvent", event).child())
            return False
        is_button = isinstance(watched, QAbstractButton)
        has_appeared = event.type() in _APPEARED and (is_button or self._stands_around(watched))
        if has_appeared or (is_button and event.type() is QEvent.Type.Resize):
            self._begun = self.clock()
            self._watch(watched)
        elif (is_button or isinstance(watched, QDialog)) and _is_press(event):
            return not self.is_over or (isinstance(event, QKeyEvent) and event.isAutoRepeat())
        elif isinstance(watched, QAbstractButton) and isinstance(event, QTimerEvent) and not self.is_over:
            # For a screen reader's press, Qt draws the button as pressed, and emits `clicked` when a timer ends. The
            # timer's event is handled with the signals blocked: the button is released, and nothing is clicked.
            with QSignalBlocker(watched):
                return watched.event(event)
        return False

    def _guard(self, part: QObject) -> None:
        """Watch a part of the question, and all that is in it; a part around the question may get other parts too."""
        if part is self._question or (isinstance(part, QWidget) and self._question.isAncestorOf(part)):
            for each in (part, *part.findChildren(QWidget)):
                each.installEventFilter(self)

    def _stands_around(self, part: QObject) -> bool:
        """Return whether a part is the question, or something around a button."""
        # A message box adds its button only after it is shown. A window's handle is no widget.
        return part is self._question or not isinstance(part, QWidget) or part.findChild(QAbstractButton) is not None

    def _watch(self, part: QObject | None) -> None:
        """Watch a part and all that it stands in: it moves and appears with them."""
        while isinstance(part, QWidget):
            part.installEventFilter(self)
            # The event of being uncovered goes to a window's handle, not to the widget.
            part = part.windowHandle() if part.isWindow() else part.parentWidget()
        if part is not None:
            part.installEventFilter(self)


def _is_press(event: QEvent) -> bool:
    is_key = isinstance(event, QKeyEvent) and event.key() in _KEYS
    return event.type() in _CLICKS or (is_key and event.type() is QEvent.Type.KeyPress)
