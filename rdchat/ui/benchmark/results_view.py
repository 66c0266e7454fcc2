"""The results of a benchmark in three tabs: settings, groups of prompts, pictures."""

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QFrame, QScrollArea, QTabWidget, QWidget

from rdchat.inference.benchmark.charts import Charts
from rdchat.inference.benchmark.result import BenchResult
from rdchat.ui.benchmark.report_table import TableView, group_rows, result_rows
from rdchat.ui.look.theme import SMALL, Theme
from rdchat.ui.plots.pictures import plots_of
from rdchat.ui.plots.plot_view import PlotView


class ResultsView(QTabWidget):
    """Shows a result, whole or as far as it is."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.results = TableView(theme, "Results")
        self.groups = TableView(theme, "Results by group of prompts")
        self.picture = PlotView(theme, "Pictures of the results")
        self._scroll = scroll = QScrollArea(widgetResizable=True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setAlignment(Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignTop)
        scroll.setWidget(self.picture)
        scroll.setBackgroundRole(QPalette.ColorRole.Base)
        self.addTab(self.results, "Results")
        self.addTab(self.groups, "By group")
        self.addTab(scroll, "Pictures")
        self.setDocumentMode(True)
        self.picture.part_reached.connect(self._reveal)

    def show_result(self, result: BenchResult) -> None:
        self.results.table.show_rows(*result_rows(result.reports))
        self.groups.table.show_rows(*group_rows(result.reports), name_columns=2)
        self.setTabEnabled(1, any(report.groups for report in result.reports))
        self.picture.show_plots(plots_of(Charts.of(result)))

    def _reveal(self, part: QRect) -> None:
        middle = part.center()
        self._scroll.ensureVisible(middle.x(), middle.y(), part.width() // 2 + SMALL, part.height() // 2 + SMALL)
