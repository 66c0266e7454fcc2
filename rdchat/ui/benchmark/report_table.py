"""The results as tables: one row for each setting, or for each group of prompts of each setting."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView, QWidget

from rdchat.inference.benchmark.result import FIGURES, CellReport, Figure, FigureKind, Figures
from rdchat.ui.benchmark.figure_delegate import FigureDelegate
from rdchat.ui.look import formatting
from rdchat.ui.look.plain_text import tip_text
from rdchat.ui.look.theme import Theme

_UNITS = {"/s": formatting.rate, "x": formatting.ratio, "%": formatting.percent, "": formatting.decimal}
PLAIN_EXPLANATION = "Plain decoding beside plain decoding: how far its ratio scatters is the error bar of all others."
_SAME = "Whether every reply equals plain decoding's, token for token."
_UNKNOWN = "Nobody can tell: not every reply is known."


@dataclass(frozen=True, slots=True)
class TableCell:
    """What a place of a table says, and its tooltip."""

    text: str
    tip: str = ""


class ReportTable(QStandardItemModel):
    """Rows of cells below titles."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._names: list[list[str]] = []

    def show_rows(
        self, titles: Sequence[TableCell], rows: Sequence[Sequence[TableCell]], name_columns: int = 1
    ) -> None:
        """Take other rows; the first `name_columns` hold names, which stand at the left, the others figures.

        Where only figures are others, what is selected stays so: results come in while one reads.
        """
        names = [[cell.text for cell in row[:name_columns]] for row in (titles, *rows)]
        if names != self._names:
            self.clear()
            self.setColumnCount(len(titles))
            self.setRowCount(len(rows))
            self._names = names
        for column, title in enumerate(titles):
            side = Qt.AlignmentFlag.AlignLeft if column < name_columns else Qt.AlignmentFlag.AlignRight
            self.setHorizontalHeaderItem(column, _item(title, side))
            for number, row in enumerate(rows):
                item = _item(row[column], side)
                item.setAccessibleText(f"{title.text}: {item.text()}" if title.text else item.text())
                self.setItem(number, column, item)


class TableView(QTableView):
    """A table to read, by keyboard too; columns are as wide as what they hold."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.table = ReportTable(self)
        self.setModel(self.table)
        self.setItemDelegate(FigureDelegate(theme, self))
        self.setAccessibleName(name)
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.verticalHeader().hide()
        self.horizontalHeader().setHighlightSections(False)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.setFrameShape(QTableView.Shape.NoFrame)


def _item(cell: TableCell, side: Qt.AlignmentFlag) -> QStandardItem:
    item = QStandardItem(cell.text)
    item.setToolTip(tip_text(cell.tip or cell.text))
    item.setTextAlignment(side | Qt.AlignmentFlag.AlignVCenter)
    item.setEditable(False)
    return item


def result_rows(reports: Sequence[CellReport]) -> tuple[list[TableCell], list[list[TableCell]]]:
    """Return titles and rows of all settings."""
    titles = [TableCell("Setting"), TableCell("Same text", _SAME), *_titles()]
    return titles, [[_name(report), _same(report), *_figures(report.figures)] for report in reports]


def group_rows(reports: Sequence[CellReport]) -> tuple[list[TableCell], list[list[TableCell]]]:
    """Return titles and rows of all settings in all groups of prompts, group by group."""
    titles = [TableCell("Group"), TableCell("Setting"), *_titles()]
    groups = dict.fromkeys(group for report in reports for group in report.groups)
    return titles, [
        [TableCell(group), _name(report), *_figures(report.groups[group])]
        for group in groups
        for report in reports
        if group in report.groups
    ]


def _titles() -> list[TableCell]:
    return [TableCell(kind.title, kind.explanation) for kind in FIGURES.values()]


def _name(report: CellReport) -> TableCell:
    return TableCell(report.name, PLAIN_EXPLANATION if report.cell.plain else _sentence(report.note))


def _same(report: CellReport) -> TableCell:
    unknown = "" if report.figures["decode_tps"] is None else _UNKNOWN
    return TableCell(report.same_text or formatting.NONE, _sentence(report.note) if report.same_text else unknown)


def _sentence(note: str) -> str:
    return note[:1].upper() + note[1:]


def _figures(figures: Figures) -> list[TableCell]:
    return [_cell(figures.get(name), kind) for name, kind in FIGURES.items()]


def _cell(figure: Figure | None, kind: FigureKind) -> TableCell:
    if figure is None:
        return TableCell(formatting.NONE, f"{kind.explanation} It means nothing here, or was not measured.")
    median, low, high = (_UNITS[kind.unit](value) for value in (figure.median, figure.low, figure.high))
    tip = f"{kind.explanation} Median of {figure.n}; half of them lie from {low} to {high}."
    return TableCell(median if low == high else f"{median}\n{low} \N{EN DASH} {high}", tip)
