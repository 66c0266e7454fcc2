"""The tokens of a reply as running text: who drafted each, and the round around the one that is looked at."""

from collections.abc import Callable
from functools import cache

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QWidget

from rdchat.chat.reply_trace import ReplyTrace
from rdchat.ui.drafts.drafter_marks import ink, underline
from rdchat.ui.drafts.painted_area import PaintedArea
from rdchat.ui.drafts.token_lines import LINE_BREAK, NO_CHARACTER, TokenLines, TokenRun
from rdchat.ui.drafts.words import token_words
from rdchat.ui.look.theme import MEDIUM, Theme

_LEADING = 1.55  # line height over the font's, so that underlines and outlines have room
_TINT = 40  # of 255


class TokenView(PaintedArea):
    """Paints what is in view of a trace. A token is looked at by the pointer, else by the cursor that arrow keys move.

    Attributes:
        current: The token that the cursor stands on; -1 while there is none.
    """

    looked_at = Signal(int)  # the token; it may be the one before, with more known of it
    cursor_moved = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._trace = ReplyTrace()
        self._pointed: int | None = None
        self.current = -1
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Tokens of the reply")
        self.viewport().setMouseTracking(True)
        self.viewport().setCursor(Qt.CursorShape.IBeamCursor)
        self.verticalScrollBar().valueChanged.connect(lambda: self._point_at(None))
        theme.changed.connect(self._restyle)
        self._restyle()

    # --- what is shown

    def show_trace(self, trace: ReplyTrace, cursor: int) -> None:
        """Show another trace, with the cursor on one of its tokens."""
        self._trace = trace
        self._pointed = None
        self.current = min(cursor, len(trace.tokens) - 1)
        self._lay_out()
        self._reveal_cursor()
        self._tell()

    def note_growth(self) -> None:
        """Show what the trace has gained; a cursor on its last token, and a reader at its end, stay there."""
        bar = self.verticalScrollBar()
        follows, known = bar.value() >= bar.maximum() - 2, len(self._lines.runs)
        self._lines.append([token.text for token in self._trace.tokens[known:]])
        if self.current == known - 1:
            self.current = len(self._trace.tokens) - 1
        self._set_range()
        if follows:
            bar.setValue(bar.maximum())
        self.viewport().update()
        self._tell()

    def note_end(self, trace: ReplyTrace) -> None:
        """Take the whole trace of a reply whose growth was shown; who reads elsewhere in it is left alone."""
        known = len(self._lines.runs)
        shown, self._trace = self._trace.tokens[:known], trace
        if trace.tokens[:known] != shown:
            self._lay_out()
        self.current = min(self.current, len(trace.tokens) - 1)
        self._pointed = None
        self.note_growth()

    @property
    def token(self) -> int:
        """The token that is looked at; -1 where there is none."""
        return self.current if self._pointed is None else self._pointed

    def move_to(self, token: int) -> None:
        """Put the cursor on a token and bring it into view."""
        if 0 <= token < len(self._trace.tokens):
            moved = token != self.current
            self._pointed, self.current = None, token
            self._reveal_cursor()
            self._tell()
            if moved:
                self.cursor_moved.emit(token)

    def _tell(self) -> None:
        self.viewport().update()
        if 0 <= self.current < len(self._trace.tokens):
            self.setAccessibleDescription(token_words(self._trace, self.current))
        self.looked_at.emit(self.token)

    # --- layout

    def _restyle(self) -> None:
        self.setFont(self._theme.body_font())
        self._metrics = metrics = QFontMetricsF(self.font())
        self._advance = cache(metrics.horizontalAdvance)  # tokens recur: measured once, they are laid ten times as fast
        self._ascent, self._line_height = metrics.ascent(), metrics.height() * _LEADING
        self._lay_out()

    def _lay_out(self) -> None:
        width = max(60.0, self.viewport().width() - 2 * MEDIUM)
        self._lines = TokenLines(self._advance, width)
        self._lines.append([token.text for token in self._trace.tokens])
        self._set_range()
        self.viewport().update()

    def _set_range(self) -> None:
        height = round(len(self._lines.lines) * self._line_height) + 2 * MEDIUM
        bar = self.verticalScrollBar()
        bar.setRange(0, max(0, height - self.viewport().height()))
        bar.setPageStep(self.viewport().height())
        bar.setSingleStep(round(self._line_height))

    def _top_of(self, line: int) -> float:
        return MEDIUM + line * self._line_height - self.verticalScrollBar().value()

    def _reveal_cursor(self) -> None:
        if self.current >= 0 and self._lines.runs:
            bar = self.verticalScrollBar()
            top = self._top_of(self._lines.runs[self.current][0].line) + bar.value()
            bottom = top + self._line_height
            bar.setValue(round(max(min(bar.value(), top - MEDIUM), bottom + MEDIUM - self.viewport().height())))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        bar = self.verticalScrollBar()
        at_end = 0 < bar.maximum() <= bar.value() + 2
        if event.size().width() == event.oldSize().width():
            self._set_range()
        else:
            self._lay_out()
        if at_end:
            bar.setValue(bar.maximum())

    # --- the person's hands

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point_at(self._token_at(event.position().toPoint()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if (token := self._token_at(event.position().toPoint())) is not None:
            self.move_to(token)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Leave:
            self._point_at(None)
        return super().viewportEvent(event)

    def _token_at(self, place: QPoint) -> int | None:
        line = int((place.y() - MEDIUM + self.verticalScrollBar().value()) // self._line_height)
        return self._lines.token_at(line, place.x() - MEDIUM)

    def _point_at(self, token: int | None) -> None:
        if token != self._pointed:
            self._pointed = token
            self.viewport().update()
            self.looked_at.emit(self.token)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, last = Qt.Key(event.key()), len(self._trace.tokens) - 1
        if last < 0 or event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            super().keyPressEvent(event)
            return
        places: dict[Qt.Key, Callable[[], int]] = {
            Qt.Key.Key_Left: lambda: self.current - 1,
            Qt.Key.Key_Right: lambda: self.current + 1,
            Qt.Key.Key_Up: lambda: self._round_step(-1),
            Qt.Key.Key_Down: lambda: self._round_step(1),
            Qt.Key.Key_Home: lambda: 0,
            Qt.Key.Key_End: lambda: last,
        }
        if key not in places:
            super().keyPressEvent(event)  # pages scroll
            return
        self.move_to(min(max(places[key](), 0), last))
        self.announce()

    def _round_step(self, step: int) -> int:
        """Return the first token of the round before or after the cursor's; outside of rounds, that a line on."""
        tokens, traced = self._trace.tokens, self._trace.round_of(self.current)
        if traced is None:
            run = self._lines.runs[self.current][0]
            found = self._lines.token_at(run.line + step, run.x)
            return self.current + step if found is None else found
        if step > 0:
            return traced.first + traced.count
        before = traced.first - 1
        if before < 0 or not tokens[before].round:
            return before
        return self._trace.rounds[tokens[before].round - 1].first

    # --- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(event.rect(), self._theme.colors.surface)
        painter.setFont(self.font())
        if 0 <= self.token < len(self._lines.runs):
            self._paint_round(painter)
        scrolled = self.verticalScrollBar().value() - MEDIUM
        first = max(0, int((event.rect().top() + scrolled) // self._line_height))
        last = int((event.rect().bottom() + scrolled) // self._line_height)
        for line in range(first, min(last + 1, len(self._lines.lines))):
            for run in self._lines.lines[line]:
                self._paint_run(painter, run)

    def _paint_run(self, painter: QPainter, run: TokenRun) -> None:
        token, colors = self._trace.tokens[run.token], self._theme.colors
        left, top = MEDIUM + run.x, self._top_of(run.line)
        base = top + (self._line_height - self._ascent) / 2 + self._ascent * 0.88
        faint = run.text == NO_CHARACTER and run.text != token.text
        painter.setPen(colors.muted if faint else ink(self._theme, token.drafter))
        body = run.text.removesuffix(LINE_BREAK) if "\n" in token.text else run.text
        painter.drawText(QPointF(left, base), body)
        if body != run.text:
            painter.setPen(colors.muted)
            end = self._metrics.horizontalAdvance(LINE_BREAK)
            painter.drawText(QPointF(left + run.width - end, base), LINE_BREAK)
        if token.drafter:
            indent = self._metrics.horizontalAdvance(" ") if run.text[:1] == " " and body.strip() else 0.0
            start, width = QPointF(left + indent, base + 4.5), run.width - indent - 0.5
            underline(painter, self._theme, token.drafter, start, width)

    def _paint_round(self, painter: QPainter) -> None:
        """Paint the token that is looked at on a tint, and an outline around its round."""
        colors = self._theme.colors
        tint = QColor(colors.accent)
        tint.setAlpha(_TINT)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(tint)
        for span in self._lines.spans(range(self.token, self.token + 1)):
            painter.drawRoundedRect(self._box(span, 1), 3, 3)
        if self._pointed is not None and self.current >= 0:
            self._paint_cursor(painter)
        traced = self._trace.round_of(self.token)
        if traced is None and not self.hasFocus():
            return
        first, count = (traced.first, traced.count) if traced else (self.token, 1)  # an outline shows the focus too
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(colors.accent if self.hasFocus() else colors.muted, 1.2))
        for span in self._lines.spans(range(first, first + count)):
            painter.drawRoundedRect(self._box(span, 2.5), 5, 5)

    def _paint_cursor(self, painter: QPainter) -> None:
        """Mark the cursor's place while the pointer looks elsewhere."""
        line, left, _ = self._lines.spans(range(self.current, self.current + 1))[0]
        painter.setPen(QPen(self._theme.colors.accent, 1.5))
        x, top = MEDIUM + left, self._top_of(line)
        painter.drawLine(QPointF(x, top + 5), QPointF(x, top + self._line_height - 5))

    def _box(self, span: tuple[int, float, float], margin: float) -> QRectF:
        line, left, right = span
        run = next(run for run in self._lines.lines[line] if run.x == left)
        if run.text[:1] == " ":
            left += self._metrics.horizontalAdvance(" ") / 2 + margin  # clear of the letter before the space
        top = self._top_of(line)
        return QRectF(MEDIUM + left - margin, top + 2, right - left + 2 * margin, self._line_height - 4)
