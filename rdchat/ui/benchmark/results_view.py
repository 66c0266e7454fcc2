"""What came of a benchmark: the settings, the groups of prompts, and the pictures, each in a tab."""

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QFrame, QScrollArea, QTabWidget, QWidget

from rdchat.inference.api.bench_results import BenchRecord
from rdchat.inference.benchmark.picture_data import picture_data
from rdchat.inference.benchmark.report import summarise
from rdchat.ui.benchmark.report_table import TableView, group_rows, result_rows
from rdchat.ui.look.theme import SMALL, Theme
from rdchat.ui.plots.picture_files import plot_of
from rdchat.ui.plots.plot_view import PlotView


class ResultsView(QTabWidget):
    """Shows a record, whole or as far as it is."""

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
        self.picture.came_to.connect(self._reveal)

    def show_record(self, record: BenchRecord) -> None:
        reports = summarise(record.plan, record.runs)
        self.results.table.show_rows(*result_rows(reports))
        self.groups.table.show_rows(*group_rows(reports), name_columns=2)
        self.setTabEnabled(1, any(report.groups for report in reports))
        self.picture.show_plot(plot_of(picture_data(record.plan, record.runs)))

    def _reveal(self, part: QRect) -> None:
        middle = part.center()
        self._scroll.ensureVisible(middle.x(), middle.y(), part.width() // 2 + SMALL, part.height() // 2 + SMALL)
