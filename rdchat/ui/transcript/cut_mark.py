"""A line across the transcript: what is above it, the model is not told, or only in the summary that stands below."""

import math

from PySide6.QtCore import QPoint, QRect, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from rdchat.chat.conversation import ContextCut
from rdchat.chat.search_words import WordMatcher
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, RADIUS, SMALL, TIGHT, Theme
from rdchat.ui.transcript.markdown.code_highlighter import LexerLibrary
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextBody, Work


class CutMark(QWidget):
    """Stands below the last message that is left out, and offers to tell the model of it again.

    Args:
        cut: Of that message.
        messages: How many are left out.
        theme: The appearance to follow.
        library: Highlights code of a summary.
        parent: The Qt parent.
    """

    undo_requested = Signal()

    def __init__(
        self, cut: ContextCut, messages: int, *, theme: Theme, library: LexerLibrary, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._line, self._card = QRect(), QRect()
        above = f"{counted(messages, 'message')} above"
        words = f"The model gets a summary of the {above}" if cut.summary else f"The model is not told the {above}"
        self.label = ThemedLabel(theme, words, "muted", -1)
        self.label.setParent(self)
        self.label.setWordWrap(True)
        self.label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.button = TextButton("Tell it all again", theme, self)
        set_tip(self.button, "Gives the model the whole chat again; nothing was deleted")
        self.button.clicked.connect(self.undo_requested)
        self.title: ThemedLabel | None = None
        self.summary: TextBody | None = None
        if cut.summary:
            self.title = ThemedLabel(theme, f"Summary by {cut.model}" if cut.model else "Summary", "muted", -1)
            self.title.setParent(self)
            self.summary = TextBody(MarkdownParser(), theme, library, parent=self)
            self.summary.setAccessibleName("Summary of the messages above")
            self.summary.set_text(cut.summary, True)
        self.restyle()

    def mark(self, matcher: WordMatcher) -> None:
        """Mark the words of a search in the summary."""
        if self.summary is not None:
            self.summary.marks.set_matcher(matcher)

    @property
    def hits(self) -> int:
        """How many words are marked."""
        return len(self.summary.marks.hits) if self.summary is not None else 0

    @property
    def current(self) -> int:
        """Which of them is gone to; -1 for none."""
        return self.summary.marks.current if self.summary is not None else -1

    def go_to_hit(self, number: int) -> QRect:
        """Mark one of them as current, or none for -1; return where it stands in this widget."""
        if self.summary is None:
            return QRect()
        rect = self.summary.marks.go_to(number)
        if number < 0:
            return QRect()
        self.summary.sideways.bring_into_view(rect)
        return rect.translated(self.summary.mapTo(self, QPoint(0, 0)))

    def layout_for(self, width: int) -> int:
        """Place the parts at a width and return the height they need."""
        words = min(self.label.fontMetrics().horizontalAdvance(self.label.text()) + 4, width)
        height = self.label.heightForWidth(words)
        button = self.button.sizeHint()
        beside = words + SMALL + button.width() + 2 * MEDIUM <= width
        total = words + SMALL + button.width() if beside else words
        left = (width - total) // 2
        row = max(height, button.height())
        top = SMALL
        self.label.setGeometry(left, top + (row - height) // 2 if beside else top, words, height)
        if beside:
            place = (left + words + SMALL, top + (row - button.height()) // 2)
        else:
            place = ((width - button.width()) // 2, top + height)
            row = height + button.height()
        self.button.setGeometry(*place, button.width(), button.height())
        self._line = QRect(left - MEDIUM, top + (row if beside else height) // 2, total + 2 * MEDIUM, 1)
        bottom = top + row + SMALL
        if self.summary is not None and self.title is not None:
            inner = width - 2 * MEDIUM
            self.title.setGeometry(MEDIUM, bottom + SMALL, inner, self.title.sizeHint().height())
            y = bottom + SMALL + self.title.height() + TIGHT
            height = self.summary.height_for(inner)
            self.summary.setGeometry(MEDIUM, y, inner, height)
            self._card = QRect(0, bottom, width, y + height + SMALL - bottom)
            bottom = self._card.bottom() + 1 + SMALL
        self.update()
        return bottom

    def restyle(self) -> None:
        """Follow the theme."""
        self.button.restyle()
        if self.summary is not None:
            self.summary.restyle()
            while self.summary.work is Work.READY:  # a summary is short
                self.summary.advance(math.inf)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(QRect(0, self._line.y(), max(self._line.left(), 0), 1), self._theme.colors.border)
        right = self._line.right()
        painter.fillRect(QRect(right, self._line.y(), max(self.width() - right, 0), 1), self._theme.colors.border)
        if self.summary is not None:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(self._theme.colors.border)
            painter.setBrush(self._theme.colors.code)
            painter.drawRoundedRect(self._card.adjusted(0, 0, -1, -1), RADIUS, RADIUS)
