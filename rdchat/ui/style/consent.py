"""The pause before a question takes an answer."""

import time

from PySide6.QtCore import QEvent, QObject, QSignalBlocker, Qt, QTimerEvent
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractButton, QApplication, QDialog, QMessageBox, QWidget

_SHORTEST_S = 0.5
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
        buttons: The answers; in a dialog, the pause also holds for its default button.
    """

    clock = staticmethod(time.monotonic)

    def __init__(self, *buttons: QAbstractButton) -> None:
        super().__init__(buttons[0])
        self._begun = self.clock()
        if isinstance(box := buttons[0].window(), QMessageBox):
            # macOS's own dialog would hand on each press.
            box.setOption(QMessageBox.Option.DontUseNativeDialog)
        for button in buttons:
            button.installEventFilter(self)

    @property
    def is_over(self) -> bool:
        """Whether presses count now."""
        return self.clock() - self._begun >= max(_SHORTEST_S, QApplication.doubleClickInterval() / 1000)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        has_grown = event.type() is QEvent.Type.Resize and isinstance(watched, QAbstractButton)
        if has_grown or event.type() in _APPEARED:
            self._begun = self.clock()
            self._watch(watched)
        elif isinstance(watched, QAbstractButton | QDialog) and _is_press(event):
            return not self.is_over or (isinstance(event, QKeyEvent) and event.isAutoRepeat())
        elif isinstance(watched, QAbstractButton) and isinstance(event, QTimerEvent) and not self.is_over:
            # The press of a screen reader, which Qt has shown for a moment, ends here.
            with QSignalBlocker(watched):
                return watched.event(event)
        return False

    def _watch(self, part: QObject | None) -> None:
        """Watch what a part stands in too, since it moves with that."""
        while isinstance(part, QWidget):
            part.installEventFilter(self)
            # A window's handle is told when it is uncovered.
            part = part.windowHandle() if part.isWindow() else part.parentWidget()
        if part is not None:
            part.installEventFilter(self)


def _is_press(event: QEvent) -> bool:
    is_key = isinstance(event, QKeyEvent) and event.key() in _KEYS
    return event.type() in _CLICKS or (is_key and event.type() is QEvent.Type.KeyPress)
