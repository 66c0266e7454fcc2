"""The results as tables: one row for each setting, or for each group of prompts of each setting."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView, QWidget

from rdchat.inference.api.bench_results import CellReport, Figure
from rdchat.inference.benchmark.report import cell_names
from rdchat.ui.benchmark.figure_delegate import FigureDelegate
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import wrapped
from rdchat.ui.look.theme import Theme

_Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    tip: str
    words: Callable[[float], str]


_FIGURES = {
    "decode_tps": _Column("Tokens/s", "Tokens decoded a second, after the first one.", formatting.rate),
    "ratio_to_plain": _Column("Of plain", "Speed over plain decoding of the same prompt and trial.", formatting.ratio),
    "ratio_to_mlx_lm": _Column("Of mlx-lm", "Speed over stock mlx-lm on the same prompt and trial.", formatting.ratio),
    "tokens_per_target_call": _Column("Tokens/call", "Tokens written for each call of the model.", formatting.decimal),
    "acceptance_rate": _Column("Accepted", "Drafted tokens that the model accepted.", formatting.percent),
    "nodes_per_target_call": _Column(
        "Nodes/call", "Tokens of the draft tree that a call verifies.", formatting.decimal
    ),
    "draft_ms": _Column("Draft ms", "Milliseconds that a draft takes alone.", formatting.decimal),
    "host_syncs_per_round": _Column(
        "Syncs/round", "How often a round has the processor wait for the device.", formatting.decimal
    ),
    "overhead": _Column("Overhead", "Time of a round over that of its draft and target call alone.", formatting.ratio),
}
AGAIN = "Plain decoding beside plain decoding: how far its ratio scatters is the error bar of all others."
_SAME = "Whether every reply equals plain decoding's, token for token."
_UNKNOWN = "Nobody can tell: not every reply is known."


@dataclass(frozen=True, slots=True)
class TableCell:
    """What a place of a table says, and its tooltip."""

    text: str
    tip: str = ""


class ReportTable(QAbstractTableModel):
    """Rows of cells below titles."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._titles: tuple[TableCell, ...] = ()
        self._rows: tuple[tuple[TableCell, ...], ...] = ()
        self._name_columns = 1

    def show_rows(
        self, titles: Sequence[TableCell], rows: Sequence[Sequence[TableCell]], name_columns: int = 1
    ) -> None:
        """Take other rows; the first `name_columns` hold names, which stand at the left, the others figures.

        Where only figures are others, what is selected stays so: results come in while one reads.
        """
        new, names = tuple(tuple(row) for row in rows), self._names(self._rows)
        same = self._titles == tuple(titles) and self._name_columns == name_columns
        self._name_columns = name_columns
        if same and new and names == self._names(new):
            self._rows = new
            self.dataChanged.emit(self.index(0, 0), self.index(len(new) - 1, len(self._titles) - 1))
            return
        self.beginResetModel()
        self._titles, self._rows = tuple(titles), new
        self.endResetModel()

    def _names(self, rows: Sequence[Sequence[TableCell]]) -> list[tuple[str, ...]]:
        return [tuple(cell.text for cell in row[: self._name_columns]) for row in rows]

    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._titles)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        cell, title = self._rows[index.row()][index.column()], self._titles[index.column()].text
        if role == Qt.ItemDataRole.DisplayRole:
            return cell.text
        if role == Qt.ItemDataRole.ToolTipRole:
            return wrapped(cell.tip or cell.text)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{title}: {cell.text}" if title else cell.text
        return self._alignment(index.column()) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def _alignment(self, column: int) -> Qt.AlignmentFlag:
        side = Qt.AlignmentFlag.AlignLeft if column < self._name_columns else Qt.AlignmentFlag.AlignRight
        return side | Qt.AlignmentFlag.AlignVCenter

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation is not Qt.Orientation.Horizontal or section >= len(self._titles):
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return self._titles[section].text
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self._alignment(section)
        return self._titles[section].tip if role == Qt.ItemDataRole.ToolTipRole else None


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


def result_rows(reports: Sequence[CellReport]) -> tuple[list[TableCell], list[list[TableCell]]]:
    """Return titles and rows of all settings."""
    titles = [TableCell("Setting"), TableCell("Same text", _SAME), *_titles()]
    names = zip(cell_names(reports), reports, strict=True)
    return titles, [[_name(name, report), _same(report), *_figures(report.figures)] for name, report in names]


def group_rows(reports: Sequence[CellReport]) -> tuple[list[TableCell], list[list[TableCell]]]:
    """Return titles and rows of all settings in all groups of prompts, group by group."""
    titles = [TableCell("Group"), TableCell("Setting"), *_titles()]
    groups = dict.fromkeys(group for report in reports for group in report.groups)
    names = list(zip(cell_names(reports), reports, strict=True))
    return titles, [
        [TableCell(group), _name(name, report), *_figures(report.groups[group])]
        for group in groups
        for name, report in names
        if group in report.groups
    ]


def _titles() -> list[TableCell]:
    return [TableCell(column.title, column.tip) for column in _FIGURES.values()]


def _name(name: str, report: CellReport) -> TableCell:
    chosen = ", ".join(f"{words} ({count} times)" for words, count in report.chosen.items())
    if report.cell.plain:
        return TableCell(name, AGAIN)
    return TableCell(name, report.mode_reason or (f"Chose {chosen} in the end." if chosen else ""))


def _figures(found: Mapping[str, Figure | None]) -> list[TableCell]:
    return [_cell(found.get(name), column) for name, column in _FIGURES.items()]


def _cell(figure: Figure | None, column: _Column) -> TableCell:
    if figure is None:
        return TableCell(formatting.NONE, f"{column.tip} It means nothing here, or was not measured.")
    median, low, high = (column.words(value) for value in (figure.median, figure.low, figure.high))
    tip = f"{column.tip} Median of {figure.n}; half of them lie from {low} to {high}."
    return TableCell(median if low == high else f"{median}\n{low} \N{EN DASH} {high}", tip)


def _same(report: CellReport) -> TableCell:
    difference = report.first_difference
    if report.mode_reason:
        return TableCell("Not run", report.mode_reason)
    if report.figures["decode_tps"] is None:
        return TableCell(formatting.NONE)
    if difference is None:
        return TableCell("Yes") if report.identical_text else TableCell(formatting.NONE, _UNKNOWN)
    where = f"Differs most in prompt {difference.prompt + 1}, from token {difference.index + 1} on"
    if difference.gap is None:
        return TableCell("No", f"{where}, where one reply had ended.")
    near = difference.near_tie(report.dtype)
    kind = "a near-tie, which rounding decides" if near else "which is no near-tie"
    words = f"{where}: “{difference.other}” for “{difference.plain}”, scores {difference.gap:.2g} apart, {kind}."
    return TableCell("Near-tie" if near else "No", words)
