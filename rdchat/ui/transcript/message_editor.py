"""The editor of a message, in its place."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QInputMethodEvent, QKeyEvent, QKeySequence, QPainter, QPaintEvent, QTextCursor
from PySide6.QtWidgets import QDialogButtonBox, QFrame, QPlainTextEdit, QWidget

from rdchat.ui.look.layouts import column
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import RADIUS, SMALL, Theme

_LEAST_LINES, _MOST_LINES = 3, 16


class MessageEditor(QWidget):
    """Edits a prompt, where Return saves and sends and Shift-Return breaks the line, or a reply, where Return does.

    In both, Ctrl-Return (on a Mac, Command-Return) saves, and Esc cancels.

    Args:
        text: What there is.
        theme: The appearance to follow.
        parent: The Qt parent.
        of_reply: Whether it is a reply, which has many lines, and is saved only.
    """

    submitted = Signal(str)
    cancelled = Signal()
    height_changed = Signal()
    changed = Signal(str)  # the text

    def __init__(self, text: str, theme: Theme, parent: QWidget | None = None, *, of_reply: bool = False) -> None:
        super().__init__(parent)
        self._theme = theme
        self._edit = _Edit(self, return_saves=not of_reply)
        self._edit.setFrameShape(QFrame.Shape.NoFrame)
        self._edit.viewport().setAutoFillBackground(False)  # the ground is painted below it, with round corners
        self._edit.setPlainText(text)
        self._edit.setFont(theme.body_font())
        self._edit.setAccessibleName(self.tr("Edit the reply") if of_reply else self.tr("Edit your message"))
        self._edit.setTabChangesFocus(True)
        self._edit.document().setDocumentMargin(SMALL)
        if not of_reply:
            self._edit.moveCursor(QTextCursor.MoveOperation.End)
        buttons = QDialogButtonBox(self)
        buttons.addButton(self.tr("Cancel"), QDialogButtonBox.ButtonRole.RejectRole)
        words = self.tr("Save") if of_reply else self.tr("Save and send")
        self._save = buttons.addButton(words, QDialogButtonBox.ButtonRole.AcceptRole)
        self._save.setDefault(True)
        tip = self.tr("Keeps this version beside the old one and asks for a new reply")
        if of_reply:
            keys = QKeySequence("Ctrl+Return").toString(QKeySequence.SequenceFormat.NativeText)
            tip = self.tr("Keeps your version beside the model's own (%s)") % keys
        set_tip(self._save, tip)
        column(self._edit, buttons, within=self)
        self._edit.submitted.connect(self._submit)
        self._edit.cancelled.connect(self.cancelled)
        self._edit.textChanged.connect(self._text_changed)
        buttons.accepted.connect(self._submit)
        buttons.rejected.connect(self.cancelled)
        self.setFocusProxy(self._edit)
        self._edit.document().documentLayout().documentSizeChanged.connect(self._fit)
        self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.colors.raised)
        painter.drawRoundedRect(self._edit.geometry(), RADIUS, RADIUS)

    @property
    def text(self) -> str:
        return self._edit.toPlainText()

    def _text_changed(self) -> None:
        self._save.setEnabled(bool(self.text.strip()))
        self._fit()
        self.changed.emit(self.text)

    def _fit(self) -> None:
        """Let the field grow with its lines."""
        wrapped = round(self._edit.document().size().height())  # a plain document counts in lines
        lines = min(max(wrapped, self._edit.document().blockCount(), _LEAST_LINES), _MOST_LINES)
        height = lines * self._edit.fontMetrics().lineSpacing() + 3 * SMALL
        if height != self._edit.height():
            self._edit.setFixedHeight(height)
            self.height_changed.emit()

    def _submit(self) -> None:
        if self.text.strip():
            self.submitted.emit(self.text)


class _Edit(QPlainTextEdit):
    submitted = Signal()
    cancelled = Signal()

    def __init__(self, parent: QWidget, *, return_saves: bool) -> None:
        super().__init__(parent)
        self._return_saves = return_saves
        self._composing = False

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        control = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        saves = control or (self._return_saves and not shift)
        if event.key() == Qt.Key.Key_Escape and not self._composing:
            self.cancelled.emit()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and saves and not self._composing:
            self.submitted.emit()
        else:
            super().keyPressEvent(event)
