"""The results of a benchmark: two tables and pictures in tabs, and their export to a file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QLocale, QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPalette, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QTabWidget,
    QWidget,
)

from rdchat.errors import InvalidSettingError, StorageError
from rdchat.inference.benchmark.csv_format import write_csv
from rdchat.inference.benchmark.result import FIGURES, BenchResult, CellReport, Figure, FigureKind, Figures
from rdchat.ui.look import formatting
from rdchat.ui.look.layouts import scrolled
from rdchat.ui.look.plain_text import tip_text
from rdchat.ui.look.theme import SMALL, TIGHT, Theme, control_font
from rdchat.ui.plots.pictures import PICTURE_TYPES, save_picture
from rdchat.ui.plots.plot_view import PlotView
from rdchat.ui.plots.speedups import plots_of

EXPORT_TYPES = (".csv", ".json", *PICTURE_TYPES)
PLAIN_EXPLANATION = "Plain decoding beside plain decoding: how far its ratio scatters is the error bar of all others."
_UNITS = {"/s": formatting.rate, "x": formatting.ratio, "%": formatting.percent, "": formatting.decimal}
_SAME = "Whether every reply equals plain decoding's, token for token."
_UNKNOWN = "Nobody can tell: not every reply is known."
_Index = QModelIndex | QPersistentModelIndex


class TableCell(NamedTuple):
    """The text of a cell and its tooltip."""

    text: str
    tip: str = ""


class ReportTable(QStandardItemModel):
    """Rows of cells below titles."""

    def __init__(self) -> None:
        super().__init__()
        self._names: list[list[str]] = []

    def show_rows(
        self, titles: Sequence[TableCell], rows: Sequence[Sequence[TableCell]], name_columns: int = 1
    ) -> None:
        """Show other rows; the first `name_columns` hold names, at the left, the others figures, at the right.

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
            self.setHorizontalHeaderItem(column, _item(title, side))
            for number, row in enumerate(rows):
                item = _item(row[column], side)
                item.setAccessibleText(f"{title.text}: {item.text()}" if title.text else item.text())
                self.setItem(number, column, item)


def _item(cell: TableCell, side: Qt.AlignmentFlag) -> QStandardItem:
    item = QStandardItem(cell.text)
    item.setToolTip(tip_text(cell.tip or cell.text))
    item.setTextAlignment(side | Qt.AlignmentFlag.AlignVCenter)
    item.setEditable(False)
    return item


class FigureDelegate(QStyledItemDelegate):
    """Draws a figure of two lines: the median, and its quartiles below it, smaller and fainter."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme

    def displayText(self, value: object, locale: QLocale | QLocale.Language) -> str:
        return "" if "\n" in str(value) else str(value)  # `paint` draws two lines itself

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        lines = zip(str(index.data()).split("\n"), _fonts(), strict=False)
        sizes = [QFontMetrics(font).size(0, line) for line, font in lines]
        width = max(size.width() for size in sizes) + 2 * SMALL
        return QSize(width, sum(size.height() for size in sizes) + 2 * TIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        super().paint(painter, option, index)  # the background, and the text of a single line
        lines = str(index.data()).split("\n")
        if len(lines) < 2:
            return
        colors = self._theme.colors
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        chosen = option.palette.color(QPalette.ColorRole.HighlightedText)
        area = option.rect.adjusted(TIGHT, TIGHT, -TIGHT, -TIGHT)
        sides = Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag.AlignBottom
        painter.save()
        for line, font, color, side in zip(lines, _fonts(), (colors.text, colors.muted), sides, strict=True):
            painter.setFont(font)
            painter.setPen(chosen if selected else color)
            painter.drawText(area, Qt.AlignmentFlag.AlignRight | side, line)
        painter.restore()


def _fonts() -> tuple[QFont, QFont]:
    return control_font(), control_font(-1.5, tabular=True)


class TableView(QTableView):
    """A table to read, by keyboard too; columns are as wide as their content."""

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.table = ReportTable()
        self.table.setParent(self)
        self.setModel(self.table)
        self.setItemDelegate(FigureDelegate(theme, self))
        self.setAccessibleName(name)
        self.setAlternatingRowColors(True)
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setFrameShape(QTableView.Shape.NoFrame)
        self.verticalHeader().hide()
        self.horizontalHeader().setHighlightSections(False)
        for header in (self.horizontalHeader(), self.verticalHeader()):
            header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)


class ResultsView(QTabWidget):
    """Shows a result, complete or not: settings, groups of prompts, pictures."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.results = TableView(theme, "Results")
        self.groups = TableView(theme, "Results by group of prompts")
        self.picture = PlotView(theme, "Pictures of the results")
        self._scroll = scrolled(self.picture)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self._scroll.setAlignment(Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop)
        self._scroll.setBackgroundRole(QPalette.ColorRole.Base)
        self.addTab(self.results, "Results")
        self.addTab(self.groups, "By group")
        self.addTab(self._scroll, "Pictures")
        self.setDocumentMode(True)
        self.picture.part_reached.connect(self._reveal)

    def show_result(self, result: BenchResult) -> None:
        self.results.table.show_rows(*result_rows(result.reports))
        self.groups.table.show_rows(*group_rows(result.reports), name_columns=2)
        self.setTabEnabled(1, any(report.groups for report in result.reports))
        self.picture.show_plots(plots_of(result))

    def _reveal(self, part: QRect) -> None:
        middle = part.center()
        self._scroll.ensureVisible(middle.x(), middle.y(), part.width() // 2 + SMALL, part.height() // 2 + SMALL)


def result_rows(reports: Sequence[CellReport]) -> tuple[list[TableCell], list[list[TableCell]]]:
    """Return titles and rows of all settings."""
    titles = [TableCell("Setting"), TableCell("Same text", _SAME), *_titles()]
    return titles, [[_name(report), _same(report), *_figures(report.figures)] for report in reports]


def group_rows(reports: Sequence[CellReport]) -> tuple[list[TableCell], list[list[TableCell]]]:
    """Return titles and rows of all settings, group by group of prompts."""
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


def export(result: BenchResult, path: Path) -> None:
    """Write a benchmark as CSV, JSON or a picture, as the ending of the file's name says.

    Raises:
        RdchatError: If the name has another ending, or the file cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in EXPORT_TYPES:
        *others, last = EXPORT_TYPES
        ends = f"{', '.join(others)} or {last}"
        raise InvalidSettingError(f"{path.name} cannot be exported: its name must end in {ends}.")
    if kind in PICTURE_TYPES:
        save_picture(plots_of(result), path)
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            if kind == ".csv":
                write_csv(file, result)
            else:
                json.dump(result.as_json(), file, ensure_ascii=False, indent=2)
    except OSError as error:
        raise StorageError(f"The file {path} cannot be written: {error.strerror}.", "Choose another place.") from error
