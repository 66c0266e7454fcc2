"""The tokens of a reply as running text, underlined by drafter, with the current round tinted."""

import re
from bisect import bisect_right
from collections.abc import Iterable

from PySide6.QtCore import QEvent, QPoint, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QKeyEvent,
    QMouseEvent,
    QPalette,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
)
from PySide6.QtWidgets import QFrame

from rdchat.chat.reply_trace import ReplyTrace, TracedToken
from rdchat.ui.drafts.texts import LINE_BREAK, NO_CHARACTER, STYLES, token_text
from rdchat.ui.style.labels import OfflineBrowser
from rdchat.ui.style.opening import announce
from rdchat.ui.style.theme import MEDIUM, Theme, set_role, text_look
from rdchat.ui.transcript.markdown.hit_marks import marked

# The line height in percent leaves room for underlines.
_LEADING = 155.0
# Opacity of the background of a token and of a round, of 255.
_TINT = 60
_ROUND_TINT = 28
_TAB = "    "
_ROUND_STEPS = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
# Characters at which Qt begins a new line.
_BREAK = re.compile("([\n\u2029\ufdd0\ufdd1])")


class TokenView(OfflineBrowser):
    """Shows a trace. The current token is the one under the pointer, else the cursor's; arrow keys move the cursor.

    Attributes:
        current: The cursor's token; -1 if there is none.
    """

    # A token is looked at, or more of it has become known.
    looked_at = Signal(int)
    cursor_moved = Signal(int)
    # The person steps some rounds forward, or back if negative.
    step_requested = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._trace = ReplyTrace()
        self._pointed: int | None = None
        # Token n has the positions _ends[n] to _ends[n + 1] in the document.
        self._ends = [0]
        self.current = -1
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.NoTextInteraction)
        self.setAccessibleName("Tokens of the reply")
        self.document().setDocumentMargin(MEDIUM)
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
        bar = self.verticalScrollBar()
        written = self._trace.tokens
        last = len(trace.tokens) - 1
        value = bar.value()
        at_end = bar.value() >= bar.maximum() - 2
        follows = self.current == len(written) - 1
        self._trace = trace
        self._pointed = None
        if cursor is None and trace.tokens[: len(written)] == written:
            self._write(trace.tokens[len(written) :])
        else:
            self._write_all()
        if cursor is None:
            self.current = last if follows else min(self.current, last)
            bar.setValue(bar.maximum() if at_end else value)
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
            self._pointed = None
            self.current = token
            self._reveal_cursor()
            self._update()
            if moved:
                self.cursor_moved.emit(token)

    def _update(self) -> None:
        self._mark()
        if 0 <= self.current < len(self._trace.tokens):
            self.setAccessibleDescription(token_text(self._trace, self.current))
        self.looked_at.emit(self.token)

    def _write_all(self) -> None:
        self.setFont(self._theme.body_font())
        set_role(self, QPalette.ColorRole.Base, self._theme.colors.surface)
        self.clear()
        lines = QTextBlockFormat()
        lines.setLineHeight(_LEADING, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        QTextCursor(self.document()).setBlockFormat(lines)
        self._ends = [0]
        self._write(self._trace.tokens)

    def _write(self, tokens: Iterable[TracedToken]) -> None:
        colors = self._theme.colors
        muted = text_look(colors.muted)
        formats = dict[str, QTextCharFormat]()
        for drafter, style in STYLES.items():
            formats[drafter] = text_look(getattr(colors, style.role))
            formats[drafter].setUnderlineStyle(style.underline)
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
                    # Spaces before it are not underlined.
                    cursor.insertText(part[: len(part) - len(word)], muted)
                    cursor.insertText(word, formats[token.drafter])
            if not text:
                cursor.insertText(NO_CHARACTER, muted)
            self._ends.append(cursor.position())
        cursor.endEditBlock()

    # --- positions in the document

    def _token_at(self, point: QPoint) -> int | None:
        """Return the token at a point, the nearest one next to a line; None below the text."""
        if not self._trace.tokens or point.y() + self.verticalScrollBar().value() > self.document().size().height():
            return None
        cursor = self.cursorForPosition(point)
        before = not cursor.atBlockStart() and self.cursorRect(cursor).left() > point.x()
        return min(max(bisect_right(self._ends, cursor.position() - before) - 1, 0), len(self._trace.tokens) - 1)

    def _reveal_cursor(self) -> None:
        if self.current >= 0:
            start = QTextCursor(self.document())
            start.setPosition(self._ends[self.current])
            bar = self.verticalScrollBar()
            box = self.cursorRect(start)
            top = box.top() + bar.value() - 2 * MEDIUM
            bottom = box.bottom() + bar.value() + 2 * MEDIUM
            bar.setValue(max(min(bar.value(), top), bottom - self.viewport().height()))

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
            self._mark()
            self.looked_at.emit(self.token)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        last = len(self._trace.tokens) - 1
        key = Qt.Key(event.key())
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Home: -last, Qt.Key.Key_End: last}
        modified = bool(event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier)
        if last < 0 or modified or key not in {*steps, *_ROUND_STEPS}:
            # The page keys scroll.
            super().keyPressEvent(event)
            return
        if key in _ROUND_STEPS:
            self.step_requested.emit(_ROUND_STEPS[key])
        else:
            self.move_to(min(max(self.current + steps[key], 0), last))
        announce(self)

    # --- marks

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() in {QEvent.Type.FocusIn, QEvent.Type.FocusOut}:
            self._mark()
        return done

    def _mark(self) -> None:
        """Tint the round of the token that is looked at, the cursor's token, and the token that is looked at."""
        spans: list[tuple[int, int, int]] = []
        last = len(self._ends) - 2
        if 0 <= self.token <= last:
            if (traced := self._trace.round_of(self.token)) is not None:
                spans.append((traced.first, min(traced.first + traced.count - 1, last), _ROUND_TINT))
            spans += [(token, token, _TINT) for token in {self.current, self.token} if token >= 0]
        color = QColor(self._theme.colors.accent if self.hasFocus() else self._theme.colors.muted)
        selections = []
        for first, end, opacity in spans:
            color.setAlpha(opacity)
            selections.append(marked(self, self._ends[first], self._ends[end + 1], text_look(ground=color)))
        self.setExtraSelections(selections)
