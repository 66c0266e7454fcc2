"""The message field: it grows with its text, beside one button that sends or stops."""

from math import ceil

from PySide6.QtCore import QMimeData, QRectF, Qt, Signal
from PySide6.QtGui import (
    QDragEnterEvent,
    QFocusEvent,
    QFontMetricsF,
    QInputMethodEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QTextCursor,
)
from PySide6.QtWidgets import QAbstractButton, QFrame, QPlainTextEdit, QWidget

from rdchat.services.engine.engine_events import EngineState
from rdchat.ui.conversation.context_ring import ContextRing
from rdchat.ui.files.attaching import PendingRow
from rdchat.ui.look.buttons import IconButton
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TEXT_WIDTH, TIGHT, Theme

_MOST_LINES = 8
_MOST_PASTED = 500_000  # characters: no model takes more, and Qt lays out a megabyte in a second
_BUTTON = 30
_PLACEHOLDERS = (  # the first that fits
    "Ask anything. Return sends, Shift-Return starts a new line.",
    "Ask anything. Return sends.",
    "Ask anything",
)
_TIPS = {
    EngineState.IDLE: "Send (Return)",
    EngineState.LOADING: "Send (Return). The model is still loading; the reply starts when it is ready.",
    EngineState.WRITING: "Stop the reply (Esc)",
    EngineState.NO_MODEL: "No model is loaded. Choose a model first.",
}


class PromptField(QPlainTextEdit):
    """A text field as high as its lines, up to eight. Return submits, Shift-Return starts a line."""

    submit_requested = Signal()
    focus_changed = Signal()
    files_pasted = Signal(list)  # paths
    paste_refused = Signal(str)  # why

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._composing = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setAccessibleName("Message")
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(TIGHT)
        self.document().documentLayout().documentSizeChanged.connect(self._fit_height)
        theme.changed.connect(self._restyle)
        self._restyle()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Leave files to the window, which takes them; here they would become text."""
        if local_files(event.mimeData()):
            event.ignore()
        else:
            super().dragEnterEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return bool(local_files(source)) or super().canInsertFromMimeData(source)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Take copied files as files, not as their paths."""
        if paths := local_files(source):
            self.files_pasted.emit(paths)
        elif source.hasImage() and not source.hasText():
            self.paste_refused.emit("rdchat cannot look at images yet.")
        elif len(source.text()) > _MOST_PASTED:
            self.paste_refused.emit("This text is too long to be pasted. Save it as a file and attach that.")
        else:
            super().insertFromMimeData(source)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not self._composing:
            if event.modifiers() & (Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier):
                self.textCursor().insertText("\n")  # Qt's own Shift-Return would insert U+2028
                self.ensureCursorVisible()
            else:
                self.submit_requested.emit()
            return
        super().keyPressEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._composing = False
        super().focusOutEvent(event)
        self.focus_changed.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        room = self.viewport().width() - 4 * TIGHT
        fitting = (words for words in _PLACEHOLDERS if self.fontMetrics().horizontalAdvance(words) <= room)
        self.setPlaceholderText(next(fitting, _PLACEHOLDERS[-1]))
        self._fit_height()

    def _fit_height(self) -> None:
        document = self.document()
        lines = round(document.size().height())  # counted in lines, wrapped ones too
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if lines > _MOST_LINES else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        if policy is not self.verticalScrollBarPolicy():
            self.setVerticalScrollBarPolicy(policy)
        text_height = min(max(lines, 1), _MOST_LINES) * QFontMetricsF(self.font()).lineSpacing()
        self.setFixedHeight(ceil(text_height + 2 * document.documentMargin()) + 2)

    def _restyle(self) -> None:
        self.setFont(self._theme.body_font())
        self._fit_height()


def local_files(data: QMimeData) -> list[str]:
    """Return the files and folders of this machine that are dragged or were copied."""
    return [url.toLocalFile() for url in data.urls() if url.isLocalFile()]


class RoundButton(QAbstractButton):
    """A filled circle with an icon: the main action of the composer."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._picture = "send"
        self.setFixedSize(_BUTTON, _BUTTON)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        theme.changed.connect(self.update)

    def show_picture(self, name: str) -> None:
        self._picture = name
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(colors.text, 1.5) if self.hasFocus() else Qt.PenStyle.NoPen)
        ground = colors.accent if self.isEnabled() else colors.border
        painter.setBrush(ground.darker(115) if self.isDown() else ground)
        painter.drawEllipse(QRectF(self.rect()).adjusted(1, 1, -1, -1))
        ink = colors.on_accent if self.isEnabled() else colors.muted
        picture = line_pixmap(self._picture, ink, 18, self.devicePixelRatioF())
        painter.drawPixmap((_BUTTON - 18) // 2, (_BUTTON - 18) // 2, picture)


class Composer(QWidget):
    """The field and its button in one rounded frame; a line below says why a message was not sent."""

    submitted = Signal(str)
    stop_requested = Signal()
    files_pasted = Signal(list)  # paths

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._state = EngineState.LOADING
        self.field = PromptField(theme)
        self.button = RoundButton(theme)
        self.meter = ContextRing(theme)
        self.attach = IconButton("attach", "Attach files", theme)
        self.attach.setFixedHeight(_BUTTON)
        self.files = PendingRow(theme)
        self.note = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.note.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.note.hide()
        self._frame = QWidget()
        self._frame.setCursor(Qt.CursorShape.IBeamCursor)
        self._frame.setFocusProxy(self.field)
        self._frame.setMaximumWidth(TEXT_WIDTH + 2 * LARGE)
        line = row(self.attach, (self.field, 1), self.meter, self.button)
        for part in (self.attach, self.meter, self.button):
            line.setAlignment(part, Qt.AlignmentFlag.AlignBottom)
        line.setAlignment(self.field, Qt.AlignmentFlag.AlignVCenter)
        column(line, self.files, within=self._frame, margins=SMALL)
        margins = (LARGE, TIGHT, LARGE, MEDIUM)
        column(row(None, (self._frame, 1000), None, spacing=0), self.note, within=self, spacing=TIGHT, margins=margins)
        self.setFocusProxy(self.field)
        self.field.submit_requested.connect(self._submit)
        self.field.textChanged.connect(self._note_edit)
        self.field.files_pasted.connect(self.files_pasted)
        self.field.paste_refused.connect(self.show_note)
        self.field.focus_changed.connect(self.update)
        theme.changed.connect(self.update)
        self.button.clicked.connect(self._press)
        self._refresh_button()

    @property
    def text(self) -> str:
        return self.field.toPlainText()

    def set_text(self, text: str) -> None:
        """Replace the text and put the cursor at its end."""
        self.field.setPlainText(text)
        self.field.moveCursor(QTextCursor.MoveOperation.End)

    def quote(self, text: str) -> None:
        """Append a text as a quote, and put the cursor behind it."""
        quoted = "\n".join(f"> {line}".rstrip() for line in text.strip("\n").split("\n"))
        cursor = self.field.textCursor()
        cursor.movePosition(QTextCursor.MoveOperation.End)
        before = self.text.rstrip("\n")
        gap = "\n" * (2 - len(self.text) + len(before)) if before else ""
        cursor.insertText(f"{gap}{quoted}\n\n")
        self.field.setTextCursor(cursor)
        self.field.ensureCursorVisible()
        self.field.setFocus()

    def set_state(self, state: EngineState) -> None:
        """Show what the engine is busy with."""
        state = EngineState.WRITING if state is EngineState.PREFILL else state
        if state is not self._state:
            self._state = state
            self.show_note("")
            self._refresh_button()

    def show_note(self, words: str) -> None:
        """Say below the field why nothing was sent; an empty string removes that."""
        self.note.say(words)

    def give_back(self, text: str, reason: str) -> None:
        """Put back text that was not sent, unless something else was typed since, and say why."""
        if not self.text.strip():
            self.set_text(text)
        self.show_note(reason)

    def _press(self) -> None:
        if self._state is EngineState.WRITING:
            self.stop_requested.emit()
        else:
            self._submit()

    def _submit(self) -> None:
        text = self.text.strip()
        if not text:
            self.show_note("Type something to ask first.")
        elif self._state is EngineState.NO_MODEL:
            self.show_note("No model is loaded, so nothing can answer. Choose a model first.")
        elif self._state is EngineState.WRITING:
            self.show_note("A reply is being written. Wait for its end, or press Esc to stop it.")
        else:
            self.field.clear()
            self.submitted.emit(text)

    def _note_edit(self) -> None:
        self.show_note("")
        self._refresh_button()

    def _refresh_button(self) -> None:
        writing, no_model = self._state is EngineState.WRITING, self._state is EngineState.NO_MODEL
        empty = not (writing or no_model or self.text.strip())
        self.button.show_picture("stop" if writing else "send")
        self.button.setAccessibleName("Stop" if writing else "Send")
        set_tip(self.button, "Type something to send" if empty else _TIPS[self._state])
        self.button.setEnabled(not (empty or no_model))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the rounded outline; in the accent colour while the field has the focus."""
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        focused = self.field.hasFocus()
        painter.setPen(QPen(colors.accent if focused else colors.border, 1.5 if focused else 1))
        painter.setBrush(colors.surface)
        painter.drawRoundedRect(QRectF(self._frame.geometry()).adjusted(1, 1, -1, -1), 16, 16)
