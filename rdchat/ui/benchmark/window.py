"""The benchmark window: the plan at the left, the results at the right, the progress below."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.benchmark.csv_format import read_csv
from rdchat.inference.benchmark.result import BenchResult, environment
from rdchat.services.chat_controller import ChatController
from rdchat.services.engine.engine_events import Failure
from rdchat.ui.benchmark.obstacles import Obstacles
from rdchat.ui.benchmark.plan_form import PlanForm
from rdchat.ui.benchmark.results import EXPORT_TYPES, ResultsView, export
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import Ground, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row, scrolled, thin_bar
from rdchat.ui.look.opening import FileMode, SideWindow, ask, ask_to_open, ask_to_save
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.look.throttle import Throttle

_FORM_WIDTH = 300
_INTRODUCTION = (
    "Every setting answers every prompt, in turns with plain decoding, so that they share the machine's "
    "ups and downs. Results show here as they come."
)
_START_TIP = "Measure what is chosen at the left"
_RESULT_KINDS = ["Comma-separated values (*.csv)", "All files (*)"]
_EXPORT_KINDS = [f"{kind[1:].upper()} (*{kind})" for kind in EXPORT_TYPES]


class BenchmarkWindow(SideWindow):
    """Starts benchmarks, shows the last one or one of a file, and exports it."""

    def __init__(
        self, controller: ChatController, obstacles: Obstacles, theme: Theme, parent: QWidget | None = None
    ) -> None:
        super().__init__("Benchmark", (1080, 700), (720, 460), parent)
        self._benchmark, self._obstacles, self._model = controller.benchmark, obstacles, controller.model_slot
        self._result: BenchResult | None = None
        self._outcome: tuple[str, str] | None = None  # how the last action ended: words and their colour
        self.form = PlanForm(controller.drafting, theme)
        self.results = ResultsView(theme)
        self._build_bar(theme)
        self._lay_out(theme)
        self._throttle = Throttle(self)
        self._throttle.due.connect(self._show_runs)
        self._connect()
        controller.drafting.changed.connect(self._show_state)  # the form was connected before
        self._show_state()

    def _build_bar(self, theme: Theme) -> None:
        self.status = ThemedLabel(theme, "", "muted", tabular=True, wraps=True)
        self.progress = thin_bar("Progress of the benchmark")
        self.open_csv = push_button("Open CSV…", "Show a benchmark of a file: of rdchat, or of Apple's scripts")
        self.export = push_button("Export…", "Save as CSV, JSON, PNG, SVG or PDF")
        self.start = push_button("Run benchmark", _START_TIP)
        self.start.setDefault(True)

    def _lay_out(self, theme: Theme) -> None:
        side = scrolled(self.form)
        bar_width = side.verticalScrollBar().sizeHint().width()
        side.setFixedWidth(max(_FORM_WIDTH, self.form.minimumSizeHint().width() + bar_width))
        empty = ThemedLabel(theme, _INTRODUCTION, "muted", 1, wraps=True)
        empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        empty.setContentsMargins(2 * LARGE, 0, 2 * LARGE, 0)
        self.stack = QStackedWidget()
        self.stack.addWidget(empty)
        self.stack.addWidget(self.results)
        line = Ground(theme, "border")
        line.setFixedWidth(1)
        middle = row(side, line, (self.stack, 1), spacing=0)
        words = column(self.status, self.progress, spacing=TIGHT)
        buttons = self.open_csv, self.export, self.start
        bar = row((words, 1), *buttons, margins=(LARGE, SMALL, LARGE, MEDIUM))
        column((middle, 1), Separator(theme), bar, within=self, spacing=0)

    def _connect(self) -> None:
        benchmark = self._benchmark
        self.start.clicked.connect(self._press)
        self.open_csv.clicked.connect(self._choose_csv)
        self.export.clicked.connect(self._choose_place)
        self.form.changed.connect(self._on_edited)
        self.form.failed.connect(self._show_outcome)
        benchmark.started.connect(self._show_state)
        benchmark.progressed.connect(self._show_progress)
        benchmark.runs_made.connect(self._throttle.note)
        benchmark.ended.connect(self._on_ended)
        benchmark.failed.connect(self._on_failed)
        self._obstacles.changed.connect(self._show_state)

    def show_result(self, result: BenchResult) -> None:
        self._result = result
        self.results.show_result(result)
        self.stack.setCurrentWidget(self.results)
        self.export.setEnabled(True)

    def closeEvent(self, event: QCloseEvent) -> None:
        """Close, or ask first while a benchmark runs: stopping it by accident may cost an hour."""
        event.setAccepted(not self._benchmark.running)
        if self._benchmark.running:
            self.ask_to_stop("Stop the benchmark?", "Stop and close", self.hide)

    def ask_to_stop(self, question: str, answer: str, then: Callable[[], object]) -> None:
        """Ask whether to stop the running benchmark; if so, call `then`."""
        words = "It is still running. What it has found out so far stays here until rdchat is quit."

        def stop() -> None:
            self._benchmark.stop()
            then()

        box = ask(self, question, words, answer, stop, leave="Keep running")
        self._benchmark.ended.connect(box.reject)
        self._benchmark.failed.connect(box.reject)

    def _press(self) -> None:
        if self._benchmark.running:
            self.start.setEnabled(False)
            self._benchmark.stop()
            return
        try:
            plan = self.form.plan()
        except InvalidSettingError as error:
            self._show_outcome(str(error))
            return
        self._result = self._outcome = None
        self.stack.setCurrentIndex(0)
        self._benchmark.start(plan, environment(self._model.info))

    def _show_runs(self) -> None:
        if (result := self._benchmark.result) is not None:
            self.show_result(result)

    def _show_state(self) -> None:
        running = self._benchmark.running
        self.form.setEnabled(not running)
        self.progress.setVisible(running)
        self.open_csv.setEnabled(not running)
        self.export.setEnabled(self._result is not None)
        self.start.setText("Stop" if running else "Run benchmark")
        if running:
            self.start.setEnabled(True)
            self._show_progress()
            return
        reason, words = self._obstacles.obstacle(), ""
        try:
            plan = self.form.plan()
            words = f"{plan.runs:,} replies of at most {plan.max_tokens} tokens"
        except InvalidSettingError as error:
            reason = reason or str(error)
        self.start.setEnabled(not reason)
        set_tip(self.start, reason or _START_TIP)
        self._say(*(self._outcome or ((reason, "danger") if reason else (words, "muted"))))

    def _on_edited(self) -> None:
        self._outcome = None
        self._show_state()

    def _show_progress(self) -> None:
        progress = self._benchmark.progress
        if progress is None:
            self.progress.setRange(0, 0)
            self._say(self._obstacles.waiting_words(), "muted")
            return
        self.progress.setRange(0, max(progress.total, 1))
        self.progress.setValue(progress.done)
        left = f", {progress.left_words}" if progress.left_words else ""
        self._say(f"{progress.done:,} of {progress.total:,}{left}: {progress.words}", "muted")

    def _on_ended(self, stopped: bool) -> None:
        made, planned = len(self._benchmark.runs), self._benchmark.plan.runs if self._benchmark.plan else 0
        done = f"Done: {formatting.counted(made, 'reply', 'replies')}."
        self._end(f"Stopped after {made:,} of {planned:,} replies." if stopped else done, "muted")

    def _on_failed(self, failure: Failure) -> None:
        self._end(f"{failure.message} {failure.hint}".strip(), "danger")

    def _end(self, words: str, color: str) -> None:
        self._show_runs()
        self._show_state()
        self._show_outcome(words, color)

    def _show_outcome(self, words: str, color: str = "danger") -> None:
        """Show how an action ended, until the next one."""
        self._outcome = words, color
        self._say(words, color)

    def _say(self, words: str, color: str) -> None:
        self.status.set_color(color)
        self.status.setText(words)

    def _choose_csv(self) -> None:  # Apple's scripts write two files that belong together
        ask_to_open(self, "Open a benchmark", FileMode.ExistingFiles, self.open_files, _RESULT_KINDS)

    def open_files(self, names: list[str]) -> None:
        """Show the benchmark of one file, or of Apple's two, or say why that failed."""
        try:
            self.show_result(read_csv([Path(name) for name in names]))
        except RdchatError as error:
            self._show_outcome(str(error))
        else:
            self._show_outcome(f"From {', '.join(Path(name).name for name in names)}", "muted")

    def _choose_place(self) -> None:
        ask_to_save(self, "Export the benchmark", "benchmark.csv", _EXPORT_KINDS, self.save)

    def save(self, name: str) -> None:
        """Write the benchmark to a file, or say why that failed."""
        assert self._result is not None, "there is nothing to export before"
        try:
            export(self._result, Path(name))
        except RdchatError as error:
            self._show_outcome(str(error))
        else:
            self._show_outcome(f"Saved as {Path(name).name}", "muted")
