"""The window of one reply: its tokens as running text, the details of one token, and the draft tree of its round.

Each token is underlined in the style of its drafter, and the tokens of the current round are tinted.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable

from PySide6.QtCore import QEvent, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QHideEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPalette,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
)
from PySide6.QtWidgets import QFrame, QWidget

from rdchat.chat.reply_trace import ReplyTrace, TracedToken
from rdchat.services.chat.reply_recorder import TraceRecorder
from rdchat.ui.drafts.tree_view import (
    LINE_BREAK,
    NO_CHARACTER,
    STYLES,
    Alternative,
    TreeView,
    alternatives,
    position_text,
    probability,
    round_text,
    spelt,
    token_text,
    tree_text,
)
from rdchat.ui.speed.sections import FigureRow
from rdchat.ui.style import (
    LEGENDS,
    MEDIUM,
    RING,
    SMALL,
    TIGHT,
    TOKEN_FACTS,
    ElidedLabel,
    Ground,
    IconButton,
    OfflineBrowser,
    Part,
    Separator,
    SideWindow,
    Theme,
    ThemedLabel,
    Throttle,
    WholeArea,
    announce,
    column,
    formatting,
    paint_focus,
    row,
    scaled,
    scrolled,
    set_role,
    set_tip,
    show_in_front,
    small_text,
    splitter,
    text_look,
)
from rdchat.ui.transcript.markdown.text_body import marked
from rdchat.wording import counted

# The line height in percent leaves room for underlines.
_LEADING = 155.0
# Opacity of the background of a token and of a round, of 255.
_TINT = 60
_ROUND_TINT = 28
_TAB = "    "
_ROUND_STEPS = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
# Characters at which Qt begins a new line.
_BREAK = re.compile("([\n\u2029\ufdd0\ufdd1])")
_NOT_RECORDED = "The tokens of this reply were not recorded."
_NO_TREE = "The draft of this step was not recorded."
_NO_DRAFT = "Nothing was drafted here. The model wrote this token alone."


class TokenView(OfflineBrowser):
    """Shows a trace. The arrow keys and a click move the cursor, which is on one token.

    The token that is looked at (`token`) is the one under the pointer, else the cursor's.

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

    def show_trace(self, trace: ReplyTrace, cursor: int | None) -> None:
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
        at_end = value >= bar.maximum() - 2
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
        if self.current >= 0:
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
        """Write tokens at the end of the text, in the colours of their drafters, and note where each ends."""
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
        """Return the token at a point, the nearest one next to a line; None below the text.

        Qt gives the gap between two characters that is nearest to the point. If it is right of the point, the character
        before it is meant.
        """
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
        # The first token, the last one, and the opacity.
        spans: list[tuple[int, int, int]] = []
        last = len(self._trace.tokens) - 1
        if self.token >= 0:
            if (traced := self._trace.round_of(self.token)) is not None:
                spans.append((traced.first, min(traced.first + traced.count - 1, last), _ROUND_TINT))
            spans += [(token, token, _TINT) for token in {self.current, self.token} if token >= 0]
        color = QColor(self._theme.colors.accent if self.hasFocus() else self._theme.colors.muted)
        selections = []
        for first, end, opacity in spans:
            color.setAlpha(opacity)
            selections.append(marked(self, self._ends[first], self._ends[end + 1], text_look(ground=color)))
        self.setExtraSelections(selections)


class TokenDetails(WholeArea):
    """Shows one token of a trace."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.setAccessibleName("Details of the token")
        self.setViewportMargins(RING, RING, RING, RING)
        self.token = ElidedLabel(theme, points_more=6, bold=True)
        self.number = ThemedLabel(theme, "", "muted", tabular=True)
        self.rows = {name: FigureRow(theme, name, definition) for name, definition in TOKEN_FACTS.items()}
        self.candidates = ThemedLabel(theme, "Candidates for this position", points_more=-0.5, bold=True)
        set_tip(self.candidates, "The tokens drafted for this position, each with its probability for the model.")
        self.alternatives: list[FigureRow] = []
        self._alternatives = column(spacing=TIGHT)
        counts = ThemedLabel(theme, "Tokens by drafter", points_more=-0.5, bold=True)
        self.legend = {
            drafter: FigureRow(theme, f"{style.line} {style.name}".strip(), LEGENDS["Tokens"], style.role)
            for drafter, style in STYLES.items()
        }
        ground = Ground(theme, "window")
        rows: list[Part] = [self.token, self.number, SMALL, *self.rows.values(), SMALL]
        rows += [self.candidates, self._alternatives, SMALL, Separator(theme), TIGHT, counts]
        column(*rows, *self.legend.values(), None, within=ground, spacing=TIGHT + 2, margins=MEDIUM)
        scrolled(ground, self)
        # With the focus, keys scroll it.
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() in {QEvent.Type.FocusIn, QEvent.Type.FocusOut}:
            self.update()
        elif event.type() is QEvent.Type.Paint and self.hasFocus():
            ring = self.viewport().geometry().adjusted(-RING, -RING, RING, RING)
            paint_focus(QPainter(self), QRectF(ring), self._theme.colors.accent)
        return done

    def minimumSizeHint(self) -> QSize:
        # Wider than nearly all tokens need: otherwise the text would move beside the pointer.
        return super().minimumSizeHint().expandedTo(QSize(scaled(210), 0))

    def show_token(self, trace: ReplyTrace, index: int) -> None:
        """Show one token; -1 if there is none."""
        known = 0 <= index < len(trace.tokens)
        token = trace.tokens[index] if known else TracedToken(0, "")
        self.token.setText(spelt(token.text) if known else "")
        set_tip(self.token, "" if token.text or not known else "Part of a character, or the token that ends the reply")
        self.number.setText(f"Token {index + 1:,} of {len(trace.tokens):,}" if known else "No token yet")
        values = (
            probability(token.log_prob),
            STYLES[token.drafter].name if token.drafter else "Not drafted",
            f"{token.round:,} of {len(trace.rounds):,}" if token.round else "None",
            position_text(token),
        )
        for figure, value in zip(self.rows.values(), values, strict=True):
            figure.show_value(value if known else formatting.NONE)
        others = alternatives(trace, index) if known else []
        self._show_alternatives(others)
        self.candidates.setVisible(bool(others))

    def _show_alternatives(self, others: list[Alternative]) -> None:
        while self.alternatives:
            self.alternatives.pop().deleteLater()
        for each in others:
            name = f"{'✓ ' if each.taken else ''}{spelt(each.text)}"
            figure = FigureRow(self._theme, name, _row_text(each), STYLES[each.drafter].role)
            figure.show_value(probability(each.log_prob))
            self.alternatives.append(figure)
            self._alternatives.addWidget(figure)

    def show_counts(self, trace: ReplyTrace) -> None:
        """Show how many tokens each drafter drafted; drafters without a token are left out, the target is not."""
        counts = Counter(token.drafter for token in trace.tokens)
        for drafter, figure in self.legend.items():
            figure.show_value(f"{counts[drafter]:,}")
            figure.setVisible(not drafter or counts[drafter] > 0)


class DraftsWindow(SideWindow):
    """Shows one reply: its tokens, beside them the details of one token, and below them the tree of its round."""

    def __init__(self, traces: TraceRecorder, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Tokens and Drafts", (900, 680), (480, 380), parent)
        self._traces = traces
        self._message_id = 0
        self._trace = ReplyTrace()
        self.note = small_text(theme, wraps=False)
        self.tokens = TokenView(theme)
        self.details = TokenDetails(theme)
        self.heading = ElidedLabel(theme, bold=True)
        self.previous = IconButton("previous", "Previous draft", theme, act=lambda: self._step(-1))
        self.next = IconButton("next", "Next draft", theme, act=lambda: self._step(1))
        self.tree = TreeView(theme)
        self.tree_legend = small_text(theme, LEGENDS["Tree"])
        self.tree_legend.setContentsMargins(MEDIUM, 0, MEDIUM, SMALL)
        self._throttle = Throttle(self, lambda: self._load() if self.isVisible() else None)
        self._lay_out()
        self.tokens.looked_at.connect(lambda token: self.details.show_token(self._trace, token))
        self.tokens.cursor_moved.connect(self._show_round)
        for view in (self.tree, self.tokens):
            view.step_requested.connect(self._step)
        for changed in (traces.tokens_added, traces.trace_ended):
            changed.connect(self._on_tokens)

    def _lay_out(self) -> None:
        above = splitter(Qt.Orientation.Horizontal, (self.tokens, 600), (self.details, 240))
        above.setStretchFactor(0, 1)
        heading = row((self.heading, 1), self.previous, self.next, margins=(MEDIUM, SMALL, MEDIUM, 0))
        below = QWidget()
        column(heading, (self.tree, 1), self.tree_legend, within=below)
        views = splitter(Qt.Orientation.Vertical, (above, 400), (below, 260))
        self.note.setContentsMargins(MEDIUM, SMALL, MEDIUM, SMALL)
        column(self.note, (views, 1), within=self, spacing=0)

    def show_reply(self, message_id: int) -> None:
        """Show a reply: one that is being written from its last token, which it follows, else from its first draft."""
        self._message_id = message_id
        # The window is shown first, so that the text is laid out once, at the final width.
        show_in_front(self)
        live = self._traces.is_live(message_id)
        self._load(-1 if live else 0)
        if not live:
            drafted = (each.first for each in self._trace.rounds if each.tree is None or len(each.tree.tokens) > 1)
            self.tokens.move_to(next(drafted, 0))
        self.tokens.setFocus()

    def hideEvent(self, event: QHideEvent) -> None:
        """Free the trace, which may be large, when the window is closed."""
        super().hideEvent(event)
        # The event is spontaneous when the window is minimised.
        if not event.spontaneous():
            self._show(ReplyTrace(), -1)

    def _load(self, cursor: int | None = None) -> None:
        """Show the present trace, with the cursor on a token (-1: the last); None keeps the cursor where it is."""
        trace = self._traces.trace(self._message_id)
        if cursor is None and not self._trace.tokens:
            # Nothing was recorded until now.
            cursor = -1
        self._show(trace or ReplyTrace(), cursor)
        if trace is None:
            self.note.show_text(_NOT_RECORDED)

    def _show(self, trace: ReplyTrace, cursor: int | None) -> None:
        self._trace = trace
        lost = counted(trace.missing, "character was", "characters were")
        self.note.show_text(f"{lost} not recorded" if trace.missing else "")
        self.details.show_counts(trace)
        self.tokens.show_trace(trace, cursor)
        self._show_round()

    def _on_tokens(self, message_id: int) -> None:
        if message_id == self._message_id and self.isVisible():
            self._throttle.note()

    def _step(self, rounds: int) -> None:
        """Go some rounds on from the current one, or from the cursor to the nearest one."""
        if number := self._number_after(rounds):
            self.tokens.move_to(self._trace.rounds[number - 1].first)

    def _number_after(self, rounds: int) -> int:
        """Return the number of the round that is so many rounds after the cursor (before, if negative); 0 without one.

        Rounds are numbered from 1. A cursor outside of rounds is between two of them.
        """
        cursor = self.tokens.current
        trace = self._trace
        number = trace.tokens[cursor].round if trace.tokens else 0
        if not number:
            # Steps forward count from the round before the cursor, steps back from the one behind it.
            number = sum(each.first <= cursor for each in trace.rounds) + (rounds < 0)
        number += rounds
        return number if 1 <= number <= len(trace.rounds) else 0

    def _show_round(self) -> None:
        """Show the round of the cursor's token."""
        cursor = self.tokens.current
        number = self._trace.tokens[cursor].round if cursor >= 0 else 0
        self.tree_legend.setVisible(number > 0)
        self.previous.setEnabled(self._number_after(-1) > 0)
        self.next.setEnabled(self._number_after(1) > 0)
        if not number:
            self.heading.setText("")
            self.tree.show_tree(None, _NO_DRAFT, _NO_DRAFT)
            return
        self.heading.setText(round_text(self._trace, number))
        tree = self._trace.rounds[number - 1].tree
        self.tree.show_tree(tree, tree_text(self._trace, number), _NO_TREE)


def _row_text(row: Alternative) -> str:
    taken = ", taken" if row.taken else ""
    return f"{spelt(row.text)} {probability(row.log_prob)}, {STYLES[row.drafter].name}{taken}"
