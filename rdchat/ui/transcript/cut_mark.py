"""A line across the transcript: the model gets nothing above it, or only the summary that stands below it."""

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from rdchat.chat.conversation import ContextCut
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, RADIUS, SMALL, TIGHT, Theme
from rdchat.ui.transcript.markdown.code_highlighter import LexerLibrary
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody


class CutMark(QWidget):
    """Stands below the last message that is left out, and offers to give the model the whole chat again.

    Args:
        cut: That message's cut.
        messages: How many messages are left out.
        theme: The appearance to follow.
        library: Highlights code of the summary.
        parent: The Qt parent.
    """

    undo_requested = Signal()

    def __init__(self, cut: ContextCut, messages: int, theme: Theme, library: LexerLibrary, parent: QWidget) -> None:
        super().__init__(parent)
        self.cut, self.messages = cut, messages
        self._theme = theme
        self._line, self._card = QRect(), QRect()
        above = f"{counted(messages, 'message')} above"
        words = f"The model gets a summary of the {above}" if cut.summary else f"The model is not told the {above}"
        self.label = self._add_label(words)
        self.label.setWordWrap(True)
        self.label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.button = TextButton("Tell it all again", theme, self)
        set_tip(self.button, "Gives the model the whole chat again; nothing was deleted")
        self.button.clicked.connect(self.undo_requested)
        self.summary: TextBody | None = None
        if cut.summary:
            self._title = self._add_label(f"Summary by {cut.model}" if cut.model else "Summary")
            self.summary = TextBody(MarkdownParser(), theme, library, parent=self)
            self.summary.setAccessibleName("Summary of the messages above")
            self.summary.set_text(cut.summary, True)

    def _add_label(self, text: str) -> ThemedLabel:
        label = ThemedLabel(self._theme, text, "muted", -1)
        label.setParent(self)
        return label

    def layout_for(self, width: int) -> int:
        """Place the parts at a width and return the height they need."""
        words = min(self.label.fontMetrics().horizontalAdvance(self.label.text()) + 4, width)
        height = self.label.heightForWidth(words)
        button = self.button.sizeHint()
        beside = words + SMALL + button.width() + 2 * MEDIUM <= width
        total = words + SMALL + button.width() if beside else words
        left = (width - total) // 2
        row = max(height, button.height())
        if beside:
            self.label.setGeometry(left, SMALL + (row - height) // 2, words, height)
            self.button.move(left + words + SMALL, SMALL + (row - button.height()) // 2)
        else:
            self.label.setGeometry(left, SMALL, words, height)
            self.button.move((width - button.width()) // 2, SMALL + height)
        self.button.resize(button)
        self._line = QRect(left - MEDIUM, SMALL + (row if beside else height) // 2, total + 2 * MEDIUM, 1)
        bottom = SMALL + (row if beside else height + button.height()) + SMALL
        if self.summary:
            bottom = self._place_summary(self.summary, bottom, width)
        self.update()
        return bottom

    def _place_summary(self, summary: TextBody, top: int, width: int) -> int:
        inner, title = width - 2 * MEDIUM, self._title.sizeHint().height()
        self._title.setGeometry(MEDIUM, top + SMALL, inner, title)
        y = top + SMALL + title + TIGHT
        height = summary.height_for(inner)
        summary.setGeometry(MEDIUM, y, inner, height)
        self._card = QRect(0, top, width, y + height + SMALL - top)
        return self._card.bottom() + 1 + SMALL

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(QRect(0, self._line.y(), max(self._line.left(), 0), 1), self._theme.colors.border)
        right = self._line.right()
        painter.fillRect(QRect(right, self._line.y(), max(self.width() - right, 0), 1), self._theme.colors.border)
        if self.summary:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(self._theme.colors.border)
            painter.setBrush(self._theme.colors.code)
            painter.drawRoundedRect(self._card.adjusted(0, 0, -1, -1), RADIUS, RADIUS)
