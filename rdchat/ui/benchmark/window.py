"""The benchmark window: the plan at the left, the results at the right, the progress below."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api.benchmark import BenchPlan
from rdchat.inference.benchmark.result import BenchResult, environment
from rdchat.services.chat_controller import ChatController
from rdchat.ui.benchmark.plan_form import PlanForm
from rdchat.ui.benchmark.race_window import follow_obstacles, obstacle, waiting_text
from rdchat.ui.benchmark.results import EXPORT_TYPES, ResultsView, export
from rdchat.ui.style import formatting
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.labels import Ground, Separator, ThemedLabel, set_tip
from rdchat.ui.style.layouts import ThinBar, column, row, scrolled, show_share
from rdchat.ui.style.opening import SideWindow, ask, ask_to_save
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.style.throttle import Throttle

_FORM_WIDTH = 300
_INTRODUCTION = (
    "Every setting answers every prompt. They take turns, so all run under the same conditions. "
    "The first results appear here when all settings have answered the first prompt."
)
# Gain of drafting that is assumed where the speed without it is not known.
_OFTEN_GAINED = 2.0
# How much slower a benchmark may be: prompts are read too, and sizes that do not pay are slower than no drafting.
_SLOWER = 1.5
_START_TIP = "Measure the settings chosen at the left"
_EXPORT_KINDS = [f"{kind[1:].upper()} (*{kind})" for kind in EXPORT_TYPES]


class BenchmarkWindow(SideWindow):
    """Starts benchmarks, shows the last one, and exports it."""

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Benchmark", (1160, 700), (720, 460), parent)
        self._controller = controller
        self._benchmark = controller.benchmark
        self._result: BenchResult | None = None
        self._outcome: tuple[str, str] | None = None
        self.form = PlanForm(controller.drafting, theme)
        self.results = ResultsView(theme)
        self._build_bar(theme)
        self._lay_out(theme)
        self._throttle = Throttle(self, self._show_runs)
        self._connect()
        controller.drafting.changed.connect(self._show_state)  # The form is connected first.
        self._show_state()

    def _build_bar(self, theme: Theme) -> None:
        self.status = ThemedLabel(theme, "", "muted", tabular=True, wraps=True)
        self.progress = ThinBar("Progress of the benchmark")
        self.export = push_button("Export…", "Save as CSV, JSON, PNG or PDF", self._choose_file)
        self.start = push_button("Run Benchmark", _START_TIP, self._press)
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
        text = column(self.status, self.progress, spacing=TIGHT)
        bar = row((text, 1), self.export, self.start, margins=(LARGE, SMALL, LARGE, MEDIUM))
        column((middle, 1), Separator(theme), bar, within=self, spacing=0)

    def _connect(self) -> None:
        benchmark = self._benchmark
        self.form.changed.connect(self._on_edited)
        self.form.failed.connect(self._show_outcome)
        benchmark.progressed.connect(self._show_progress)
        benchmark.runs_made.connect(self._throttle.note)
        benchmark.ended.connect(self._on_ended)
        benchmark.failed.connect(lambda failure: self._end(f"{failure.message} {failure.hint}".strip(), "danger"))
        follow_obstacles(self._controller, self._show_state)

    def show_result(self, result: BenchResult) -> None:
        self._result = result
        self.results.show_result(result)
        self.stack.setCurrentWidget(self.results)
        self.export.setEnabled(True)

    def closeEvent(self, event: QCloseEvent) -> None:
        """Close, or ask first while a benchmark runs: stopping it by accident may cost an hour."""
        event.setAccepted(not self._benchmark.running)
        if self._benchmark.running:
            self.ask_to_stop("Stop the benchmark?", "Stop and Close", self.hide)

    def ask_to_stop(self, question: str, answer: str, then: Callable[[], object]) -> None:
        """Ask whether to stop the running benchmark; if so, call `then`."""
        text = "The benchmark is still running. Results so far stay here until you quit rdchat."

        def stop() -> None:
            self._benchmark.stop()
            then()

        box = ask(self, question, text, answer, stop, leave="Keep Running")
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
        self._benchmark.start(plan, environment(self._controller.model_slot.info))

    def _show_runs(self) -> None:
        if (result := self._benchmark.result) is not None:
            self.show_result(result)

    def _show_state(self) -> None:
        running = self._benchmark.running
        self.form.setEnabled(not running)
        self.progress.setVisible(running)
        self.export.setEnabled(self._result is not None)
        self.start.setText("Stop" if running else "Run Benchmark")
        if running:
            self.start.setEnabled(True)
            self._show_progress()
            return
        reason = obstacle(self._controller)
        text = ""
        color = "muted"
        try:
            plan = self.form.plan()
            text = f"{plan.runs:,} replies of up to {plan.max_tokens} tokens. {self._time_text(plan)}"
        except InvalidSettingError as error:
            reason = reason or str(error)
            color = "danger"
        self.start.setEnabled(not reason)
        set_tip(self.start, reason or _START_TIP)
        self.status.show_text(*(self._outcome or (reason or text, color)))

    def _time_text(self, plan: BenchPlan) -> str:
        """Return how long a plan takes: at least at the speed of the model's last reply, at most without drafting."""
        controller = self._controller
        pace = controller.time_ledger.pace
        last = controller.chat.path.last_reply
        measured = last.statistics if last and last.model == controller.model_slot.name else None
        pace = pace or (measured.decode_tps if measured else None)
        if pace is None:
            return "The time left is shown after the first reply."
        plain = min(pace, (measured.plain_tps if measured else None) or pace / _OFTEN_GAINED)
        tokens = plan.runs * plan.max_tokens
        again = plan.runs // plan.trials * plan.max_tokens  # Drafts are timed alone, too.
        shortest_s = tokens / pace
        longest_s = (tokens + again) / plain * _SLOWER
        return f"That takes {formatting.rough_time(shortest_s)} to {formatting.rough_time(longest_s)}."

    def _on_edited(self) -> None:
        self._outcome = None
        self._show_state()

    def _show_progress(self) -> None:
        progress = self._benchmark.progress
        if progress is None:
            show_share(self.progress, None)
            self.status.show_text(waiting_text(self._controller), "muted")
            return
        show_share(self.progress, progress.done / max(progress.total, 1) or None)
        done = f"{progress.done:,} of {progress.total:,}{progress.left_text}"
        self.status.show_text(f"{done}: {progress.text}", "muted")

    def _on_ended(self, stopped: bool) -> None:
        made = len(self._benchmark.runs)
        planned = self._benchmark.plan.runs if self._benchmark.plan else 0
        load_note = self._benchmark.result.load_note if self._benchmark.result else ""
        done = f"Done: {formatting.counted(made, 'reply', 'replies')}. {load_note}".rstrip()
        self._end(f"Stopped after {made:,} of {planned:,} replies." if stopped else done, "muted")

    def _end(self, text: str, color: str) -> None:
        self._show_runs()
        self._show_state()
        self._show_outcome(text, color)

    def _show_outcome(self, text: str, color: str = "danger") -> None:
        """Show how an action ended, until the next one."""
        self._outcome = text, color
        self.status.show_text(text, color)

    def _choose_file(self) -> None:
        ask_to_save(self, "Export the benchmark", "benchmark.csv", _EXPORT_KINDS, self.save)

    def save(self, name: str) -> None:
        """Write the benchmark to a file, or show why that failed."""
        result = self._result
        assert result is not None, "there is nothing to export before"
        try:
            export(result, Path(name))
        except RdchatError as error:
            self._show_outcome(str(error))
        else:
            self._show_outcome(f"Saved as {Path(name).name}", "muted")
