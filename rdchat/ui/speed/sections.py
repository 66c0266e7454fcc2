"""The speed panel's parts: rows of figures, sections that fold, the large figures, and the times of the reply."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.inference.api.ledger_view import Spent, spent_ms
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.ui.speed.charts import Sparkline, TimeBar
from rdchat.ui.speed.figures import DEFINITIONS, FIGURES, FigureSource
from rdchat.ui.style import formatting
from rdchat.ui.style.buttons import FlatButton, push_button
from rdchat.ui.style.definitions import stage_text
from rdchat.ui.style.labels import ElidedLabel, ThemedLabel, set_tip
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.theme import TIGHT, Theme, control_font

_MIN_MS = 0.5  # shorter times are a dash
_TOTAL = "From the request to the last token: the sum of the rows above."


class FigureRow(QWidget):
    """A figure with its name: the name at the left and the value at the right, or a large value above the name.

    Args:
        theme: The appearance to follow.
        name: The name of the figure.
        definition: The tooltip; empty for that of `DEFINITIONS`.
        color: Of the name.
        large: Whether the value is large and above the name.
    """

    def __init__(
        self, theme: Theme, name: str, definition: str = "", color: str = "muted", *, large: bool = False
    ) -> None:
        super().__init__()
        self.name = name
        self.value = ThemedLabel(theme, points_more=6 if large else 0, bold=large, tabular=True)
        label = ElidedLabel(theme, name, color, -1 if large else 0)  # it is cut where there is no room for both
        if large:
            column(self.value, label, within=self, spacing=0)
        else:
            self.value.setAlignment(Qt.AlignmentFlag.AlignRight)
            self.parts = row((label, 1), self.value, within=self)
        set_tip(self, definition or DEFINITIONS[name])
        self.show_value(formatting.NONE)

    def show_value(self, text: str, more: str = "") -> None:
        """Show a value; `more` follows it for screen readers."""
        if text != self.value.text() or more:
            self.value.show_text(text, "muted" if text == formatting.NONE else "text")
            self.value.setAccessibleName(f"{self.name}: {text}{more}")


class SectionHead(FlatButton):
    """A heading that folds and unfolds its section."""

    looks_checked = False

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setText(name)
        self.setCheckable(True)
        self.setChecked(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.setFont(control_font(-0.5, bold=True))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.toggled.connect(self._describe)
        self._describe(True)

    def _describe(self, unfolded: bool) -> None:
        self.setArrowType(Qt.ArrowType.DownArrow if unfolded else Qt.ArrowType.RightArrow)
        self.setAccessibleName(f"{self.text()}, {'unfolded' if unfolded else 'folded'}")
        set_tip(self, f"{'Fold' if unfolded else 'Unfold'} {self.text()}")


class Section(QWidget):
    """A heading with rows below it."""

    folded = Signal(str, bool)  # its name, whether the person folded or unfolded it

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.name = name
        self.theme = theme
        self.head = SectionHead(name)
        body = QWidget()
        self._rows = column(within=body, spacing=TIGHT + 2)
        column(self.head, body, within=self, spacing=TIGHT + 2)
        self.head.toggled.connect(body.setVisible)
        self.head.clicked.connect(lambda unfolded: self.folded.emit(self.name, not unfolded))

    def add[W: QWidget](self, row: W, index: int = -1) -> W:
        """Add a row at an index from the top; -1 is the end."""
        self._rows.insertWidget(index, row)
        return row

    def fold(self, folded: bool) -> None:
        """Fold or unfold it without emitting `folded`."""
        self.head.setChecked(not folded)


class SpeedSection(QWidget):
    """The owner of the figures, the speed compared with plain decoding, acceptance and tokens per step."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.decode = ThemedLabel(theme, formatting.NONE, points_more=13, bold=True, tabular=True)
        self.owner = ElidedLabel(theme, "", "muted", -1)
        self.ratio = ThemedLabel(theme, "", points_more=5, bold=True, tabular=True)
        self.alike = ThemedLabel(theme, "about the\nsame speed", "muted", -1)
        self.alike.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.reason = ThemedLabel(theme, "", "warning", -1, wraps=True)
        self.reason.hide()
        self.plain, self.acceptance, self.per_step = self.rows = [
            FigureRow(theme, name, large=large)
            for name, large in (("Without drafting", False), ("Acceptance", True), ("Tokens per step", True))
        ]
        self.sparkline = Sparkline(theme)
        unit = ElidedLabel(theme, "tokens/s", "muted")
        unit.setContentsMargins(0, 0, 0, 4)
        self.ratio.setContentsMargins(0, 0, 0, 2)
        head = row(self.decode, (unit, 1), self.ratio, self.alike, spacing=TIGHT + 2)
        for part in (self.decode, unit, self.ratio, self.alike):
            head.setAlignment(part, Qt.AlignmentFlag.AlignBottom)
            set_tip(part, DEFINITIONS["Speed"])
        tiles = row((self.acceptance, 1), (self.per_step, 1))
        self.figures = QWidget()
        figures = head, self.reason, self.plain, TIGHT, tiles, self.sparkline
        column(*figures, within=self.figures, spacing=TIGHT)
        column(self.owner, self.figures, within=self, spacing=TIGHT)

    def show_statistics(self, statistics: Statistics) -> None:
        decode = formatting.rate(statistics.decode_tps)
        self.decode.show_text(decode, "muted" if statistics.decode_tps is None else "text")
        self.decode.setAccessibleName(f"Writing: {decode} tokens a second")
        self._show_ratio(statistics)
        for figure in self.rows:
            figure.show_value(FIGURES[figure.name](FigureSource(statistics)))
        self.sparkline.show_speeds(statistics.speeds)

    def explain(self, reason: str) -> None:
        """Show why the reply is slower than without drafting; an empty reason hides the line."""
        self.reason.show_text(reason)

    def _show_ratio(self, statistics: Statistics) -> None:
        """Show how many times as fast as without drafting, or that it is about the same within its error."""
        ratio, (low, high) = statistics.speedup or 0.0, statistics.speedup_range or (0.0, 0.0)
        alike = statistics.as_fast
        self.ratio.setVisible(high > 0 and not alike)
        self.alike.setVisible(alike)
        lies = f"{DEFINITIONS['Speed-up']} It is between {formatting.ratio(low)} and {formatting.ratio(high)}."
        set_tip(self.ratio, lies)
        set_tip(self.alike, lies)
        self.ratio.setText(formatting.ratio(ratio))
        self.ratio.setAccessibleName(f"{ratio:.2f} times as fast as without drafting")
        self.ratio.set_color("success" if low > 1 else "warning")


class TimeSection(Section):
    """Shows what the time of a reply was spent on."""

    ledger_requested = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Time")
        self.bar = self.add(TimeBar(theme))
        self.rows = {spent: self.add(TimeRow(theme, spent, stage_text(spent), spent)) for spent in Spent}
        self.total = self.add(TimeRow(theme, "Total", _TOTAL))
        tip = "Show every stage of all replies since rdchat was opened"
        self.ledger = self.add(push_button("Time Ledger", tip, self.ledger_requested.emit))
        self.show_statistics(Statistics())

    def show_statistics(self, statistics: Statistics) -> None:
        milliseconds = spent_ms(statistics)
        total = sum(milliseconds.values())
        self.bar.show_times(milliseconds)
        for spent, figure in self.rows.items():
            time = milliseconds.get(spent, 0.0)
            figure.show_time(time if time >= _MIN_MS else 0.0, time / total if time >= _MIN_MS else None)
        self.total.show_time(total, 1.0 if total else None)


class TimeRow(FigureRow):
    """A time with its share of the reply's, and its colour in the bar; the total has no colour."""

    def __init__(self, theme: Theme, name: str, definition: str, spent: Spent | None = None) -> None:
        super().__init__(theme, name, definition, "text" if spent else "muted")
        self.share = ThemedLabel(theme, "", "muted", tabular=True)
        self.share.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.share.setMinimumWidth(self.share.fontMetrics().horizontalAdvance(formatting.share(1.0)))
        self.parts.addWidget(self.share)
        if spent:
            self.parts.insertWidget(0, ThemedLabel(theme, "■", spent.name.lower(), -3))

    def show_time(self, milliseconds: float, share: float | None) -> None:
        self.share.setText("" if share is None else formatting.share(share))
        more = f", {formatting.share(share)} of the reply" if milliseconds else ""
        self.show_value(formatting.duration(milliseconds), more)
