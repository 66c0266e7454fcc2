"""The pane beside the tokens: the details of one token, and what was drafted in its place."""

from PySide6.QtCore import QEvent, QRectF, Qt
from PySide6.QtGui import QFocusEvent, QPainter
from PySide6.QtWidgets import QFrame, QScrollArea

from rdchat.chat.reply_trace import ReplyTrace
from rdchat.ui.drafts.words import (
    DASHES,
    LINE_WIDTH,
    Alternative,
    alternatives,
    drafter_words,
    ink,
    position_words,
    probability,
    probability_of,
    spelt,
)
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import ElidedLabel, Ground, Separator, ThemedLabel
from rdchat.ui.look.layouts import column
from rdchat.ui.look.painting import RING, paint_focus
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme, control_font
from rdchat.ui.plots.drawing import Box, Drawing
from rdchat.ui.plots.plot_view import Chart
from rdchat.ui.speed.sections import FigureRow

_MOST_ROWS = 8
_ROW, _MARK = 24.0, 16.0  # height of a row, width of its check mark


class AlternativeList(Chart):
    """A row for each drafted token: its text, and the target's probability as a figure and a bar."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Alternatives")
        self.setFont(control_font(tabular=True))
        self._rows: list[Alternative] = []

    def show_rows(self, rows: list[Alternative]) -> None:
        self._rows = rows
        self.redraw("; ".join(map(_row_words, rows)))

    def draw(self, drawing: Drawing) -> None:
        for row in self._rows[:_MOST_ROWS]:
            box = Box(0, drawing.height, drawing.width, _ROW)
            self._draw_row(drawing, row, box)
            drawing.mark(box, _row_words(row))
            drawing.height += _ROW
        if more := len(self._rows[_MOST_ROWS:]):
            drawing.text(Box(0, drawing.height, drawing.width, _ROW), f"and {more} more", "muted")
            drawing.height += _ROW

    def _draw_row(self, drawing: Drawing, row: Alternative, box: Box) -> None:
        figure, color = probability_of(row.probability), ink(self.theme, row.drafter).name()
        room, base = drawing.width - _MARK, box.y + _ROW - 5
        words = Box(_MARK, box.y, room - drawing.width_of(figure) - SMALL, _ROW - 6)
        if row.taken:
            drawing.text(Box(0, box.y, _MARK, _ROW - 6), "✓")
        drawing.text(words, spelt(row.text), color)
        drawing.text(Box(_MARK, box.y, room, _ROW - 6), figure, "text" if row.taken else "muted", align="right")
        drawing.line([(_MARK, base), (drawing.width, base)])
        end = _MARK + row.probability * room
        drawing.line([(_MARK, base), (end, base)], color, LINE_WIDTH, DASHES[row.drafter])


class TokenDetails(QScrollArea):
    """Shows one token of a trace."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)  # keys scroll it
        self.setAccessibleName("Details of the token")
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
        heading = ThemedLabel(theme, "The draft had here", points_more=-0.5, bold=True)
        set_tip(heading, "What was offered at this place, with the model's own probability of each.")
        self.alternatives = AlternativeList(theme)
        self.none = ThemedLabel(theme, "", "muted", -1, wraps=True)
        ground = Ground(theme, "window")
        column(
            *(self.token, self.place, SMALL),
            *(self.probability, self.drafter, self.round, self.position, SMALL),
            *(Separator(theme), TIGHT, heading, self.alternatives, self.none, None),
            within=ground,
            spacing=TIGHT + 2,
            margins=MEDIUM,
        )
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
        """Show one token; -1 if there is none."""
        if not 0 <= place < len(trace.tokens):
            for figure in (self.probability, self.drafter, self.round, self.position):
                figure.show_value(formatting.NONE)
            self.token.setText("")
            self.place.setText("No token yet")
            self.alternatives.show_rows([])
            self.none.setText("")
            return
        token = trace.tokens[place]
        self.token.setText(spelt(token.text))
        set_tip(self.token, "" if token.text else "Half a character, or the token that ends the reply")
        self.place.setText(f"Token {place + 1:,} of {len(trace.tokens):,}")
        self.probability.show_value(probability(token.log_prob))
        self.drafter.show_value(drafter_words(token.drafter) if token.drafter else "Not drafted")
        self.round.show_value(f"{token.round:,} of {len(trace.rounds):,}" if token.round else "None")
        self.position.show_value(position_words(token))
        rows = alternatives(trace, place)
        self.alternatives.show_rows(rows)
        self.none.setText("" if rows else _why_none(trace, place))


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
