"""The time ledger window: a live tree of stages with calls, mean, total and percent of parent."""

import logging
from collections.abc import Iterable
from pathlib import Path

from PySide6.QtCore import QModelIndex, QSize, Qt
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFontMetrics,
    QLinearGradient,
    QShowEvent,
    QStandardItem,
    QStandardItemModel,
)
from PySide6.QtWidgets import (
    QCheckBox,
    QHeaderView,
    QMessageBox,
    QTreeView,
    QWidget,
)

from rdchat.inference.api.ledger_tree import LedgerRow, ledger_csv, ledger_note
from rdchat.inference.api.reply_statistics import PATH_SEPARATOR
from rdchat.services.chat.draft_control import DraftControl
from rdchat.services.chat.time_ledger import ProfileCost, TimeLedger
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.definitions import stage_words
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SideWindow, ask_to_save
from rdchat.ui.look.plain_text import message_box, set_tip, tip_text
from rdchat.ui.look.theme import LARGE, MEDIUM, Theme
from rdchat.ui.look.throttle import Throttle

_LOG = logging.getLogger(__name__)
NAME, CALLS, MEAN, TOTAL, PERCENT = range(5)
_HEADERS = (
    ("Stage", "What the time was spent on, and the parts of that."),
    ("Calls", "How often it ran."),
    ("Mean ms", "Time of one call, its parts included."),
    ("Total ms", "Time of all calls, its parts included."),
    ("% of parent", "Share of the time of the stage above it."),
)
_NOTHING = "Nothing was measured yet: the times of the next reply show here as it is written."
_WIDTHS = {CALLS: 64, MEAN: 80, TOTAL: 88, PERCENT: 112}
_INDENT = 14
_AIR = 8  # pixels that a row is higher than its text
_TINT = 70  # opacity of a bar, of 255
_WHOLE = 0.999  # a larger share fills the cell


class LedgerModel(QStandardItemModel):
    """A tree of `LedgerRow`; rows that are already there keep their place, so a view keeps what is unfolded."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(0, len(_HEADERS))
        self._theme = theme
        self.rows: tuple[LedgerRow, ...] = ()
        self._items: dict[str, list[QStandardItem]] = {}  # by path, a row's items
        for place, (name, words) in enumerate(_HEADERS):
            self.setHorizontalHeaderItem(place, _item(place, name, words))

    def show_rows(self, rows: Iterable[LedgerRow]) -> None:
        """Show new figures; new stages are added at the end of their parent's."""
        self.rows = tuple(rows)
        by_path = {f"{one.parent}{PATH_SEPARATOR}{one.name}" if one.parent else one.name: one for one in self.rows}
        if self._items.keys() - by_path.keys():
            self._items = {}
            self.removeRows(0, self.rowCount())
        for path, stage in by_path.items():
            share = stage.percent_of_parent
            percent = "" if share is None else f"{share:.1f}"
            texts = (stage.name, f"{stage.calls:,}", f"{stage.mean_ms:,.2f}", f"{stage.total_ms:,.1f}", percent)
            if items := self._items.get(path):
                for item, text in zip(items, texts, strict=True):
                    item.setText(text)
            else:
                words = f"{stage.name}: {stage_words(stage.name)}"
                items = self._items[path] = [_item(place, text, words) for place, text in enumerate(texts)]
                parent = self._items[stage.parent][NAME] if stage.parent in self._items else self.invisibleRootItem()
                parent.appendRow(items)
            if share is not None:
                items[PERCENT].setBackground(_bar(share / 100, self._theme.colors.accent))


def _item(place: int, text: str, words: str) -> QStandardItem:
    item = QStandardItem(text)
    item.setSizeHint(QSize(0, QFontMetrics(item.font()).height() + _AIR))
    item.setEditable(False)
    item.setToolTip(tip_text(words))
    side = Qt.AlignmentFlag.AlignLeft if place == NAME else Qt.AlignmentFlag.AlignRight
    item.setTextAlignment(side | Qt.AlignmentFlag.AlignVCenter)
    return item


def _bar(share: float, accent: QColor) -> QBrush:
    """Return a background whose left part, of this share, is tinted."""
    tint = QColor(accent)
    tint.setAlpha(_TINT)
    bar = QLinearGradient(0, 0, _WIDTHS[PERCENT], 0)  # from the left edge of the cell
    bar.setColorAt(0, tint)
    bar.setColorAt(min(share, 1.0), tint)
    if share < _WHOLE:
        bar.setColorAt(share + 1 - _WHOLE, QColor(Qt.GlobalColor.transparent))
    return QBrush(bar)


class LedgerWindow(SideWindow):
    """Follows the ledger while it is shown, at most ten times a second."""

    def __init__(self, ledger: TimeLedger, drafting: DraftControl, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Time ledger", (700, 520), (480, 300), parent)
        self._ledger, self._drafting = ledger, drafting
        self.model = LedgerModel(theme)
        self.view = self._build_view()
        self.exact = QCheckBox("Exact times (profiling)")
        self.exact.setAccessibleName("Exact times (profiling)")
        set_tip(
            self.exact,
            "Each stage waits for its results, so that its time is its own. Replies take longer meanwhile. "
            "Switching starts the ledger anew.",
        )
        self.cost = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.note = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.reset = push_button("Reset", "Forget these times and count from now on")
        self.export = push_button("Export CSV…", "Save the table as comma-separated values")
        buttons = row(self.exact, None, self.reset, self.export)
        margins = LARGE, MEDIUM, LARGE, LARGE - 4
        column(self.note, (self.view, 1), buttons, self.cost, within=self, margins=margins)
        self._throttle = Throttle(self)
        self._throttle.due.connect(self._show_rows)
        ledger.changed.connect(lambda: self._throttle.note() if self.isVisible() else None)
        theme.changed.connect(self._show_rows)
        drafting.exact_times_changed.connect(self._show_kind)
        self.exact.clicked.connect(drafting.set_exact_times)
        self.reset.clicked.connect(ledger.reset)
        self.export.clicked.connect(self._choose_file)
        self.model.rowsInserted.connect(self._unfold)
        self._show_kind()

    def _build_view(self) -> QTreeView:
        view = QTreeView()
        self.model.setParent(view)
        view.setModel(self.model)
        view.setUniformRowHeights(True)
        view.setAlternatingRowColors(True)
        view.setAllColumnsShowFocus(True)
        view.setIndentation(_INDENT)
        view.setAccessibleName("Time ledger")
        view.header().setStretchLastSection(False)
        view.header().setSectionResizeMode(NAME, QHeaderView.ResizeMode.Stretch)
        for place, width in _WIDTHS.items():
            view.setColumnWidth(place, width)
        view.header().setSectionResizeMode(PERCENT, QHeaderView.ResizeMode.Fixed)  # as long as a full bar
        return view

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._show_rows()

    def _show_rows(self) -> None:
        self.model.show_rows(self._ledger.rows)
        measured = bool(self.model.rows)
        self.note.setText(ledger_note(self._drafting.exact_times) if measured else _NOTHING)
        self.reset.setEnabled(measured)
        self.export.setEnabled(measured)
        self.cost.setText(_cost_words(self._ledger.cost))

    def _show_kind(self) -> None:
        self.exact.setChecked(self._drafting.exact_times)
        self._show_rows()

    def _unfold(self, parent: QModelIndex) -> None:
        """Expand a stage when its first part appears."""
        if parent.isValid() and self.model.rowCount(parent) == 1:
            self.view.expand(parent)

    def _choose_file(self) -> None:
        kinds = ["Comma-separated values (*.csv)"]
        ask_to_save(self, "Export the time ledger", "time-ledger.csv", kinds, self.save)

    def save(self, path: str) -> None:
        """Write the table to a file, or say why that failed."""
        try:
            Path(path).write_text(ledger_csv(self.model.rows), encoding="utf-8")
        except OSError as error:
            _LOG.info("The ledger was not saved: %s", error)
            failed = f"The file could not be saved: {error.strerror}."
            box = message_box(QMessageBox.Icon.Warning, failed, "Choose another place.", parent=self)
            box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            box.open()


def _cost_words(cost: ProfileCost | None) -> str:
    if cost is None:
        return "What exact times cost is not measured yet: it takes one reply with them and one without."
    exact, usual = formatting.rate(cost.exact_tps), formatting.rate(cost.usual_tps)
    return f"With exact times: {formatting.ratio(cost.ratio)}, {exact} instead of {usual} tokens/s in the last replies."
