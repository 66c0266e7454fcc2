"""The composer, below the transcript: the field for the next message, and what stands around that.

`Composer` puts the parts together: the field (`ComposerField`), the row of files, the format that answers must have
(`ShapeChip`), a ring that shows how full the context is (`ContextRing`), and the buttons. One button sends the message,
or stops the reply while one is written.
"""

from collections.abc import Callable

from PySide6.QtCore import QMimeData, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QPainter, QPaintEvent, QPen, QResizeEvent, QTextCursor
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.chat.attachments.attached_file import MAX_CHARACTERS
from rdchat.inference.api import AnswerShape, ShapeKind
from rdchat.services.chat.context_meter import ContextUse
from rdchat.services.files.part_choice import TokenCount
from rdchat.services.window.app_status import Status
from rdchat.ui.conversation.prompt_list import PromptList
from rdchat.ui.files.attaching import MAX_TEXT, PendingRow
from rdchat.ui.files.file_drops import has_image, image_in, local_files
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TEXT_WIDTH,
    TIGHT,
    IconButton,
    RoundButton,
    Theme,
    column,
    control_font,
    paint_card,
    row,
    set_tip,
    small_text,
)
from rdchat.ui.transcript.message_parts import PromptField

# The height of the buttons and of the ring's widget, in pixels.
_BUTTON = 30

# The ring: its diameter and the width of its line, in pixels.
_RING = 14
_STROKE = 2.5
# Above this share of the context, it has the colour of a warning.
_NEARLY = 0.8
_FULL_CIRCLE = 360 * 16  # Qt's angles

# The field: texts with more characters or lines become files when they are pasted.
_MAX_PASTED = 4000
_MAX_LINES = 200
# The first one that fits into the empty field is shown.
_PLACEHOLDERS = (
    "Ask anything. Return sends, Shift-Return starts a new line.",
    "Ask anything. Return sends.",
    "Ask anything",
)

# The format: the size of its cross in pixels, and its text.
_CROSS = 20
_SHAPES = {ShapeKind.JSON: "JSON", ShapeKind.SCHEMA: "JSON · schema"}

_SEND = "Send (Return)"


class ContextRing(QWidget):
    """A ring and a share in per cent; the tokens are its tooltip. Without a count it takes no room."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        # The share that is drawn, and the colour.
        self._share = 0.0
        self._ink = ""
        # The text beside the ring.
        self.text = ""
        self.setFont(control_font(-1, tabular=True))
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.hide()
        theme.changed.connect(self.update)

    def show_use(self, use: ContextUse | None) -> None:
        """Show a count, or nothing where there is none.

        A chat that does not fit has a full ring and "Too long", or "Over" by an estimate; one that is far too long has
        no count (`tokens` None).
        One that fits shows 99 % at most.
        """
        self.setVisible(use is not None and use.tokens != 0)
        if use is not None:
            self._share = use.tokens / use.limit if use.tokens is not None and use.fits else 1.0
            mark = "~" if use.is_estimate else ""
            percent = "<1%" if 0 < self._share < 0.01 else f"{mark}{min(int(self._share * 100), 99)}%"
            self._ink = "danger" if self._share >= 1 else "warning" if self._share >= _NEARLY else "accent"
            text = percent if use.fits else "Over" if use.may_fit else "Too long"
            self._show_text(text, context_text(use))

    def show_status(self, status: Status) -> None:
        """Show how far a load is, in place of a count."""
        self.setVisible(status.share is not None)
        self._share = status.share or 0.0
        self._ink = "accent"
        self._show_text("", status.text)

    def _show_text(self, text: str, tip: str) -> None:
        self.text = text
        self.setAccessibleName(tip)
        set_tip(self, tip)
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(_RING + TIGHT + self.fontMetrics().horizontalAdvance(self.text) + 2, _BUTTON)

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        ink = getattr(colors, self._ink)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        edge = _STROKE / 2
        ring = QRectF(0, (_BUTTON - _RING) / 2, _RING, _RING).adjusted(edge, edge, -edge, -edge)
        painter.setPen(QPen(colors.border, _STROKE))
        painter.drawEllipse(ring)
        painter.setPen(QPen(ink, _STROKE, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap))
        painter.drawArc(ring, 90 * 16, -round(self._share * _FULL_CIRCLE))
        painter.setPen(colors.muted if self._ink == "accent" else ink)
        painter.drawText(self.rect().adjusted(_RING + TIGHT, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, self.text)


def context_text(use: ContextUse) -> str:
    """Return a sentence with the count."""
    if use.tokens is None:
        return f"This chat is far too long for this model ({use.limit:,} tokens)."
    typed = "This chat and your message take" if use.typed else "This chat takes"
    tokens = TokenCount(use.tokens, not use.is_estimate).description
    shared = f" The project's files take {use.shared_tokens:,} of them." if use.shared_tokens else ""
    return f"{typed} {tokens} of the model's {use.limit:,}.{shared} The reply needs some too."


class ComposerField(PromptField):
    """The field for the next message. It attaches files that are pasted, and leaves dragged ones to the window."""

    # Paths of the files.
    files_pasted = Signal(list)
    # A function that returns the data of an image; see `image_in`.
    image_pasted = Signal(object)
    # What became of a paste.
    noted = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Message", (1, 8))
        self.prompts = PromptList(self)
        # Attaches a long text and returns True, or returns False.
        self.attach_text: Callable[[str], bool] = lambda _text: False

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if local_files(event.mimeData()) or has_image(event.mimeData()):
            event.ignore()
        else:
            super().dragEnterEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return bool(local_files(source)) or has_image(source) or super().canInsertFromMimeData(source)

    def insertFromMimeData(self, source: QMimeData) -> None:
        if paths := local_files(source):
            self.files_pasted.emit(paths)
        elif has_image(source):
            self.image_pasted.emit(image_in(source, is_dragged=False))
        elif len(text := source.text()) > MAX_CHARACTERS:
            self.noted.emit("This text is too long to be pasted. Save it as a file and attach that.")
        elif not self._attach_long(text):
            super().insertFromMimeData(source)

    def _attach_long(self, text: str) -> bool:
        """Attach a pasted text as a file if it is long; return whether it was attached."""
        # Undo makes it text.
        self.pasted.emit(text)
        is_long = len(text) > _MAX_PASTED or text.count("\n") >= _MAX_LINES
        if not is_long or not self.attach_text(text.replace("\r\n", "\n")):
            return False
        # In an unmodified field, Undo takes the text back (see `FileAttacher.share_undo`). Undoing what is typed from
        # now on comes back to this state: Qt does not merge that with what was typed before.
        self.document().setModified(False)
        undo = " Undo makes it text again." if len(text) <= MAX_TEXT else ""
        self.noted.emit(f"The long text is attached as a file.{undo}")
        return True

    def resizeEvent(self, event: QResizeEvent) -> None:
        room = self.viewport().width() - 4 * TIGHT
        fitting = (text for text in _PLACEHOLDERS if self.fontMetrics().horizontalAdvance(text) <= room)
        self.setPlaceholderText(next(fitting, _PLACEHOLDERS[-1]))
        super().resizeEvent(event)


class ShapeChip(QWidget):
    """Shows in the message field which format the answers must have, with a button that removes it."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.label = small_text(theme, "", "accent", wraps=False)
        set_tip(self.label, "The answers in this chat have this format. Change it in Chat Options.")
        self.remove = IconButton("close", "Answer with any text again", theme)
        self.remove.setFixedSize(_CROSS, _CROSS)
        row(self.label, self.remove, within=self, spacing=TIGHT, margins=(SMALL, 1, TIGHT, 1))
        self.hide()

    def show_shape(self, shape: AnswerShape | None) -> None:
        """Show the format; hide where the answers may be any text."""
        self.label.setText(_SHAPES.get(shape.kind, "Another format") if shape else "")
        self.setVisible(shape is not None)

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_card(self, self.rect(), self._theme.colors.raised)


class Composer(QWidget):
    """The field and its buttons in one rounded frame; a line below shows why a message was not sent.

    While a reply is written in this chat, the button stops it; a second button sends the next message.

    Args:
        theme: The appearance to follow.
        stop_keys: The keys that stop the reply.

    Attributes:
        sends_later: Whether the second button may be shown; in the quick window it may not.
    """

    submitted = Signal(str)
    stop_requested = Signal()

    def __init__(self, theme: Theme, stop_keys: str = "Esc") -> None:
        super().__init__()
        self._theme = theme
        self._stop_keys = stop_keys
        self.sends_later = True
        # The style of the outline.
        self._style = Qt.PenStyle.SolidLine
        # Whether a reply is written in this chat, and what a message that is sent now waits for.
        self._writing = False
        self._sent_when = ""
        self.field = ComposerField(theme)
        self.button = RoundButton("send", "Send", theme, _BUTTON)
        self.later = RoundButton("send", _SEND, theme, _BUTTON)
        self.later.set_filled(False)
        self.meter = ContextRing(theme)
        self.attach = IconButton("attach", "Attach files", theme)
        self.attach.setFixedHeight(_BUTTON)
        self.tools = IconButton("tools", "Tools", theme)
        self.tools.setFixedHeight(_BUTTON)
        self.files = PendingRow(theme)
        self.shape = ShapeChip(theme)
        self.note = small_text(theme)
        self.note.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.note.hide()
        self._frame = QWidget()
        self._frame.setCursor(Qt.CursorShape.IBeamCursor)
        self._frame.setFocusProxy(self.field)
        self._frame.setMaximumWidth(TEXT_WIDTH + 2 * LARGE)
        # The field's width beside the buttons, once it stands above them; 0 while it is beside them.
        self._narrow = 0
        self._line = row(self.attach, self.tools, (self.field, 1000), None, self.meter, self.later, self.button)
        self._column = column(self._line, self.shape, self.files, within=self._frame, margins=SMALL)
        self._column.setAlignment(self.shape, Qt.AlignmentFlag.AlignLeft)
        margins = (LARGE, TIGHT, LARGE, MEDIUM)
        column(row(None, (self._frame, 1000), None, spacing=0), self.note, within=self, spacing=TIGHT, margins=margins)
        self.setFocusProxy(self.field)
        theme.changed.connect(self.update)
        self._connect()
        self.refresh_button()

    def _connect(self) -> None:
        self.field.submit_requested.connect(self._submit)
        self.field.textChanged.connect(self._note_edit)
        # Later: it changes while the parts are laid out.
        self.field.height_changed.connect(self._spread, Qt.ConnectionType.QueuedConnection)
        self.field.noted.connect(self.show_note)
        self.field.focus_changed.connect(self.update)
        self.button.clicked.connect(self._press)
        self.later.clicked.connect(self._submit)

    @property
    def text(self) -> str:
        return self.field.toPlainText()

    def dash_outline(self, dashed: bool) -> None:
        """Draw the outline with dashes, or as usual."""
        self._style = Qt.PenStyle.DashLine if dashed else Qt.PenStyle.SolidLine
        self.update()

    def add_line(self, line: QWidget) -> None:
        """Show a line below the files."""
        self._column.addWidget(line)

    def set_text(self, text: str) -> None:
        """Replace the text and put the cursor at its end."""
        self.field.setPlainText(text)
        self.field.prompts.mark_fields()
        self.field.document().clearUndoRedoStacks()
        self.field.moveCursor(QTextCursor.MoveOperation.End)

    def quote(self, text: str) -> None:
        """Append a text as a quote, and put the cursor behind it."""
        quoted = "\n".join(f"> {line}".rstrip() for line in text.strip("\n").split("\n"))
        self.add_text(f"{quoted}\n\n")

    def add_text(self, text: str) -> None:
        """Append a text as a paragraph, and put the cursor behind it."""
        cursor = self.field.textCursor()
        cursor.movePosition(QTextCursor.MoveOperation.End)
        before = self.text.rstrip("\n")
        gap = "\n" * (2 - len(self.text) + len(before)) if before else ""
        cursor.insertText(f"{gap}{text}")
        self.field.setTextCursor(cursor)
        self.field.ensureCursorVisible()
        self.field.setFocus()

    def set_state(self, *, writing: bool, sent_when: str) -> None:
        """Show what the buttons do: whether a reply is written in this chat; for `sent_when` see `Status`."""
        if writing is not self._writing:
            self.show_note("")
        self._writing = writing
        self._sent_when = sent_when
        self.refresh_button()

    def show_note(self, text: str) -> None:
        """Show below the field why nothing was sent; an empty string removes that."""
        self.note.show_text(text)

    def give_back(self, text: str, reason: str) -> None:
        """Put back text that was not sent, unless something else was typed since, and show why."""
        if not self.text.strip():
            self.set_text(text)
        self.show_note(reason)

    def _press(self) -> None:
        if self._writing:
            self.stop_requested.emit()
        else:
            self._submit()

    def _submit(self) -> None:
        """Send the typed text, or say why it cannot be sent."""
        text = self.text.strip()
        if not text and not self.files.has_images:
            self.show_note("Type something to ask first.")
        elif self.field.prompts.select_unfilled():
            self.field.setFocus()
            self.show_note("The prompt asks for this part. Fill it in, or delete it.")
        else:
            self.field.clear()
            self.submitted.emit(text)

    def _spread(self) -> None:
        """Move the field above the buttons, in full width, for several lines; back once its text fits beside them."""
        # The height of the field's document is counted in lines.
        if not self._narrow and self.field.document().size().height() > 1:
            self._narrow = self.field.viewport().width()
            self._column.insertWidget(0, self.field)
        elif self._narrow and "\n" not in self.text:
            margin = 2 * self.field.document().documentMargin()
            if self.field.fontMetrics().horizontalAdvance(self.text) + margin < self._narrow:
                self._narrow = 0
                # Behind the buttons for files and tools.
                self._line.insertWidget(2, self.field, 1000)

    def _note_edit(self) -> None:
        self._spread()
        self.show_note("")
        self.refresh_button()

    def refresh_button(self) -> None:
        """Show what the buttons do now: images are sent without words too."""
        writing = self._writing
        typed = bool(self.text.strip()) or self.files.has_images
        self.button.show_as("stop" if writing else "send", "Stop" if writing else "Send")
        send = f"{_SEND}. Sent when {self._sent_when}." if self._sent_when else _SEND
        tip = f"Stop the reply ({self._stop_keys})" if writing else send
        set_tip(self.button, tip if writing or typed else "Type something to send")
        set_tip(self.later, send)
        self.button.setEnabled(writing or typed)
        self.later.setVisible(writing and typed and self.sends_later)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the rounded outline; in the accent colour while the field has the focus."""
        colors = self._theme.colors
        focused = self.field.hasFocus()
        line = QPen(colors.accent if focused else colors.border, 1.5 if focused else 1, self._style)
        paint_card(self, QRectF(self._frame.geometry()).adjusted(1, 1, -1, -1), colors.surface, line, radius=16)
