"""The time ledger: a live tree of what replies spend their time on, with calls, mean, total and percent of parent."""

import logging
from pathlib import Path

from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut, QShowEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QHeaderView,
    QMessageBox,
    QTreeView,
    QVBoxLayout,
    QWidget,
)

from rdchat.inference.api.ledger_tree import ledger_csv, ledger_note
from rdchat.services.chat.draft_control import DraftControl
from rdchat.services.chat.time_ledger import ProfileCost, TimeLedger
from rdchat.ui.ledger.bar_delegate import BarDelegate
from rdchat.ui.ledger.model import CALLS, MEAN, NAME, PERCENT, TOTAL, LedgerModel
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import message_box, set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, Theme
from rdchat.ui.look.throttle import Throttle

_LOG = logging.getLogger(__name__)
_NOTHING = "Nothing was measured yet: the times of the next reply show here as it is written."
_WIDTHS = {CALLS: 72, MEAN: 84, TOTAL: 92, PERCENT: 180}
_NARROW = {CALLS: 56, MEAN: 72, TOTAL: 80, PERCENT: 96}
_INDENT = 14
_ROOM_FOR_BARS = 600  # a narrower window leaves the room of the bars to the names


class LedgerWindow(QDialog):
    """Follows the ledger while it is shown, at most ten times a second."""

    def __init__(self, ledger: TimeLedger, drafting: DraftControl, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self._ledger, self._drafting = ledger, drafting
        self._widths: dict[int, int] = {}
        self.setWindowTitle("Time ledger")
        self.model = LedgerModel(self)
        self.view = self._build_view(theme)
        self.exact = QCheckBox("Exact times (profiling)")
        self.exact.setAccessibleName("Exact times (profiling)")
        set_tip(
            self.exact,
            "Each stage waits for its results, so that its time is its own. Replies take longer meanwhile. "
            "Switching starts the ledger anew.",
        )
        self.cost = ThemedLabel(theme, "", "muted", -1)
        self.note = ThemedLabel(theme, "", "muted", -1)
        self.reset = push_button("Reset", "Forget these times and count from now on")
        self.export = push_button("Export CSV…", "Save the table as comma-separated values")
        self._lay_out()
        self._throttle = Throttle(self)
        self._throttle.due.connect(self._show_rows)
        ledger.changed.connect(self._note_change)
        drafting.exact_times_changed.connect(self._show_kind)
        self.exact.clicked.connect(drafting.set_exact_times)
        self.reset.clicked.connect(ledger.reset)
        self.export.clicked.connect(self._choose_file)
        self.model.rowsInserted.connect(self._unfold)
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)
        self._show_kind()
        self.setMinimumSize(480, 300)
        self.resize(700, 520)

    def _build_view(self, theme: Theme) -> QTreeView:
        view = QTreeView()
        view.setModel(self.model)
        view.setUniformRowHeights(True)
        view.setAlternatingRowColors(True)
        view.setAllColumnsShowFocus(True)
        view.setIndentation(_INDENT)
        view.setAccessibleName("Time ledger")
        view.setItemDelegateForColumn(PERCENT, BarDelegate(theme, view))
        view.header().setStretchLastSection(False)
        view.header().setSectionResizeMode(NAME, QHeaderView.ResizeMode.Stretch)
        return view

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        widths = _NARROW if event.size().width() < _ROOM_FOR_BARS else _WIDTHS
        if widths is not self._widths:  # else the person may have drawn them otherwise
            self._widths = widths
            for column, width in widths.items():
                self.view.setColumnWidth(column, width)

    def _lay_out(self) -> None:
        for label in (self.cost, self.note):
            label.setWordWrap(True)
        buttons = QHBoxLayout()
        buttons.setSpacing(SMALL)
        buttons.addWidget(self.exact)
        buttons.addStretch(1)
        buttons.addWidget(self.reset)
        buttons.addWidget(self.export)
        column = QVBoxLayout(self)
        column.setContentsMargins(LARGE, MEDIUM, LARGE, LARGE - 4)
        column.setSpacing(SMALL)
        column.addWidget(self.note)
        column.addWidget(self.view, 1)
        column.addLayout(buttons)
        column.addWidget(self.cost)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._show_rows()

    def _note_change(self) -> None:
        if self.isVisible():
            self._throttle.note()

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
        """Show what is new, below a stage that had nothing inside it before too."""
        if parent.isValid() and self.model.rowCount(parent) == 1:
            self.view.expand(parent)

    def _choose_file(self) -> None:
        dialog = QFileDialog(self, "Export the time ledger", str(Path.home() / "time-ledger.csv"))
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilter("Comma-separated values (*.csv)")
        dialog.setDefaultSuffix("csv")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.save)
        dialog.open()

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
