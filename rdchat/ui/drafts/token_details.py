"""The pane beside the tokens: what is known of the one that is looked at."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFocusEvent, QFontMetricsF, QHelpEvent, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from rdchat.chat.reply_trace import ReplyTrace
from rdchat.ui.drafts.drafter_marks import drafter_words, ink, underline
from rdchat.ui.drafts.words import (
    Alternative,
    alternatives,
    position_words,
    probability,
    probability_of,
    spelt,
)
from rdchat.ui.look.focus import RING, paint_focus
from rdchat.ui.look.labels import ElidedLabel, Ground, Separator, ThemedLabel
from rdchat.ui.look.plain_text import set_tip, show_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme, control_font
from rdchat.ui.speed.section import FigureRow

_MOST_ROWS = 8
_AIR = 9.0  # pixels that a row is higher than its text


class AlternativeList(QWidget):
    """A row for each token that the draft had at a place: its text, the target's probability as a bar and a figure."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._rows: list[Alternative] = []
        self._more = 0
        self.setFont(control_font(tabular=True))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Alternatives")
        theme.changed.connect(self.update)

    def show_rows(self, rows: Sequence[Alternative]) -> None:
        self._rows, self._more = list(rows[:_MOST_ROWS]), max(0, len(rows) - _MOST_ROWS)
        self.setAccessibleDescription("; ".join(map(_row_words, rows)))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(120, round((len(self._rows) + bool(self._more)) * self._row_height))

    @property
    def _row_height(self) -> float:
        return QFontMetricsF(self.font()).height() + _AIR

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            place = int(event.pos().y() // self._row_height)
            words = _row_words(self._rows[place]) if place < len(self._rows) else ""
            show_tip(event.globalPos(), words, self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for place, row in enumerate(self._rows):
            self._paint_row(painter, row, place * self._row_height)
        if self._more:
            painter.setPen(self._theme.colors.muted)
            area = QRectF(0, len(self._rows) * self._row_height, self.width(), self._row_height)
            painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, f"and {self._more} more")

    def _paint_row(self, painter: QPainter, row: Alternative, top: float) -> None:
        colors, metrics = self._theme.colors, QFontMetricsF(self.font())
        base = top + metrics.ascent() + 3
        figure = probability_of(row.probability)
        mark = metrics.horizontalAdvance("✓ ")
        room = self.width() - mark - metrics.horizontalAdvance(figure) - SMALL
        text = metrics.elidedText(spelt(row.text), Qt.TextElideMode.ElideRight, room)
        if row.taken:
            painter.setPen(colors.text)
            painter.drawText(QPointF(0, base), "✓")
        painter.setPen(ink(self._theme, row.drafter))
        painter.drawText(QPointF(mark, base), text)
        painter.setPen(colors.text if row.taken else colors.muted)
        painter.drawText(QPointF(self.width() - metrics.horizontalAdvance(figure), base), figure)
        line = top + self._row_height - 5
        painter.fillRect(QRectF(mark, line, self.width() - mark, 1), colors.border)
        width = row.probability * (self.width() - mark)
        if row.drafter:
            underline(painter, self._theme, row.drafter, QPointF(mark, line), width)
        else:
            painter.fillRect(QRectF(mark, line - 0.8, width, 1.6), QColor(colors.text))


class TokenDetails(QScrollArea):
    """Shows one token of a trace."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)  # keys scroll it
        self.setAccessibleName("The token that is looked at")
        self.setViewportMargins(RING, RING, RING, RING)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setMinimumWidth(190)
        self.token = ElidedLabel(theme, points_more=6, bold=True)
        self.place = ThemedLabel(theme, "", "muted", tabular=True)
        self.probability = FigureRow(
            theme,
            "Probability",
            "How likely the model itself took this token after the ones before it, before temperature and filters.",
        )
        self.drafter = FigureRow(theme, "Drafted by", "Who proposed the token, where it was drafted and accepted.")
        self.round = FigureRow(theme, "Round", "Number of the target call that verified the token.")
        self.position = FigureRow(
            theme, "Position", "The token's place in the draft; the last token of a round follows it."
        )
        self.heading = ThemedLabel(theme, "The draft had here", points_more=-0.5, bold=True)
        set_tip(self.heading, "What was offered at this place, with the model's own probability of each.")
        self.alternatives = AlternativeList(theme)
        self.none = ThemedLabel(theme, "", "muted", -1)
        self.none.setWordWrap(True)
        self._lay_out()

    def _lay_out(self) -> None:
        ground = Ground(self._theme, "window")
        column = QVBoxLayout(ground)
        column.setContentsMargins(MEDIUM, MEDIUM, MEDIUM, MEDIUM)
        column.setSpacing(TIGHT + 2)
        column.addWidget(self.token)
        column.addWidget(self.place)
        column.addSpacing(SMALL)
        for row in (self.probability, self.drafter, self.round, self.position):
            column.addWidget(row)
        column.addSpacing(SMALL)
        column.addWidget(Separator(self._theme))
        column.addSpacing(TIGHT)
        for widget in (self.heading, self.alternatives, self.none):
            column.addWidget(widget)
        column.addStretch(1)
        self.setWidget(ground)

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() is QEvent.Type.Paint and self.hasFocus():
            ring = self.viewport().geometry().adjusted(-RING, -RING, RING, RING)
            paint_focus(QPainter(self), QRectF(ring), self._theme)
        return done

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()

    def show_token(self, trace: ReplyTrace, place: int) -> None:
        """Show what is known of one token; -1 shows that there is none."""
        if not 0 <= place < len(trace.tokens):
            for figure in (self.probability, self.drafter, self.round, self.position):
                figure.show_value("\N{EN DASH}")
            self.token.setText("")
            self.place.setText("No token yet")
            self._show_alternatives([], "")
            return
        token = trace.tokens[place]
        self.token.setText(spelt(token.text))
        set_tip(self.token, "" if token.text else "Half a character, or the token that ends the reply")
        self.place.setText(f"Token {place + 1:,} of {len(trace.tokens):,}")
        self.probability.show_value(probability(token.log_prob))
        self.drafter.show_value(drafter_words(token.drafter) if token.drafter else "Not drafted")
        self.drafter.value.setForegroundRole(QPalette.ColorRole.WindowText)
        self.round.show_value(f"{token.round:,} of {len(trace.rounds):,}" if token.round else "None")
        self.position.show_value(position_words(token))
        self._show_alternatives(alternatives(trace, place), _why_none(trace, place))

    def _show_alternatives(self, rows: list[Alternative], why_none: str) -> None:
        self.alternatives.show_rows(rows)
        self.none.setText("" if rows else why_none)


def _row_words(row: Alternative) -> str:
    taken = ", taken" if row.taken else ""
    return f"{spelt(row.text)} {probability_of(row.probability)}, {drafter_words(row.drafter)}{taken}"


def _why_none(trace: ReplyTrace, place: int) -> str:
    traced = trace.round_of(place)
    if traced is None:
        return "Nothing: this token was decoded without a draft."
    if traced.tree is None:
        return "Not recorded." if traced is not trace.rounds[-1] else "Not known until the round ends."
    return "Nothing: the draft ended before this place."
