"""The tokens of a reply as running text, underlined by drafter, with an outline around the current round."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import cast

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextLine,
)
from PySide6.QtWidgets import QFrame

from rdchat.chat.reply_trace import ReplyTrace, TracedToken
from rdchat.inference.api.requests import Mode
from rdchat.ui.drafts.words import LINE_BREAK, NO_CHARACTER, ink, token_words
from rdchat.ui.look.opening import announce
from rdchat.ui.look.plain_text import OfflineBrowser
from rdchat.ui.look.theme import MEDIUM, Theme

_LEADING = 155.0  # line height in percent, so that underlines and outlines have room
_TINT = 40  # opacity of 255
_TAB = "    "
_Line = QTextCharFormat.UnderlineStyle
_UNDERLINES = {
    "": _Line.NoUnderline,
    Mode.SPECULATIVE.value: _Line.SingleUnderline,
    Mode.DRAFTER.value: _Line.DashUnderline,
    Mode.LOOKUP.value: _Line.DotLine,
}
_BREAK = re.compile("([\n\u2029\ufdd0\ufdd1])")  # what Qt begins a new line at


class TokenView(OfflineBrowser):
    """Shows a trace. The token shown elsewhere is the one under the pointer, else the cursor's; arrow keys move it.

    Attributes:
        current: The cursor's token; -1 if there is none.
    """

    looked_at = Signal(int)  # the token; emitted again when more of it becomes known
    cursor_moved = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._trace = ReplyTrace()
        self._pointed: int | None = None
        self._ends = [0]  # positions in the document: token n is at _ends[n] to _ends[n + 1]
        self.current = -1
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.NoTextInteraction)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Tokens of the reply")
        self.setUndoRedoEnabled(False)
        self.document().setDocumentMargin(MEDIUM)
        self.viewport().setMouseTracking(True)
        self.viewport().setCursor(Qt.CursorShape.IBeamCursor)
        self.verticalScrollBar().valueChanged.connect(lambda: self._point_at(None))
        theme.changed.connect(self._write_all)

    # --- content

    def show_trace(self, trace: ReplyTrace, cursor: int | None = None) -> None:
        """Show a trace.

        Args:
            trace: Not changed afterwards.
            cursor: The token that the cursor goes to; -1 is the last one. None where the trace shown before has grown
                or ended: a cursor on the last token, and a view scrolled to the end, then stay at the end.
        """
        bar, shown, last = self.verticalScrollBar(), self._trace.tokens, len(trace.tokens) - 1
        place, at_end = bar.value(), bar.value() >= bar.maximum() - 2
        follows = self.current == len(shown) - 1
        self._trace, self._pointed = trace, None
        if cursor is None and trace.tokens[: len(shown)] == shown:
            self._write(trace.tokens[len(shown) :])
        else:
            self._write_all()
        if cursor is None:
            self.current = last if follows else min(self.current, last)
            bar.setValue(bar.maximum() if at_end else place)
        else:
            self.current = last if cursor < 0 else min(cursor, last)
            self._reveal_cursor()
        self._update()

    @property
    def token(self) -> int:
        """The token under the pointer, else the cursor's; -1 if there is none."""
        return self.current if self._pointed is None else self._pointed

    def move_to(self, token: int) -> None:
        """Put the cursor on a token and bring it into view."""
        if 0 <= token < len(self._trace.tokens):
            moved = token != self.current
            self._pointed, self.current = None, token
            self._reveal_cursor()
            self._update()
            if moved:
                self.cursor_moved.emit(token)

    def _update(self) -> None:
        self.viewport().update()
        if 0 <= self.current < len(self._trace.tokens):
            self.setAccessibleDescription(token_words(self._trace, self.current))
        self.looked_at.emit(self.token)

    def _write_all(self) -> None:
        self.setFont(self._theme.body_font())
        self.clear()
        lines = QTextBlockFormat()
        lines.setLineHeight(_LEADING, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        QTextCursor(self.document()).setBlockFormat(lines)
        self._ends = [0]
        self._write(self._trace.tokens)

    def _write(self, tokens: Iterable[TracedToken]) -> None:
        muted = _format(self._theme.colors.muted)
        formats = {drafter: _format(ink(self._theme, drafter), line) for drafter, line in _UNDERLINES.items()}
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.beginEditBlock()
        for token in tokens:
            text = token.text.replace("\r", "").replace("\t", _TAB)
            for part in filter(None, _BREAK.split(text)):
                if _BREAK.fullmatch(part):
                    cursor.insertText(f"{LINE_BREAK}\n", muted)
                else:
                    word = part.lstrip(" ") or part
                    cursor.insertText(part[: len(part) - len(word)], muted)  # spaces before it are not underlined
                    cursor.insertText(word, formats[token.drafter])
            if not text:
                cursor.insertText(NO_CHARACTER, muted)
            self._ends.append(cursor.position())
        cursor.endEditBlock()

    # --- geometry

    def _boxes(self, first: int, last: int) -> list[QRectF]:
        """Return the rectangle that some tokens cover on each line, without leading spaces, in the viewport."""
        document, found = self.document(), list[QRectF]()
        start, end = self._ends[first], self._ends[last + 1]
        block = document.findBlock(start)
        while block.isValid() and block.position() < end:
            origin = document.documentLayout().blockBoundingRect(block).topLeft()
            origin -= QPointF(0, self.verticalScrollBar().value())
            layout, offset = block.layout(), block.position()
            low, high = max(start - offset, 0), min(end - offset, block.length() - 1)
            lines = [layout.lineForTextPosition(place).lineNumber() for place in (low, max(low, high - 1))]
            for line in map(layout.lineAt, range(lines[0], lines[1] + 1)):
                left = max(low, line.textStart())
                right = min(high, line.textStart() + line.textLength())
                while left < right - (offset + right == end) and document.characterAt(offset + left) == " ":
                    left += 1
                if left < right:
                    found.append(_between(line, left, right).translated(origin))
            block = block.next()
        return found

    def _token_at(self, place: QPoint) -> int | None:
        """Return the token at a place, the nearest one beside a line; None below the text."""
        if not self._trace.tokens or place.y() + self.verticalScrollBar().value() > self.document().size().height():
            return None
        cursor = self.cursorForPosition(place)
        before = not cursor.atBlockStart() and self.cursorRect(cursor).left() > place.x()
        return min(max(bisect_right(self._ends, cursor.position() - before) - 1, 0), len(self._trace.tokens) - 1)

    def _reveal_cursor(self) -> None:
        if self.current >= 0:
            bar, box = self.verticalScrollBar(), self._boxes(self.current, self.current)[0]
            top, bottom = box.top() + bar.value() - 2 * MEDIUM, box.bottom() + bar.value() + 2 * MEDIUM
            bar.setValue(round(max(min(bar.value(), top), bottom - self.viewport().height())))

    def resizeEvent(self, event: QResizeEvent) -> None:
        bar = self.verticalScrollBar()
        at_end = 0 < bar.maximum() <= bar.value() + 2
        super().resizeEvent(event)
        if at_end:
            bar.setValue(bar.maximum())

    # --- input

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point_at(self._token_at(event.position().toPoint()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if (token := self._token_at(event.position().toPoint())) is not None:
            self.move_to(token)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Leave:
            self._point_at(None)
        return super().viewportEvent(event)

    def _point_at(self, token: int | None) -> None:
        if token != self._pointed:
            self._pointed = token
            self.viewport().update()
            self.looked_at.emit(self.token)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        last, key = len(self._trace.tokens) - 1, Qt.Key(event.key())
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Home: -last, Qt.Key.Key_End: last}
        rounds = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
        modified = bool(event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier)
        if last < 0 or modified or key not in steps | rounds:
            super().keyPressEvent(event)  # pages scroll
            return
        token = self._round_step(rounds[key]) if key in rounds else self.current + steps[key]
        self.move_to(min(max(token, 0), last))
        announce(self)

    def _round_step(self, step: int) -> int:
        """Return the first token of the next or previous round; outside of rounds, a token on the next line."""
        tokens, traced = self._trace.tokens, self._trace.round_of(self.current)
        if traced is None:
            box = self._boxes(self.current, self.current)[0]
            found = self._token_at((box.topLeft() + QPointF(1, (step + 0.5) * box.height())).toPoint())
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
        if 0 <= self.token < len(self._ends) - 1:
            self._paint_round(painter)
        painter.end()
        super().paintEvent(event)  # the text

    def _paint_round(self, painter: QPainter) -> None:
        """Paint a tint behind the token that is looked at, and an outline around its round."""
        accent = self._theme.colors.accent
        tint = QColor(accent)
        tint.setAlpha(_TINT)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(tint)
        for box in self._boxes(self.token, self.token):
            painter.drawRoundedRect(box.adjusted(-1, 1, 1, 2), 3, 3)
        if self._pointed is not None and self.current >= 0:  # the cursor's place, while the pointer is elsewhere
            painter.setPen(QPen(accent, 1.5))
            box = self._boxes(self.current, self.current)[0]
            painter.drawLine(box.topLeft() + QPointF(0, 6), box.bottomLeft())
        traced = self._trace.round_of(self.token)
        if traced is None and not self.hasFocus():
            return
        first, last = (traced.first, traced.first + traced.count - 1) if traced else (self.token, self.token)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(accent if self.hasFocus() else self._theme.colors.muted, 1.2))
        for box in self._boxes(first, min(last, len(self._ends) - 2)):
            painter.drawRoundedRect(box.adjusted(-2.5, 0, 2.5, 2.5), 5, 5)


def _between(line: QTextLine, left: int, right: int) -> QRectF:
    """Return the rectangle between two positions of a line's text, in its block."""
    (begins, _), (ends, _) = (cast("tuple[float, int]", line.cursorToX(place)) for place in (left, right))
    return QRectF(begins, line.y(), ends - begins, line.height()).normalized()


def _format(color: QColor, line: _Line = _Line.NoUnderline) -> QTextCharFormat:
    found = QTextCharFormat()
    found.setForeground(color)
    found.setUnderlineStyle(line)
    return found
