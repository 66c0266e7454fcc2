"""The speed panel's parts: rows of figures, sections that fold, the large figures, and where a reply's time went."""

from collections.abc import Mapping

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.shown_ledger import Spent, spent_ms
from rdchat.ui.look import definitions, formatting
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.definitions import stage_words
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.painting import paint_focus
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import SMALL, TIGHT, Theme, control_font
from rdchat.ui.speed.charts import Sparkline, Swatch, TimeBar

_CHEVRON = 12
_ROUNDING = 1e-9  # for ratios exactly as far from 1 as their error
_ALIKE = 0.02  # a ratio this close to 1 is neither a gain nor a loss, even with an exact baseline
_LEAST_MS = 0.5  # shorter times are not shown
_WHOLE = "From the request to the last token. The stages above sum up to it."


class FigureRow(QWidget):
    """One row: a name, and its value at the right edge."""

    def __init__(self, theme: Theme, name: str, definition: str, color: str = "muted") -> None:
        super().__init__()
        self._name = name
        self.value = ThemedLabel(theme, tabular=True)
        self.value.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.parts = row((ElidedLabel(theme, name, color), 1), self.value, within=self)  # the name gives way
        set_tip(self, definition)
        self.show_value(formatting.NONE)

    def show_value(self, words: str, more: str = "") -> None:
        """Show a value; `more` follows it for screen readers."""
        if words != self.value.text() or more:
            self.value.setText(words)
            self.value.setAccessibleName(f"{self._name}: {words}{more}")  # a bare figure would not say what it is


class SectionHead(QAbstractButton):
    """A heading that folds its section and unfolds it."""

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self._theme = theme
        self.setText(name)
        self.setCheckable(True)
        self.setChecked(True)
        self.setFont(control_font(-0.5, bold=True))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.toggled.connect(self._describe)
        theme.changed.connect(self.update)
        self._describe(True)

    def sizeHint(self) -> QSize:
        metrics = self.fontMetrics()
        return QSize(metrics.horizontalAdvance(self.text()) + SMALL + _CHEVRON, metrics.height() + TIGHT)

    def _describe(self, unfolded: bool) -> None:
        self.setAccessibleName(f"{self.text()}, {'unfolded' if unfolded else 'folded'}")
        set_tip(self, f"{'Fold' if unfolded else 'Unfold'} {self.text()}")

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setPen(colors.text)
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignVCenter, self.text())
        color = colors.text if self.underMouse() else colors.muted
        icon = "unfold" if self.isChecked() else "next"
        chevron = line_pixmap(icon, color, _CHEVRON, self.devicePixelRatioF())
        painter.drawPixmap(self.width() - _CHEVRON, (self.height() - _CHEVRON) // 2, chevron)
        if self.hasFocus():
            paint_focus(painter, QRectF(self.rect()), self._theme)


class Section(QWidget):
    """A heading with rows below it."""

    folded = Signal(str, bool)  # its name, whether the person folded or unfolded it

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.name = name
        self.theme = theme
        self.head = SectionHead(theme, name)
        body = QWidget()
        self._rows = column(within=body, spacing=TIGHT + 2)
        column(self.head, body, within=self, spacing=TIGHT + 2)
        self.head.toggled.connect(body.setVisible)
        self.head.clicked.connect(lambda unfolded: self.folded.emit(self.name, not unfolded))

    def add[W: QWidget](self, row: W, place: int = -1) -> W:
        """Add a row at a place from the top; -1 is the end."""
        self._rows.insertWidget(place, row)
        return row

    def add_figure(self, name: str, definition: str) -> FigureRow:
        return self.add(FigureRow(self.theme, name, definition))

    def fold(self, folded: bool) -> None:
        """Fold or unfold it without emitting `folded`."""
        self.head.setChecked(not folded)


class SpeedSection(QWidget):
    """Decoding speed beside plain decoding, acceptance rate and tokens per target call. It does not fold."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.decode = ThemedLabel(theme, formatting.NONE, points_more=13, bold=True, tabular=True)
        self.ratio = ThemedLabel(theme, "", points_more=5, bold=True, tabular=True)
        self.plain = FigureRow(theme, "Plain decoding", definitions.PLAIN)
        self.acceptance = Tile(theme, "Acceptance rate", definitions.ACCEPTANCE)
        self.per_call = Tile(theme, "Tokens per call", definitions.TOKENS_PER_CALL)
        self.sparkline = Sparkline(theme)
        unit = ElidedLabel(theme, "tokens/s", "muted")
        unit.setContentsMargins(0, 0, 0, 4)
        self.ratio.setContentsMargins(0, 0, 0, 2)
        head = row(self.decode, (unit, 1), self.ratio, spacing=TIGHT + 2)
        for part in (self.decode, unit, self.ratio):
            head.setAlignment(part, Qt.AlignmentFlag.AlignBottom)
        set_tip(self.decode, definitions.SPEED)
        set_tip(unit, definitions.SPEED)
        tiles = row((self.acceptance, 1), (self.per_call, 1))
        column(head, self.plain, TIGHT, tiles, self.sparkline, SMALL, within=self, spacing=TIGHT)

    def show_statistics(self, statistics: Statistics) -> None:
        decode = formatting.rate(statistics.decode_tps)
        self.decode.setText(decode)
        self.decode.setAccessibleName(f"Decode: {decode} tokens a second")
        self.decode.set_color("muted" if statistics.decode_tps is None else "text")
        # a reply decoded plainly is its own measure of plain decoding, and a fresher one
        self._show_ratio(statistics.speedup if statistics.rounds else None, statistics.speedup_error)
        self.plain.show_value(_plain_words(statistics))
        self.acceptance.show_value(formatting.percent(statistics.acceptance_rate))
        self.per_call.show_value(formatting.decimal(statistics.tokens_per_target_call))

    def _show_ratio(self, ratio: float | None, error: float) -> None:
        self.ratio.setVisible(ratio is not None)
        if ratio is None:
            return
        self.ratio.setText(formatting.ratio(ratio))
        off = f" It may be {formatting.percent(error)} off, since its baseline is older."
        within = f"{off} A colour marks a gain or loss that is larger than that." if error else ""
        set_tip(self.ratio, f"{definitions.RATIO}{within}")
        self.ratio.setAccessibleName(f"{ratio:.2f} times as fast as plain decoding")
        sure = 1 + max(error, _ALIKE)
        self.ratio.set_color("success" if ratio > sure + _ROUNDING else "warning" if ratio < 1 / sure else "text")


class Tile(QWidget):
    """A large figure with its name beneath it."""

    def __init__(self, theme: Theme, name: str, definition: str) -> None:
        super().__init__()
        self._name = name
        self.value = ThemedLabel(theme, points_more=6, bold=True, tabular=True)
        column(self.value, ElidedLabel(theme, name, "muted", -1), within=self, spacing=0)
        set_tip(self, definition)
        self.show_value(formatting.NONE)

    def show_value(self, words: str) -> None:
        if words != self.value.text():
            self.value.setText(words)
            self.value.set_color("muted" if words == formatting.NONE else "text")
            self.value.setAccessibleName(f"{self._name}: {words}")


def _plain_words(statistics: Statistics) -> str:
    plain, error = statistics.plain_tps, statistics.plain_error
    if plain is None:
        return formatting.NONE
    within = f" ± {plain * error:.{formatting.rate_digits(plain)}f}" if error else ""
    return f"{formatting.rate(plain)}{within} tokens/s"


class TimeSection(Section):
    """Shows the times of the reply that is being written, then keeps them."""

    ledger_requested = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Time")
        self.bar = self.add(TimeBar(theme))
        self.rows = {spent: self.add(TimeRow(theme, spent, stage_words(spent), spent)) for spent in Spent}
        self.whole = self.add(TimeRow(theme, "Whole reply", _WHOLE))
        tip = "Show all stages, of all replies since the app was started"
        self.ledger = self.add(push_button("Time ledger…", tip))
        self.ledger.clicked.connect(self.ledger_requested)
        self._show({})

    def show_statistics(self, statistics: Statistics) -> None:
        self._show(spent_ms(statistics))

    def _show(self, milliseconds: Mapping[Spent, float]) -> None:
        whole = sum(milliseconds.values())
        self.bar.show_times(milliseconds)
        for spent, figure in self.rows.items():
            time = milliseconds.get(spent, 0.0)
            figure.setVisible(time >= _LEAST_MS)
            figure.show_time(time, time / whole if whole else 0.0)
        self.whole.show_time(whole, 1.0 if whole else None)


class TimeRow(FigureRow):
    """A time with its share of the whole, and the colour it has in the bar; the whole has no colour."""

    def __init__(self, theme: Theme, name: str, definition: str, spent: Spent | None = None) -> None:
        super().__init__(theme, name, definition, "text" if spent else "muted")
        self.share = ThemedLabel(theme, "", "muted", tabular=True)
        self.share.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.share.setMinimumWidth(self.share.fontMetrics().horizontalAdvance(formatting.share(1.0)))
        self.parts.addWidget(self.share)
        if spent:
            self.parts.insertWidget(0, Swatch(theme, spent))

    def show_time(self, milliseconds: float, share: float | None) -> None:
        self.share.setText("" if share is None else formatting.share(share))
        more = f", {formatting.share(share)} of the reply" if milliseconds else ""
        self.show_value(formatting.duration(milliseconds), more)
