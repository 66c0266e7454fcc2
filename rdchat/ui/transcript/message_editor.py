"""The field for a prompt, and the editor of a message in its place."""

from math import ceil

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontMetricsF, QInputMethodEvent, QKeyEvent, QKeySequence, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QWidget

from rdchat.ui.look.buttons import dialog_buttons, push_button
from rdchat.ui.look.layouts import column
from rdchat.ui.look.theme import SMALL, Theme, paint_card


class PromptField(QPlainTextEdit):
    """A text field as high as its lines. Return submits, Shift-Return breaks the line.

    Args:
        theme: The appearance to follow.
        name: For screen readers.
        lines: The least and the most lines that it shows.
        return_submits: Whether Return alone submits; otherwise only Ctrl-Return (on a Mac, Command-Return) does.
    """

    submit_requested = Signal()
    height_changed = Signal()

    def __init__(self, theme: Theme, name: str, lines: tuple[int, int], *, return_submits: bool = True) -> None:
        super().__init__()
        self._theme, self._lines, self._return_submits = theme, lines, return_submits
        self._composing = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setAccessibleName(name)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)  # the ground is painted below it, with round corners
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        theme.changed.connect(self._restyle)
        self._restyle()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, modifier = event.modifiers(), Qt.KeyboardModifier
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter) or self._composing:
            super().keyPressEvent(event)
        elif key & modifier.ControlModifier or (
            self._return_submits and not key & (modifier.ShiftModifier | modifier.AltModifier)
        ):
            self.submit_requested.emit()
        else:
            self.textCursor().insertText("\n")  # Qt's own Shift-Return would insert U+2028
            self.ensureCursorVisible()

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        least, most = self._lines
        lines = round(self.document().size().height())  # a plain document counts in lines, wrapped ones too
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if lines > most else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        if policy is not self.verticalScrollBarPolicy():
            self.setVerticalScrollBarPolicy(policy)
        text_height = min(max(lines, least), most) * QFontMetricsF(self.font()).lineSpacing()
        height = ceil(text_height + 2 * self.document().documentMargin()) + 2
        if height != self.height():
            self.setFixedHeight(height)
            self.height_changed.emit()

    def _restyle(self) -> None:
        self.setFont(self._theme.body_font())
        self._fit()


class MessageEditor(QWidget):
    """Edits a prompt, where Return saves and sends, or a reply, where Return breaks the line. Esc cancels."""

    submitted = Signal(str)
    cancelled = Signal()
    height_changed = Signal()
    changed = Signal(str)  # the text

    def __init__(self, text: str, theme: Theme, parent: QWidget | None = None, *, of_reply: bool = False) -> None:
        super().__init__(parent)
        self._theme = theme
        name = "Edit the reply" if of_reply else "Edit your message"
        self._field = PromptField(theme, name, (3, 16), return_submits=not of_reply)
        self._field.document().setDocumentMargin(SMALL)
        self._field.setPlainText(text)
        if not of_reply:
            self._field.moveCursor(self._field.textCursor().MoveOperation.End)
        keys = QKeySequence("Ctrl+Return").toString(QKeySequence.SequenceFormat.NativeText)
        of_prompt = "Keeps the old version too, and gets a new reply"
        tip = f"Keeps the model's version too ({keys})" if of_reply else of_prompt
        self._save = push_button("Save" if of_reply else "Save and Send", tip, self._submit)
        self._save.setDefault(True)
        buttons = dialog_buttons(reject=push_button("Cancel", act=self.cancelled.emit), accept=self._save)
        column(self._field, buttons, within=self)
        self._field.submit_requested.connect(self._submit)
        self._field.textChanged.connect(self._text_changed)
        self._field.height_changed.connect(self.height_changed)
        self.setFocusProxy(self._field)

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_card(self, self._field.geometry(), self._theme.colors.raised)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.cancelled.emit()
        else:
            super().keyPressEvent(event)

    @property
    def text(self) -> str:
        return self._field.toPlainText()

    def _text_changed(self) -> None:
        self._save.setEnabled(bool(self.text.strip()))
        self.changed.emit(self.text)

    def _submit(self) -> None:
        if self.text.strip():
            self.submitted.emit(self.text)
