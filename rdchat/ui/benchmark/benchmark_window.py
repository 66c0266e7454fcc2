"""The benchmark window: the plan at the left, the results at the right, the progress below.

The form of a benchmark: prompts, drafting modes, their sizes, precisions, and numbers of replies.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QGridLayout, QLineEdit, QSpinBox, QStackedWidget, QWidget

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api import (
    EVERYDAY_PROMPTS,
    BenchPlan,
    DraftSettings,
    Dtype,
    Mode,
    Prompt,
    Sweep,
    first_of_each_group,
    read_prompts,
)
from rdchat.inference.benchmark.result import BenchResult, environment
from rdchat.services.chat_controller import ChatController
from rdchat.services.engine.draft_control import DraftControl
from rdchat.ui.benchmark.race_window import follow_obstacles, obstacle, waiting_text
from rdchat.ui.benchmark.results import EXPORT_TYPES, PLAIN_EXPLANATION, ResultsView, export
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    MODES,
    SMALL,
    TIGHT,
    FileMode,
    Ground,
    Separator,
    SideWindow,
    Theme,
    ThemedLabel,
    ThinBar,
    Throttle,
    add_row,
    ask,
    ask_to_open,
    ask_to_save,
    column,
    form_layout,
    formatting,
    push_button,
    row,
    scrolled,
    set_tip,
    show_share,
    small_text,
)
from rdchat.wording import counted, rough_time

_NEW = DraftSettings()
_MODE_NAMES = {Mode.OFF: "Off, twice (measuring error)"}
_NO_DRAFT_MODEL = "Choose a draft model in the speed panel first."
_CHECKED = (Mode.AUTO, Mode.DRAFTER, Mode.LOOKUP)
# Label, explanation and first value of a field, by its name among the draft settings.
_SIZES = {
    "beam_width": ("Beams", "Beams that a drafter head follows side by side"),
    "beam_length": ("Beam length", "The first token is the model's own, so a beam of 5 drafts 4"),
    "draft_tokens": ("Draft tokens", "About how many tokens Draft model and Prompt lookup propose"),
}
_FILES = "A file has one prompt per line, or JSON lines with “prompt” (and “category”), or Spec-Bench's “turns”."
_PROMPT_KINDS = ["Prompts (*.txt *.jsonl *.json)", "All files (*)"]
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


class NumberField[T: (int, float)](QLineEdit):
    """A field for numbers separated by commas; error messages use its accessible name."""

    def __init__(self, kind: Callable[[str], T], first: T) -> None:
        super().__init__(str(first))
        self._kind: Callable[[str], T] = kind

    def numbers(self) -> tuple[T, ...]:
        """Return the numbers, each once.

        Raises:
            InvalidSettingError: If the field is empty, or an entry is not a number.
        """
        items = [item.strip() for item in self.text().split(",") if item.strip()]
        if not items:
            raise InvalidSettingError(f"{self.accessibleName()}: type at least one number.")
        try:
            return tuple(dict.fromkeys(self._kind(item) for item in items))
        except ValueError as error:
            kind = "whole numbers" if self._kind is int else "numbers"
            problem = f"{self.accessibleName()}: type {kind} separated by commas, such as 1, 4."
            raise InvalidSettingError(problem) from error


class PromptSource(QComboBox):
    """A choice of the everyday prompts, the file that was chosen last, or another file."""

    chosen = Signal()
    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__(minimumContentsLength=14)
        self.setAccessibleName("Prompts")
        self._last = 0
        self.addItem(f"Everyday questions ({len(EVERYDAY_PROMPTS)})", EVERYDAY_PROMPTS)
        self.addItem("From a file…")
        set_tip(self, _FILES)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.activated.connect(self._on_activated)

    def prompts(self, limit: int) -> tuple[Prompt, ...]:
        """Return the prompts, or the first few of each group; with a limit of 0, all."""
        prompts: tuple[Prompt, ...] = self.itemData(self._last)
        return tuple(first_of_each_group(prompts, limit)) if limit else prompts

    def read_prompts(self, path: str) -> None:
        """Take the prompts of a file, or emit `failed`."""
        try:
            prompts = tuple(read_prompts(Path(path)))
        except RdchatError as error:
            self.failed.emit(str(error))
            return
        if self.count() > 2:
            self.removeItem(1)
        self.insertItem(1, f"{Path(path).name} ({len(prompts)})", prompts)
        self._on_activated(1)

    def _on_activated(self, index: int) -> None:
        chosen = self.itemData(index) is not None
        self._last = index if chosen else self._last
        self.setCurrentIndex(self._last)  # The previous choice stays until a file is chosen.
        if chosen:
            self.chosen.emit()
        else:
            title = "Choose a file of prompts"
            ask_to_open(self, title, FileMode.ExistingFile, lambda names: self.read_prompts(names[0]), _PROMPT_KINDS)


class PlanForm(QWidget):
    """A column of fields; `plan` returns the plan that they describe. `changed` follows changes by the person."""

    changed = Signal()
    failed = Signal(str)

    def __init__(self, drafting: DraftControl, theme: Theme) -> None:
        super().__init__()
        self._drafting = drafting
        self._theme = theme
        self._form = form_layout(self, spacing=(MEDIUM, TIGHT + 2), align=Qt.AlignmentFlag.AlignLeft)
        self._form.setContentsMargins(LARGE, 0, LARGE - 4, LARGE)
        self._add_heading("Prompts")
        self.source = PromptSource()
        self.source.chosen.connect(self.changed)
        self.source.failed.connect(self.failed)
        self._form.addRow(self.source)  # Without a label: names of files are long.
        self.limit = self._add_field(
            "Prompts per group", "Only the first few prompts of each group.", QSpinBox(maximum=999)
        )
        self.limit.setSpecialValueText("All")
        self._add_heading("Drafting")
        self.modes = {mode: self._box(_MODE_NAMES.get(mode, mode.label), mode in _CHECKED) for mode in Mode}
        for box in self.modes.values():
            self._form.addRow(box)
        self._add_heading("Sizes", "Separate numbers by commas. Every combination is measured.")
        self.sizes = {
            name: self._add_field(label, text, NumberField[int](int, getattr(_NEW, name)))
            for name, (label, text) in _SIZES.items()
        }
        tip = "0 always takes the most likely token"
        self.temperatures = self._add_field("Temperature", tip, NumberField[float](float, 0))
        self._add_heading("Precision", "Other precisions reload the model; yours is restored afterwards.")
        names = formatting.DTYPE_TEXT | {Dtype.AUTO: "As loaded"}
        self.dtypes = {dtype: self._box(names[dtype], dtype is Dtype.AUTO) for dtype in Dtype}
        grid = QGridLayout()
        grid.setSpacing(TIGHT)
        for index, box in enumerate(self.dtypes.values()):
            grid.addWidget(box, index // 2, index % 2)
        self._form.addRow(grid)
        self._add_heading("Replies")
        max_tokens = QSpinBox(minimum=2, maximum=4096, value=64, singleStep=16, suffix=" tokens")
        max_tokens.setGroupSeparatorShown(True)
        trials = QSpinBox(minimum=1, value=3)
        self.max_tokens = self._add_field("Up to", "The longest that a reply may be.", max_tokens)
        self.trials = self._add_field("Trials", "How often each setting answers each prompt.", trials)
        self.mlx_lm = self._box("Compare with mlx-lm", checked=True)
        set_tip(self.mlx_lm, "Also times the unchanged mlx-lm library on the same model")
        self._form.addRow(self.mlx_lm)
        drafting.changed.connect(self._show_options)
        self._show_options()

    def _add_heading(self, name: str, text: str = "") -> None:
        heading = ThemedLabel(self._theme, name, bold=True)
        heading.setContentsMargins(0, LARGE - 4, 0, 0)
        self._form.addRow(heading)
        if text:
            self._form.addRow(small_text(self._theme, text))

    def _box(self, text: str, checked: bool) -> QCheckBox:
        box = QCheckBox(text)
        box.setChecked(checked)
        box.toggled.connect(self._show_sizes)  # First: the plan depends on them.
        box.toggled.connect(self.changed)
        return box

    def _add_field[F: QSpinBox | NumberField[Any]](self, name: str, text: str, field: F) -> F:
        add_row(self._form, name, field, text)
        field.textChanged.connect(self.changed)
        return field

    def plan(self) -> BenchPlan:
        """Return the plan of the fields.

        Raises:
            InvalidSettingError: If the content of a field is invalid; the message names the field.
        """
        drafting = self._drafting.settings
        prompts = self.source.prompts(self.limit.value())
        sweep = Sweep(
            self._chosen(),
            self._sizes("beam_width"),
            self._sizes("beam_length"),
            self._sizes("draft_tokens"),
            temperatures=self.temperatures.numbers(),
            dtypes=tuple(dtype for dtype, box in self.dtypes.items() if box.isChecked()),
            draft_model=drafting.draft_model,
            drafters=(drafting.drafter,),
        )
        replies = self.max_tokens.value()
        trials = self.trials.value()
        return BenchPlan(sweep.cells(), prompts, replies, trials, mlx_lm=self.mlx_lm.isChecked())

    def _sizes(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a size; none if no chosen mode uses it."""
        return self.sizes[name].numbers() if self.sizes[name].isEnabledTo(self) else ()

    def _chosen(self) -> tuple[Mode, ...]:
        return tuple(mode for mode, box in self.modes.items() if box.isChecked() and box.isEnabledTo(self))

    def _show_options(self) -> None:
        """Enable the modes that the loaded model can run; tooltips give the reasons for the others."""
        for mode, box in self.modes.items():
            reason = self._reason(mode)
            box.setEnabled(not reason)
            explanation = PLAIN_EXPLANATION if mode is Mode.OFF else MODES[mode]
            set_tip(box, reason or explanation)
            box.setAccessibleDescription(reason or explanation)
        self._show_sizes()

    def _show_sizes(self) -> None:
        """Enable the sizes that a chosen mode has."""
        used = {name for mode in self._chosen() for name in DraftSettings(mode).sizes}
        for name, field in self.sizes.items():
            field.setEnabled(name in used)

    def _reason(self, mode: Mode) -> str:
        if mode is Mode.SPECULATIVE and not self._drafting.settings.draft_model:
            return _NO_DRAFT_MODEL
        option = self._drafting.option(mode)
        return option.reason if option is not None and not option.available else ""


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
        self.status = ThemedLabel(theme, "", "muted", tabular=True, wraps=True)
        self.progress = ThinBar("Progress of the benchmark")
        self.export = push_button("Export…", "Save as CSV, JSON, PNG or PDF", self._choose_file)
        self.start = push_button("Run Benchmark", _START_TIP, self._press)
        self.start.setDefault(True)
        self._lay_out(theme)
        self._throttle = Throttle(self, self._show_runs)
        self._connect()
        controller.drafting.changed.connect(self._show_state)  # The form is connected first.
        self._show_state()

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
        benchmark.failed.connect(lambda failure: self._end(str(failure), "danger"))
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
            self._benchmark.end_runs()
            then()

        box = ask(self, question, text, answer, stop, leave="Keep Running")
        self._benchmark.ended.connect(box.reject)
        self._benchmark.failed.connect(box.reject)

    def _press(self) -> None:
        if self._benchmark.running:
            self.start.setEnabled(False)
            self._benchmark.end_runs()
            return
        try:
            plan = self.form.plan()
        except InvalidSettingError as error:
            self._show_outcome(str(error))
            return
        self._result = None
        self._outcome = None
        self.stack.setCurrentIndex(0)
        self._benchmark.run_plan(plan, environment(self._controller.model_slot.info))

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
        return f"That takes {rough_time(shortest_s)} to {rough_time(longest_s)}."

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
        done = f"Done: {counted(made, 'reply', 'replies')}. {load_note}".rstrip()
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
        ask_to_save(self, "Export the benchmark", "benchmark.csv", _EXPORT_KINDS, self.save_benchmark)

    def save_benchmark(self, name: str) -> None:
        """Write the benchmark to a file, or show why that failed."""
        result = self._result
        assert result is not None, "there is nothing to export before"
        try:
            export(result, Path(name))
        except RdchatError as error:
            self._show_outcome(str(error))
        else:
            self._show_outcome(f"Saved as {Path(name).name}", "muted")
