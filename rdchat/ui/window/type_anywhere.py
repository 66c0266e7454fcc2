"""Typing without a text field goes to the message field, as in other chat apps."""

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QGuiApplication, QInputMethodEvent, QInputMethodQueryEvent, QKeyEvent
from PySide6.QtWidgets import QAbstractSpinBox, QApplication, QComboBox, QLineEdit, QPlainTextEdit, QTextEdit, QWidget
from shiboken6 import isValid

from rdchat import host

_COMMANDS = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.MetaModifier
# Keys with these modifiers are commands. On a Mac, Option types characters.
if not host.MACOS:
    _COMMANDS |= Qt.KeyboardModifier.AltModifier


def takes_text(widget: QWidget | None) -> bool:
    """Return whether text can be typed into a widget."""
    if isinstance(widget, QComboBox):
        return widget.isEditable()
    return isinstance(widget, QAbstractSpinBox | QLineEdit | QPlainTextEdit | QTextEdit) and not widget.isReadOnly()


class TypeAnywhere(QObject):
    """Hands what is typed into a window to one field, unless a text field has the focus.

    It watches the focused widget alone: a filter of the whole application would see every event. Open menus and
    popovers are windows of their own. Space stays with buttons, and a message does not begin with it.

    Args:
        window: The window.
        field: Takes the text.
    """

    def __init__(self, window: QWidget, field: QWidget) -> None:
        super().__init__(field)  # It ends with the field, which the window may delete before other widgets.
        self._window = window
        self._field = field
        # The window has the keyboard where no widget has the focus.
        window.installEventFilter(self)
        app = QApplication.instance()
        assert isinstance(app, QApplication), "widgets exist only in an application"
        app.focusChanged.connect(self._follow)

    def _follow(self, old: QWidget | None, now: QWidget | None) -> None:
        if old is not None and old is not self._window:
            old.removeEventFilter(self)
        if now is not None and now.window() is self._window and not takes_text(now):
            now.installEventFilter(self)
            QGuiApplication.inputMethod().update(Qt.InputMethodQuery.ImEnabled)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Let input methods work for the field, and give it the focus with the first character."""
        # When the app quits, Qt may delete the field first, and still send events to the window.
        if not isValid(self._field) or takes_text(QApplication.focusWidget()):
            return False
        if isinstance(event, QInputMethodQueryEvent):
            return QApplication.sendEvent(self._field, event)
        if isinstance(event, QInputMethodEvent):
            is_text = bool(event.commitString() or event.preeditString())
        elif isinstance(event, QKeyEvent) and event.type() is QEvent.Type.KeyPress:
            text = event.text()
            is_text = text.isprintable() and bool(text.strip()) and not event.modifiers() & _COMMANDS
        else:
            return False
        if is_text:
            self._field.setFocus()
            QApplication.sendEvent(self._field, event)
        return is_text
