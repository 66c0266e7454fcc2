"""The benchmark window: one prompt, or several; the form and the results of each, and the state of the run below."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api import BenchPlan, BenchResult, DraftSettings
from rdchat.inference.benchmark.result_files import environment
from rdchat.services.engine.benchmark import RaceResult
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.benchmark.plan_form import PlanForm
from rdchat.ui.benchmark.race import RaceForm, RaceView
from rdchat.ui.benchmark.results import EXPORT_TYPES, ResultsView, export
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TIGHT,
    Ground,
    Separator,
    SideWindow,
    TabBar,
    TextButton,
    Theme,
    ThemedLabel,
    ThinBar,
    Throttle,
    WholeArea,
    ask,
    ask_to_save,
    column,
    push_button,
    row,
    scrolled,
    set_tip,
    show_in_front,
    show_share,
)
from rdchat.wording import counted, rough_time

_INTRODUCTION = (
    "Every setting answers every prompt. They take turns, so all run under the same conditions. "
    "The first results appear here when all settings have answered the first prompt."
)
# States in which nothing can start.
_OBSTACLES = (EngineState.NO_MODEL, EngineState.LOADING)
# Gain of drafting that is assumed where the speed without it is not known.
_OFTEN_GAINED = 2.0
# How much slower a benchmark may be: prompts are read too, and sizes that do not pay are slower than no drafting.
_SLOWER = 1.5
_EXPORT_KINDS = [f"{kind[1:].upper()} (*{kind})" for kind in EXPORT_TYPES]


class BenchmarkWindow(SideWindow):
    """Runs one benchmark at a time and shows the last one of each kind."""

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Benchmark", (1080, 720), (720, 540), parent)
        self._controller = controller
        self._benchmark = controller.benchmark
        # The chats that the race was opened from: its prompt may be of one of them.
        self._chats = set[int | None]()
        # How the last action ended, until the next one: text and colour.
        self._outcome: tuple[str, str] | None = None
        self.race_form = RaceForm(controller)
        self.race = RaceView(theme)
        self.form = PlanForm(controller.drafting, theme)
        self.results = ResultsView(theme)
        self.tabs = TabBar(documentMode=True, drawBase=False, expanding=False)
        self.tabs.setAccessibleName("What to run")
        self.status = ThemedLabel(theme, "", "muted", tabular=True, wraps=True)
        self.progress = ThinBar("Progress of the benchmark")
        self.export = TextButton("Export…", theme, self._choose_file)
        self.start = push_button("Start", "", self._press)
        self.start.setDefault(True)
        self._lay_out(theme)
        self._throttle = Throttle(self, self._show_runs)
        self._connect()
        self._show_state()

    def _lay_out(self, theme: Theme) -> None:
        side = scrolled(self.form, WholeArea())
        introduction = ThemedLabel(theme, _INTRODUCTION, "muted", 1, wraps=True)
        introduction.setAlignment(Qt.AlignmentFlag.AlignCenter)
        introduction.setContentsMargins(2 * LARGE, 0, 2 * LARGE, 0)
        self.stack = QStackedWidget()
        self.stack.addWidget(introduction)
        self.stack.addWidget(self.results)
        self.results.setCornerWidget(self.export)
        line = Ground(theme, "border")
        line.setFixedWidth(1)
        one = QWidget()
        column(self.race_form, (self.race, 1), within=one, spacing=MEDIUM, margins=(LARGE, MEDIUM, LARGE, SMALL))
        several = QWidget()
        row(side, line, (self.stack, 1), within=several, spacing=0)
        pages = QStackedWidget()
        for name, page in (("One Prompt", one), ("Several Prompts", several)):
            self.tabs.addTab(name)
            pages.addWidget(page)
        self.tabs.currentChanged.connect(pages.setCurrentIndex)
        head = row(None, self.tabs, None, margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        text = column(self.status, self.progress, spacing=TIGHT)
        foot = row((text, 1), self.start, margins=(LARGE, SMALL, LARGE, MEDIUM))
        column(head, Separator(theme), (pages, 1), Separator(theme), foot, within=self, spacing=0)

    def _connect(self) -> None:
        for edited in (self.race_form.changed, self.form.changed, self.tabs.currentChanged):
            edited.connect(self._on_edited)
        self.form.failed.connect(self._show_outcome)
        self._benchmark.progressed.connect(self._show_state)
        self._benchmark.runs_made.connect(self._throttle.note)
        self._benchmark.piece_written.connect(self.race.show_piece)
        self._benchmark.ended.connect(self._on_ended)
        self._controller.status.changed.connect(self._show_state)
        # The form is connected first, so the plan that this reads has the modes that can run now.
        self._controller.drafting.changed.connect(self._show_state)
        self._controller.chat.temporary_ended.connect(self._forget_chat)

    def open_benchmark(self, prompt: str, tried: DraftSettings | None = None) -> None:
        """Show the window at the page that it showed last, with a prompt for the page of one.

        What a benchmark that runs was begun with stays.

        Args:
            prompt: See `RaceForm.open_with`.
            tried: Draft settings to try on the page of one prompt, which is shown then.
        """
        if not self._benchmark.running:
            self._chats.add(self._controller.chat.id)
            self.race_form.open_with(prompt, tried)
            if tried:
                self.tabs.setCurrentIndex(0)
            is_ready = self.tabs.currentIndex() or self.race_form.prompt.toPlainText().strip()
            (self.start if is_ready else self.race_form.prompt).setFocus()
        self._controller.drafting.refresh_options()
        show_in_front(self)

    def closeEvent(self, event: QCloseEvent) -> None:
        """Close, or ask first while a benchmark runs: stopping it by accident may cost an hour."""
        event.setAccepted(not self._benchmark.running)
        if self._benchmark.running:
            self.ask_to_stop("Stop the benchmark?", "Stop and Close", self.hide)

    def ask_to_stop(self, question: str, answer: str, then: Callable[[], object]) -> None:
        """Ask whether to stop the running benchmark; if so, call `then`.

        A plan that streams is a race, which is the benchmark of one prompt: only its replies are shown as they come.
        """
        text = "Results so far stay here until you quit rdchat."
        if self._benchmark.plan and self._benchmark.plan.streams:
            text = "The comparison needs both replies, so this one is lost."

        def stop() -> None:
            self._benchmark.end_runs()
            then()

        # A benchmark that ends by itself meanwhile answers the question.
        box = ask(self, question, text, answer, stop, leave="Keep Running")
        self._benchmark.ended.connect(box.reject)

    def save_benchmark(self, name: str) -> None:
        """Write the benchmark to a file, or show why that failed."""
        result = self.results.result
        assert result is not None, "there is nothing to export before"
        try:
            export(result, Path(name))
        except RdchatError as error:
            self._show_outcome(str(error))
        else:
            self._show_outcome(f"Saved as {Path(name).name}", "muted")

    def _choose_file(self) -> None:
        ask_to_save(self, "Export the benchmark", "benchmark.csv", _EXPORT_KINDS, self.save_benchmark)

    def _plan(self) -> BenchPlan:
        """Return what Start runs.

        Raises:
            InvalidSettingError: If nothing can start; the message says why.
        """
        status = self._controller.status.value
        if status.state in _OBSTACLES:
            raise InvalidSettingError(status.text)
        return (self.form if self.tabs.currentIndex() else self.race_form).plan()

    def _press(self) -> None:
        if self._benchmark.running:
            self._benchmark.end_runs()
            return
        plan = self._plan()
        self._outcome = None
        if plan.streams:
            self.race.clear_replies(plan.cells[0].draft.mode.label)
        else:
            self.stack.setCurrentIndex(0)
        self._benchmark.run_plan(plan, environment(self._controller.model_slot.info))

    def _forget_chat(self, chat_id: int) -> None:
        """Show nothing of a temporary chat that ended."""
        if chat_id in self._chats:
            self._benchmark.end_runs()
            self.race_form.prompt.clear()
            self.race.clear_replies("Drafting")

    def _show_runs(self) -> None:
        """Show the results so far of several prompts."""
        if isinstance(result := self._benchmark.result, BenchResult):
            self.results.show_result(result)
            self.stack.setCurrentWidget(self.results)

    def _on_ended(self) -> None:
        benchmark = self._benchmark
        self._show_runs()
        self._show_state()
        note = ""
        if isinstance(benchmark.result, RaceResult):
            self.race.show_result(benchmark.result)
        elif benchmark.result:
            note = f" {benchmark.result.load_note}"
        made = len(benchmark.runs)
        if benchmark.failure:
            self._show_outcome(str(benchmark.failure))
        elif benchmark.complete:
            self._show_outcome(f"Done: {counted(made, 'reply', 'replies')}.{note}".rstrip(), "muted")
        elif benchmark.plan:
            self._show_outcome(f"Stopped after {made:,} of {benchmark.plan.runs:,} replies.", "muted")

    def _on_edited(self) -> None:
        self._outcome = None
        self._show_state()

    def _show_outcome(self, text: str, color: str = "danger") -> None:
        self._outcome = text, color
        self.status.show_text(text, color)

    def _show_state(self) -> None:
        running = self._benchmark.running
        for part in (self.tabs, self.race_form, self.form):
            part.setEnabled(not running)
        self.progress.setVisible(running)
        self.start.setText("Stop" if running else "Start")
        if running:
            self.start.setEnabled(True)
            self._show_progress()
            return
        try:
            outlook = self._outlook(self._plan()), "muted"
            problem = ""
        except InvalidSettingError as error:
            problem = str(error)
            outlook = problem, "warning"
        self.start.setEnabled(not problem)
        set_tip(self.start, problem)
        self.status.show_text(*(self._outcome or outlook))

    def _outlook(self, plan: BenchPlan) -> str:
        """Return how much a plan writes, and how long that takes.

        The shortest time is at the pace of the model's last reply. The longest is at the pace without drafting, or, if
        that is not known to be slower, at the last reply's pace over `_OFTEN_GAINED`; and `_SLOWER` times as long.
        """
        text = f"{plan.runs:,} replies of up to {plan.max_tokens} tokens. "
        plain = self._controller.plain_pace()
        if plain is None:
            return f"{text}The time left is shown after the first reply."
        pace = self._controller.time_ledger.pace or plain
        slowest = plain if plain < pace else pace / _OFTEN_GAINED
        tokens = plan.runs * plan.max_tokens
        again = tokens // plan.trials if plan.overhead else 0  # Drafts are timed alone, too.
        shortest_s = tokens / pace
        longest_s = (tokens + again) / slowest * _SLOWER
        return f"{text}That takes {rough_time(shortest_s)} to {rough_time(longest_s)}."

    def _show_progress(self) -> None:
        progress = self._benchmark.progress
        if progress is None:
            show_share(self.progress, None)
            status = self._controller.status.value
            starts = status.text if status.state is EngineState.MEASURING else f"Starts when {status.sent_when}"
            self.status.show_text(starts, "muted")
            return
        # Before the first reply, the bar moves to and fro.
        show_share(self.progress, progress.done / max(progress.total, 1) or None)
        done = f"{progress.done:,} of {progress.total:,}{progress.left_text}"
        self.status.show_text(f"{done}: {progress.text}", "muted")
