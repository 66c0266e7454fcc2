"""The section of where a reply's time went: one bar, and a row for each of its parts."""

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal

from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.shown_ledger import Spent, spent_ms
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.definitions import stage_words
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.theme import Theme
from rdchat.ui.speed.charts import Swatch, TimeBar
from rdchat.ui.speed.sections import FigureRow, Section

_LEAST_MS = 0.5  # shorter times are not shown
_WHOLE = "From the request to the last token. The stages above sum up to it."


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
        for spent, row in self.rows.items():
            time = milliseconds.get(spent, 0.0)
            row.setVisible(time >= _LEAST_MS)
            row.show_time(time, time / whole if whole else 0.0)
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
