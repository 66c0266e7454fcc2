"""Where a reply's time went: one bar, and what it was spent on beneath it."""

from collections.abc import Mapping

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QWidget

from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.shown_ledger import Spent, spent_ms
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.stage_words import stage_words
from rdchat.ui.look.theme import SMALL, TIGHT, Theme
from rdchat.ui.speed.sections import Section
from rdchat.ui.speed.time_bar import TimeBar, time_color

_SWATCH = 10  # pixels
_LEAST_MS = 0.5  # less is shown as nothing
_WHOLE = "From the request to the last token. The stages above sum up to it."


class TimeSection(Section):
    """The bar follows the reply that is written, and then keeps the last one's."""

    ledger_requested = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Time")
        self.bar = self.add(TimeBar(theme))
        self.rows = {
            spent: self.add(TimeRow(theme, spent, stage_words(spent), TimeSwatch(theme, spent))) for spent in Spent
        }
        self.whole = self.add(TimeRow(theme, "Whole reply", _WHOLE))
        self.ledger = self.add(QPushButton("Time ledger…"))
        set_tip(self.ledger, "Show all stages, of all replies since the app was started")
        self.ledger.setAutoDefault(False)
        self.ledger.clicked.connect(self.ledger_requested)
        self._show({})

    def show_statistics(self, statistics: Statistics) -> None:
        self._show(spent_ms(statistics))

    def _show(self, milliseconds: Mapping[Spent, float]) -> None:
        whole = sum(milliseconds.values())
        self.bar.show_times(milliseconds)
        for spent, row in self.rows.items():
            share = milliseconds.get(spent, 0.0) / whole if whole else 0.0
            row.setVisible(milliseconds.get(spent, 0.0) >= _LEAST_MS)
            row.show_time(milliseconds.get(spent, 0.0), share)
        self.whole.show_time(whole, 1.0 if whole else None)


class TimeRow(QWidget):
    """What time was spent on, in its colour, with the time and its share of the whole.

    Args:
        theme: The appearance to follow.
        name: What it was spent on.
        definition: Says more of that.
        swatch: Its colour in the bar; None for the whole.
    """

    def __init__(self, theme: Theme, name: str, definition: str, swatch: QWidget | None = None) -> None:
        super().__init__()
        self._name = name
        self.time = ThemedLabel(theme, tabular=True)
        self.share = ThemedLabel(theme, "", "muted", tabular=True)
        for figure in (self.time, self.share):
            figure.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.share.setMinimumWidth(self.share.fontMetrics().horizontalAdvance(formatting.share(1.0)))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SMALL)
        if swatch:
            row.addWidget(swatch)
        row.addWidget(ElidedLabel(theme, name, "text" if swatch else "muted"), 1)
        row.addWidget(self.time)
        row.addWidget(self.share)
        set_tip(self, definition)
        self.show_time(0.0, None)

    def show_time(self, milliseconds: float, share: float | None) -> None:
        time, percent = formatting.duration(milliseconds), formatting.share(share)
        self.time.setText(time)
        self.share.setText("" if share is None else percent)
        self.time.setAccessibleName(f"{self._name}: {time}, {percent} of the reply")


class TimeSwatch(QWidget):
    """A small square in the colour that time has in the bar."""

    def __init__(self, theme: Theme, spent: Spent) -> None:
        super().__init__()
        self._theme, self._spent = theme, spent
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(_SWATCH, _SWATCH)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(time_color(self._theme, self._spent))
        top = (self.height() - _SWATCH) / 2
        painter.drawRoundedRect(QRectF(0, top, _SWATCH, _SWATCH), TIGHT / 2, TIGHT / 2)
