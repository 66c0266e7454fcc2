"""The form of a benchmark: prompts, drafting modes, their sizes, precisions, and numbers of replies."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QGridLayout, QLineEdit, QSpinBox, QWidget

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api.bench_plan import BenchCell, BenchPlan
from rdchat.inference.api.prompt_files import Prompt, first_of_each_group, read_prompts
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode
from rdchat.inference.benchmark.sweep import EVERYDAY_PROMPTS, Sweep
from rdchat.services.chat.draft_control import DraftControl
from rdchat.ui.benchmark.results import PLAIN_EXPLANATION
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import add_row, form_layout
from rdchat.ui.look.opening import FileMode, ask_to_open
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, TIGHT, Theme

_MODE_NAMES = {Mode.OFF: "Off, run a second time"}
_NO_DRAFT_MODEL = "Choose a draft model in the speed panel first."
_CHECKED = (Mode.AUTO, Mode.DRAFTER, Mode.LOOKUP)
_PROMPT_KINDS = ["Prompts (*.txt *.jsonl *.json)", "All files (*)"]


class NumberField[T: (int, float)](QLineEdit):
    """A field for numbers separated by commas; error messages use its accessible name."""

    def __init__(self, kind: Callable[[str], T], first: T) -> None:
        super().__init__(str(first))
        self._kind: Callable[[str], T] = kind

    def numbers(self) -> tuple[T, ...]:
        """Return the numbers, each once.

        Raises:
            InvalidSettingError: If there is none, or something that is no number.
        """
        words = [word.strip() for word in self.text().split(",") if word.strip()]
        if not words:
            raise InvalidSettingError(f"{self.accessibleName()}: type at least one number.")
        try:
            return tuple(dict.fromkeys(self._kind(word) for word in words))
        except ValueError as error:
            whole = "whole numbers" if self._kind is int else "numbers"
            problem = f"{self.accessibleName()}: type {whole} separated by commas, such as 1, 4."
            raise InvalidSettingError(problem) from error


class PromptSource(QComboBox):
    """A choice between the everyday prompts, the file chosen last, and choosing a file."""

    chosen = Signal()
    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._prompts: list[tuple[Prompt, ...]] = [EVERYDAY_PROMPTS]  # and those of the file; by place in the list
        self._last = 0
        self.addItem(f"Everyday questions ({len(EVERYDAY_PROMPTS)})")
        self.addItem("From a file…")
        self.setAccessibleName("Prompts")
        set_tip(
            self,
            "A file holds a prompt a line, or JSON lines with “prompt” and perhaps “category”, "
            "or Spec-Bench's “turns”.",
        )
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(14)
        self.activated.connect(self._on_activated)

    def prompts(self, limit: int) -> tuple[Prompt, ...]:
        """Return the prompts, or the first few of each group; a limit of 0 is none."""
        prompts = self._prompts[self._last]
        return tuple(first_of_each_group(prompts, limit)) if limit else prompts

    def read(self, path: str) -> None:
        """Take the prompts of a file, or emit `failed`."""
        try:
            prompts = tuple(read_prompts(Path(path)))
        except RdchatError as error:
            self.failed.emit(str(error))
            return
        for place in range(1, len(self._prompts)):
            self.removeItem(place)
        self._prompts = [EVERYDAY_PROMPTS, prompts]
        self.insertItem(1, f"{Path(path).name} ({len(prompts)})")
        self._choose(1)

    def _choose(self, place: int) -> None:
        self._last = place
        self.setCurrentIndex(place)
        self.chosen.emit()

    def _on_activated(self, place: int) -> None:
        if place < len(self._prompts):
            self._choose(place)
            return
        with QSignalBlocker(self):
            self.setCurrentIndex(self._last)  # until a file is chosen
        title = "Choose a file of prompts"
        ask_to_open(self, title, FileMode.ExistingFile, lambda names: self.read(names[0]), _PROMPT_KINDS)


class PlanForm(QWidget):
    """A column of fields; `plan` returns the plan that they describe."""

    changed = Signal()  # by the person
    failed = Signal(str)

    def __init__(self, drafting: DraftControl, theme: Theme) -> None:
        super().__init__()
        usual = DraftSettings()
        self._drafting, self._theme = drafting, theme
        self.source = PromptSource()
        self.limit = QSpinBox(maximum=999)
        self.modes = {mode: QCheckBox(_MODE_NAMES.get(mode, mode.words)) for mode in Mode}
        self.beam_widths = NumberField[int](int, usual.beam_width)
        self.beam_lengths = NumberField[int](int, usual.beam_length)
        self.draft_tokens = NumberField[int](int, usual.draft_tokens)
        self.temperatures = NumberField[float](float, 0)
        self.dtypes = {dtype: QCheckBox(formatting.DTYPE_WORDS[dtype]) for dtype in Dtype}
        self.dtypes[Dtype.AUTO].setText("As loaded")
        self.max_tokens = QSpinBox(minimum=2, maximum=4096, value=64, singleStep=16)
        self.trials = QSpinBox(minimum=1, maximum=99, value=3)
        self.mlx_lm = QCheckBox("Compare with mlx-lm")
        for box in (*(self.modes[mode] for mode in _CHECKED), self.dtypes[Dtype.AUTO], self.mlx_lm):
            box.setChecked(True)
        self.limit.setSpecialValueText("All")
        self._lay_out()
        self._connect()
        self._show_options()

    def _lay_out(self) -> None:
        self._form = form = form_layout(self, spacing=(MEDIUM, TIGHT + 2), align=Qt.AlignmentFlag.AlignLeft)
        form.setContentsMargins(LARGE, 0, LARGE - 4, LARGE)
        self._add_heading("Prompts")
        form.addRow(self.source)  # over the whole width: names of files are long
        add_row(form, "Of each group", self.limit, "Only the first few prompts of each group.")
        self._add_heading("Drafting")
        for box in self.modes.values():
            form.addRow(box)
        self._add_heading("Sizes", "Numbers separated by commas; every combination is measured.")
        length = "L: tokens of a beam, the one already chosen included"
        tokens = "K: tokens that Draft model and Prompt lookup propose at most"
        add_row(form, "Beam width", self.beam_widths, "W: beams of Drafter")
        add_row(form, "Beam length", self.beam_lengths, length)
        add_row(form, "Draft tokens", self.draft_tokens, tokens)
        add_row(form, "Temperature", self.temperatures, "0 always takes the most likely token")
        self._add_heading("Precision", "Another one than the loaded model's loads it anew, and yours again at the end.")
        grid = QGridLayout()
        grid.setSpacing(TIGHT)
        for place, box in enumerate(self.dtypes.values()):
            grid.addWidget(box, place // 2, place % 2)
        form.addRow(grid)
        self._add_heading("Replies")
        add_row(form, "Tokens at most", self.max_tokens, "Where a reply ends at the latest.")
        add_row(form, "Trials", self.trials, "How often each setting answers each prompt.")
        set_tip(self.mlx_lm, "Runs stock mlx_lm.stream_generate on the same model as an outside baseline")
        form.addRow(self.mlx_lm)

    def _add_heading(self, name: str, words: str = "") -> None:
        heading = ThemedLabel(self._theme, name, bold=True)
        heading.setContentsMargins(0, LARGE - 4, 0, 0)
        self._form.addRow(heading)
        if words:
            self._form.addRow(ThemedLabel(self._theme, words, "muted", -1, wraps=True))

    def _connect(self) -> None:
        self.source.chosen.connect(self.changed)
        self.source.failed.connect(self.failed)
        for box in self.modes.values():
            box.toggled.connect(self._show_sizes)
        for box in (*self.modes.values(), *self.dtypes.values(), self.mlx_lm):
            box.toggled.connect(self.changed)  # after the sizes, which the plan depends on
        for number in (self.limit, self.max_tokens, self.trials):
            number.valueChanged.connect(self.changed)
        for field in (self.beam_widths, self.beam_lengths, self.draft_tokens, self.temperatures):
            field.textChanged.connect(self.changed)
        self._drafting.changed.connect(self._show_options)

    def plan(self) -> BenchPlan:
        """Return the plan of the fields.

        Raises:
            InvalidSettingError: If the content of a field is invalid; the message names the field.
        """
        drafting, prompts = self._drafting.settings, self.source.prompts(self.limit.value())
        sweep = Sweep(
            self._chosen(),
            self._numbers(self.beam_widths),
            self._numbers(self.beam_lengths),
            self._numbers(self.draft_tokens),
            temperatures=self.temperatures.numbers(),
            dtypes=tuple(dtype for dtype, box in self.dtypes.items() if box.isChecked()),
            draft_model=drafting.draft_model,
            drafters=(drafting.drafter,),
        )
        replies, trials = self.max_tokens.value(), self.trials.value()
        return BenchPlan(sweep.cells(), prompts, replies, trials, mlx_lm=self.mlx_lm.isChecked())

    def _numbers(self, field: NumberField[int]) -> tuple[int, ...]:
        """Return the numbers of a size; none if no chosen mode has it, whatever the field holds."""
        return field.numbers() if field.isEnabledTo(self) else ()

    def _chosen(self) -> tuple[Mode, ...]:
        return tuple(mode for mode, box in self.modes.items() if box.isChecked() and box.isEnabledTo(self))

    def _show_options(self) -> None:
        """Enable the modes that the loaded model can run; the others say why not."""
        for mode, box in self.modes.items():
            reason = self._reason(mode)
            box.setEnabled(not reason)
            explanation = PLAIN_EXPLANATION if mode is Mode.OFF else formatting.MODE_EXPLANATIONS[mode]
            set_tip(box, reason or explanation)
            box.setAccessibleDescription(reason or explanation)
        self._show_sizes()

    def _show_sizes(self) -> None:
        """Enable the sizes that a chosen mode has."""
        used = {name for mode in self._chosen() for name in BenchCell(DraftSettings(mode)).shape}
        self.beam_widths.setEnabled("beam_width" in used)
        self.beam_lengths.setEnabled("beam_length" in used)
        self.draft_tokens.setEnabled("draft_tokens" in used)

    def _reason(self, mode: Mode) -> str:
        if mode is Mode.SPECULATIVE and not self._drafting.settings.draft_model:
            return _NO_DRAFT_MODEL
        option = self._drafting.option(mode)
        return option.reason if option is not None and not option.available else ""
