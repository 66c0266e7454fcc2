"""The window of the time ledger.

The ledger adds up the time of each stage of all replies of this session. A stage has stages inside it, so the ledger is
a tree; a row names a stage by its path from the root.
"""

from collections.abc import Iterable, Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetrics, QLinearGradient, QShowEvent
from PySide6.QtWidgets import QHeaderView, QTreeWidget, QTreeWidgetItem, QWidget

from rdchat.inference.api import PATH_SEPARATOR, LedgerRow, ledger_csv
from rdchat.services.engine.time_ledger import ProfileCost, TimeLedger
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.style import (
    LARGE,
    LEDGER_COLUMNS,
    MEDIUM,
    STAGES,
    SideWindow,
    Theme,
    ThemedLabel,
    Throttle,
    ask_to_save_content,
    column,
    formatting,
    push_button,
    row,
    scaled,
    small_text,
    tip_text,
)
from rdchat.wording import counted

# The columns of the tree.
NAME, CALLS, MEAN, TOTAL, PERCENT = range(5)
_NOTHING = "The times of the next reply of a model on this machine appear here while it is written."
_EXACT = "Exact times: each stage waited for its results, so replies took longer than usual."
_SHARED = "Stages that MLX computes together share a row. Exact times, in the drafting settings, separate them."
_WIDTHS = {CALLS: 64, MEAN: 96, TOTAL: 96, PERCENT: 112}
_INDENT = 14
# Pixels by which a row is higher than its text.
_AIR = 8
# Opacity of the bar behind a percentage, of 255.
_TINT = 70
# From this share on, a bar fills the cell. Below, it ends within a thousandth of the cell's width.
_FULL = 0.999
# From this total on, a stage is given in minutes.
_MINUTE_MS = 60_000


class LedgerTree(QTreeWidget):
    """A tree of `LedgerRow`; new figures change the rows in place, so that the person's folding and selection stay."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(columnCount=len(LEDGER_COLUMNS))
        self._theme = theme
        self.rows: tuple[LedgerRow, ...] = ()
        self._items: dict[str, QTreeWidgetItem] = {}
        _fill(self.headerItem(), list(LEDGER_COLUMNS), list(LEDGER_COLUMNS.values()))
        self.setUniformRowHeights(True)
        self.setAlternatingRowColors(True)
        self.setAllColumnsShowFocus(True)
        self.setIndentation(_INDENT)
        self.setAccessibleName("Time ledger")
        self.header().setStretchLastSection(False)
        self.header().setSectionResizeMode(NAME, QHeaderView.ResizeMode.Stretch)
        self._set_widths()
        theme.changed.connect(self._set_widths)
        # The column is as long as a full bar.
        self.header().setSectionResizeMode(PERCENT, QHeaderView.ResizeMode.Fixed)

    def _set_widths(self) -> None:
        for index, width in _WIDTHS.items():
            self.setColumnWidth(index, scaled(width))

    def show_rows(self, rows: Iterable[LedgerRow]) -> None:
        """Show new figures; new stages are added at the end of their parent's."""
        self.rows = tuple(rows)
        by_path = {
            f"{stage.parent}{PATH_SEPARATOR}{stage.name}" if stage.parent else stage.name: stage for stage in self.rows
        }
        # A stage disappears only when the ledger is reset.
        if self._items.keys() - by_path.keys():
            self._items = {}
            self.clear()
        for path, stage in by_path.items():
            if path not in self._items:
                item = QTreeWidgetItem()
                self._items[path] = item
                parent = self._items.get(stage.parent, self.invisibleRootItem())
                parent.addChild(item)
                if parent.childCount() == 1:
                    parent.setExpanded(True)
            share = stage.percent_of_parent
            percent = "" if share is None else f"{share:.1f}"
            # Both columns are in milliseconds, so that their rows compare, up to a minute.
            mean = formatting.NONE if stage.mean_ms is None else f"{stage.mean_ms:,.2f} ms"
            is_long = stage.total_ms >= _MINUTE_MS
            total = formatting.duration(stage.total_ms) if is_long else f"{stage.total_ms:,.1f} ms"
            name, definition = STAGES.get(stage.name, (stage.name, stage.name))
            texts = name, formatting.count(stage.calls), mean, total, percent
            _fill(self._items[path], texts, [f"{name}: {definition}"] * len(texts))
            if share is not None:
                self._items[path].setBackground(PERCENT, _bar(share / 100, self._theme.colors.accent))


def _fill(item: QTreeWidgetItem, texts: Sequence[str], tips: Sequence[str]) -> None:
    item.setSizeHint(NAME, QSize(0, QFontMetrics(item.font(NAME)).height() + _AIR))
    for index, (text, tip) in enumerate(zip(texts, tips, strict=True)):
        item.setText(index, text)
        item.setToolTip(index, tip_text(tip))
        side = Qt.AlignmentFlag.AlignLeft if index == NAME else Qt.AlignmentFlag.AlignRight
        item.setTextAlignment(index, side | Qt.AlignmentFlag.AlignVCenter)


def _bar(share: float, accent: QColor) -> QBrush:
    """Return a background whose left part, of this share, is tinted."""
    tint = QColor(accent)
    tint.setAlpha(_TINT)
    # The gradient is in pixels of the cell, whose width is fixed.
    bar = QLinearGradient(0, 0, scaled(_WIDTHS[PERCENT]), 0)
    bar.setColorAt(0, tint)
    bar.setColorAt(min(share, 1.0), tint)
    if share < _FULL:
        bar.setColorAt(share + 1 - _FULL, QColor(Qt.GlobalColor.transparent))
    return QBrush(bar)


class LedgerWindow(SideWindow):
    """Follows the ledger while it is shown, at most ten times a second."""

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget) -> None:
        super().__init__("Time Ledger", (700, 560), (480, 400), parent)
        ledger = controller.time_ledger
        drafting = controller.drafting
        self._ledger = ledger
        self._drafting = drafting
        self.tree = LedgerTree(theme)
        self.cost = small_text(theme)
        self.note = small_text(theme)
        self.reset = push_button("Reset", "Clear these times and start again", ledger.start_counting)
        self.export = push_button("Export CSV…", "Save the table as comma-separated values", self._choose_file)
        head = ThemedLabel(theme, "Time of all replies", bold=True)
        parts = head, self.note, (self.tree, 1), row(None, self.reset, self.export), self.cost
        column(*parts, within=self, margins=(LARGE, MEDIUM, LARGE, LARGE - 4))
        throttle = Throttle(self, self._show_rows)
        ledger.changed.connect(lambda: throttle.note() if self.isVisible() else None)
        theme.changed.connect(self._show_rows)
        drafting.exact_times_changed.connect(self._show_rows)
        self._show_rows()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._show_rows()

    def _show_rows(self) -> None:
        self.tree.show_rows(self._ledger.rows)
        measured = bool(self.tree.rows)
        kind = _EXACT if self._drafting.exact_times else _SHARED
        self.note.setText(f"{_sum_text(self._ledger)} {kind}" if measured else _NOTHING)
        self.reset.setEnabled(measured)
        self.export.setEnabled(measured)
        self.cost.setText(_cost_text(self._ledger.cost))

    def _choose_file(self) -> None:
        kinds = ["Comma-separated values (*.csv)"]
        ask_to_save_content(
            self, "Export the time ledger", "time-ledger.csv", kinds, lambda: ledger_csv(self.tree.rows)
        )


def _sum_text(ledger: TimeLedger) -> str:
    """Return a sentence on which replies the ledger adds up."""
    since = "the last reset" if ledger.was_reset else "rdchat started"
    return f"The sum of {counted(ledger.replies, 'reply', 'replies')} since {since}."


def _cost_text(cost: ProfileCost | None) -> str:
    if cost is None:
        return "Exact times slow replies down. Write one reply with them and one without to see by how much."
    exact = formatting.rate(cost.exact_tps)
    usual = formatting.rate(cost.usual_tps)
    return f"With exact times, the last replies ran at {exact} instead of {usual} tokens/s."
