"""The results of a benchmark: two tables and a picture in tabs, and their export to a file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QMargins, QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHeaderView,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableWidget,
    QTableWidgetItem,
    QTabWidget,
)

from rdchat.errors import InvalidSettingError, file_errors
from rdchat.inference.api import FIGURES, BenchResult, CellReport, Figure, FigureKind, Figures
from rdchat.inference.benchmark.result_files import write_csv
from rdchat.ui.plots.drawing import PICTURE_TYPES, PlotView, save_picture
from rdchat.ui.plots.measured_plots import speed_bars
from rdchat.ui.style import SMALL, Theme, formatting, scrolled, tip_text

EXPORT_TYPES = (".csv", ".json", *PICTURE_TYPES)
PLAIN_EXPLANATION = (
    "Plain decoding compared with itself: the scatter of this speed-up is the measuring error of all others."
)
_UNITS = {"/s": formatting.rate, "x": formatting.ratio, "%": formatting.percent, "": formatting.decimal}
_SAME = "Whether every reply has the same tokens as with plain decoding."
_UNKNOWN = "Unknown: not every reply was stored."
_VISIBLE = ("decode_tps", "ratio_to_plain", "ratio_to_mlx_lm", "tokens_per_target_call", "acceptance_rate", "draft_ms")
"""The figures that fit into the window; exports have all of them."""
_Index = QModelIndex | QPersistentModelIndex


class TableCell(NamedTuple):
    """The text of a cell and its tooltip."""

    text: str
    tip: str = ""


class _SpacedCells(QStyledItemDelegate):
    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return super().sizeHint(option, index).grownBy(QMargins(2, 4, 2, 4))


class TableView(QTableWidget):
    """A table to read, by keyboard too; columns are as wide as their content."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setItemDelegate(_SpacedCells(self))  # A style sheet would keep the colours of another appearance.
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        # The texts of the columns with names, titles included: while they stay, only figures change.
        self._names: list[list[str]] = []
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.verticalHeader().hide()
        self.horizontalHeader().setHighlightSections(False)
        for header in (self.horizontalHeader(), self.verticalHeader()):
            header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)

    def show_rows(
        self, titles: Sequence[TableCell], rows: Sequence[Sequence[TableCell]], name_columns: int = 1
    ) -> None:
        """Show rows below titles; the first `name_columns` hold names, at the left, the others figures, at the right.

        If only figures change, the selection stays: results come in while the person reads.
        """
        names = [[cell.text for cell in row[:name_columns]] for row in (titles, *rows)]
        if names != self._names:
            self.clear()
            self.setColumnCount(len(titles))
            self.setRowCount(len(rows))
            self._names = names
        for column, title in enumerate(titles):
            side = Qt.AlignmentFlag.AlignLeft if column < name_columns else Qt.AlignmentFlag.AlignRight
            head = TableCell(title.text.replace(" ", "\n", 1), title.tip or title.text)  # There are many columns.
            self.setHorizontalHeaderItem(column, _item(head, side))
            for number, row in enumerate(rows):
                item = _item(row[column], side)
                text = f"{title.text}: {item.text()}" if title.text else item.text()
                item.setData(Qt.ItemDataRole.AccessibleTextRole, text)
                self.setItem(number, column, item)


def _item(cell: TableCell, side: Qt.AlignmentFlag) -> QTableWidgetItem:
    item = QTableWidgetItem(cell.text)
    item.setToolTip(tip_text(cell.tip or cell.text))
    item.setTextAlignment(side | Qt.AlignmentFlag.AlignVCenter)
    return item


class ResultsView(QTabWidget):
    """Shows a result, complete or not: settings, groups of prompts, picture."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(documentMode=True)
        self.result: BenchResult | None = None
        self.results = TableView("Results")
        self.groups = TableView("Results by group of prompts")
        self.picture = PlotView(theme, "Picture of the results")
        self._scroll = scrolled(self.picture)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self._scroll.setAlignment(Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop)
        self._scroll.setBackgroundRole(QPalette.ColorRole.Base)
        self.addTab(self.results, "Results")
        self.addTab(self.groups, "By group")
        self.addTab(self._scroll, "Picture")
        self.picture.part_reached.connect(self._reveal)

    def show_result(self, result: BenchResult) -> None:
        self.result = result
        reports = result.reports
        titles = [TableCell(FIGURES[name].title, FIGURES[name].explanation) for name in _VISIBLE]
        self.results.show_rows(
            [TableCell("Setting"), TableCell("Same text", _SAME), *titles],
            [[_name(each), _same(each), *_figures(each.figures)] for each in (*result.baseline_reports, *reports)],
        )
        groups = dict.fromkeys(group for report in reports for group in report.groups)
        self.groups.show_rows(
            [TableCell("Group"), TableCell("Setting"), *titles],
            [
                [TableCell(group), _name(report), *_figures(report.groups[group])]
                for group in groups
                for report in reports
                if group in report.groups
            ],
            name_columns=2,
        )
        self.setTabEnabled(1, bool(groups))
        self.picture.show_plots([speed_bars(result)])

    def _reveal(self, part: QRect) -> None:
        middle = part.center()
        self._scroll.ensureVisible(middle.x(), middle.y(), part.width() // 2 + SMALL, part.height() // 2 + SMALL)


def _name(report: CellReport) -> TableCell:
    return TableCell(report.name, PLAIN_EXPLANATION if report.cell.plain else _sentence(report.note))


def _same(report: CellReport) -> TableCell:
    """Return whether the replies have the same text; a dash if that is not known, or nothing was measured yet."""
    unknown = "" if report.figures["decode_tps"] is None else _UNKNOWN
    return TableCell(report.same_text or formatting.NONE, _sentence(report.note) if report.same_text else unknown)


def _sentence(note: str) -> str:
    return note[:1].upper() + note[1:]


def _figures(figures: Figures) -> list[TableCell]:
    return [_cell(figures.get(name), FIGURES[name]) for name in _VISIBLE]


def _cell(figure: Figure | None, kind: FigureKind) -> TableCell:
    if figure is None:
        return TableCell(formatting.NONE, f"{kind.explanation} Not measured here.")
    median, low, high = (_UNITS[kind.unit](value) for value in (figure.median, figure.low, figure.high))
    tip = f"{kind.explanation} Median of {figure.n}; half of the values are between {low} and {high}."
    return TableCell(median if low == high else f"{median}\n{low} \N{EN DASH} {high}", tip)


def export(result: BenchResult, path: Path) -> None:
    """Write a benchmark as CSV, JSON or a picture, by the ending of the file's name.

    Raises:
        RdchatError: If the name has another ending, or the file cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in EXPORT_TYPES:
        *others, last = EXPORT_TYPES
        ends = f"{', '.join(others)} or {last}"
        raise InvalidSettingError(f"{path.name} cannot be exported: its name must end in {ends}.")
    if kind in PICTURE_TYPES:
        save_picture([speed_bars(result)], path)
        return
    failed = f"{path.name} cannot be written", "Choose another folder."
    with file_errors(*failed), path.open("w", encoding="utf-8", newline="") as file:
        if kind == ".csv":
            write_csv(file, result)
        else:
            json.dump(result.as_json(), file, ensure_ascii=False, indent=2)
