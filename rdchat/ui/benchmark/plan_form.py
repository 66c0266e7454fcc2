"""The form of a benchmark: prompts, drafting modes, their sizes, precisions, and numbers of replies."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QFormLayout, QGridLayout, QLineEdit, QSpinBox, QVBoxLayout, QWidget

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api.bench_plan import BenchCell, BenchPlan
from rdchat.inference.api.prompt_files import Prompt, first_of_each_group, read_prompts
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode
from rdchat.inference.benchmark.sweep import EVERYDAY_PROMPTS, Sweep
from rdchat.services.chat.draft_control import DraftControl
from rdchat.ui.benchmark.results import PLAIN_EXPLANATION
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.opening import FileMode, ask_to_open
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

_MODE_NAMES = {Mode.OFF: "Off, run a second time"}
_NO_DRAFT_MODEL = "Choose a draft model in the speed panel first."
_CHECKED = (Mode.AUTO, Mode.DRAFTER, Mode.LOOKUP)
_EVERYDAY = 0  # its place among the prompt sources
_PROMPT_KINDS = ["Prompts (*.txt *.jsonl *.json)", "All files (*)"]


class NumberField[T: (int, float)](QLineEdit):
    """A field for numbers separated by commas.

    Args:
        name: What the numbers are, for error messages and screen readers.
        kind: `int` or `float`.
        text: The first content.
        explanation: The tooltip.
    """

    def __init__(self, name: str, kind: Callable[[str], T], text: str, explanation: str) -> None:
        super().__init__(text)
        self._name = name
        self._kind: Callable[[str], T] = kind
        self.setAccessibleName(name)
        set_tip(self, explanation)

    def numbers(self) -> tuple[T, ...]:
        """Return the numbers, each once.

        Raises:
            InvalidSettingError: If there is none, or something that is no number.
        """
        words = [word.strip() for word in self.text().split(",") if word.strip()]
        if not words:
            raise InvalidSettingError(f"{self._name}: type at least one number.")
        try:
            return tuple(dict.fromkeys(self._kind(word) for word in words))
        except ValueError as error:
            whole = "whole numbers" if self._kind is int else "numbers"
            raise InvalidSettingError(f"{self._name}: type {whole} separated by commas, such as 1, 4.") from error


class PromptSource(QComboBox):
    """A choice between the everyday prompts, the file chosen last, and choosing a file."""

    chosen = Signal()
    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._of_file: tuple[Prompt, ...] = ()
        self._last = _EVERYDAY
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

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return EVERYDAY_PROMPTS if self.currentIndex() == _EVERYDAY else self._of_file

    def read(self, path: str) -> None:
        """Take the prompts of a file, or emit `failed`."""
        try:
            prompts = tuple(read_prompts(Path(path)))
        except RdchatError as error:
            self.failed.emit(str(error))
            return
        if self._of_file:
            self.removeItem(_EVERYDAY + 1)
        self._of_file = prompts
        self.insertItem(_EVERYDAY + 1, f"{Path(path).name} ({len(prompts)})")
        self._last = _EVERYDAY + 1
        self.setCurrentIndex(self._last)
        self.chosen.emit()

    def _on_activated(self, place: int) -> None:
        if place != self.count() - 1:
            self._last = place
            self.chosen.emit()
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
        self._drafting, self._theme = drafting, theme
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(LARGE, LARGE - 4, LARGE - 4, LARGE)
        self._column.setSpacing(SMALL)
        self._build_prompts()
        self._build_modes()
        self._build_sizes()
        self._build_precisions()
        self._build_replies()
        self._column.addStretch(1)
        drafting.changed.connect(self._show_options)
        self._show_options()

    def plan(self) -> BenchPlan:
        """Return the plan of the fields.

        Raises:
            InvalidSettingError: If the content of a field is invalid; the message names the field.
        """
        drafting = self._drafting.settings
        sweep = Sweep(
            modes=self._chosen(),
            beam_widths=self._numbers(self.beam_widths),
            beam_lengths=self._numbers(self.beam_lengths),
            draft_tokens=self._numbers(self.draft_tokens),
            temperatures=self.temperatures.numbers(),
            dtypes=tuple(dtype for dtype, box in self.dtypes.items() if box.isChecked()),
            draft_model=drafting.draft_model,
            drafters=(drafting.drafter,),
        )
        prompts = self.source.prompts
        if self.limit.value():
            prompts = tuple(first_of_each_group(prompts, self.limit.value()))
        return BenchPlan(
            sweep.cells(), prompts, self.max_tokens.value(), self.trials.value(), mlx_lm=self.mlx_lm.isChecked()
        )

    def _chosen(self) -> tuple[Mode, ...]:
        return tuple(mode for mode, box in self.modes.items() if box.isChecked() and box.isEnabledTo(self))

    def _numbers(self, field: NumberField[int]) -> tuple[int, ...]:
        """Return the numbers of a size; none if no chosen mode has it, whatever the field holds."""
        return field.numbers() if field.isEnabledTo(self) else ()

    def _build_prompts(self) -> None:
        form = self._section("Prompts")
        self.source = PromptSource()
        self.source.chosen.connect(self.changed)
        self.source.failed.connect(self.failed)
        form.addRow(self.source)  # over the whole width: names of files are long
        self.limit = QSpinBox(maximum=999)
        self.limit.setSpecialValueText("All")
        self._add_number(form, "Of each group", self.limit, "Only the first few prompts of each group.")

    def _build_modes(self) -> None:
        self._heading("Drafting")
        self.modes = {mode: QCheckBox(_MODE_NAMES.get(mode, mode.words)) for mode in Mode}
        for mode, box in self.modes.items():
            box.setChecked(mode in _CHECKED)
            box.toggled.connect(self._show_sizes)
            box.toggled.connect(self.changed)  # after the sizes, which the plan depends on
            self._column.addWidget(box)

    def _build_sizes(self) -> None:
        form = self._section("Sizes", "Numbers separated by commas; every combination is measured.")
        usual = DraftSettings()
        length = "L: tokens of a beam, the one already chosen included"
        tokens = "K: tokens that Draft model and Prompt lookup propose at most"
        self.beam_widths = NumberField[int]("Beam width", int, str(usual.beam_width), "W: beams of Drafter")
        self.beam_lengths = NumberField[int]("Beam length", int, str(usual.beam_length), length)
        self.draft_tokens = NumberField[int]("Draft tokens", int, str(usual.draft_tokens), tokens)
        self.temperatures = NumberField[float]("Temperature", float, "0", "0 always takes the most likely token")
        for field in (self.beam_widths, self.beam_lengths, self.draft_tokens, self.temperatures):
            form.addRow(field.accessibleName(), field)
            field.textChanged.connect(self.changed)

    def _build_precisions(self) -> None:
        self._heading("Precision", "Another one than the loaded model's loads it anew, and yours again at the end.")
        grid = QGridLayout()
        grid.setSpacing(TIGHT)
        self.dtypes = {dtype: QCheckBox(formatting.DTYPE_WORDS[dtype]) for dtype in Dtype}
        self.dtypes[Dtype.AUTO].setText("As loaded")
        self.dtypes[Dtype.AUTO].setChecked(True)
        for place, box in enumerate(self.dtypes.values()):
            box.toggled.connect(self.changed)
            grid.addWidget(box, place // 2, place % 2)
        self._column.addLayout(grid)

    def _build_replies(self) -> None:
        form = self._section("Replies")
        self.max_tokens = QSpinBox(minimum=2, maximum=4096, value=64, singleStep=16)
        self.trials = QSpinBox(minimum=1, maximum=99, value=3)
        self._add_number(form, "Tokens at most", self.max_tokens, "Where a reply ends at the latest.")
        self._add_number(form, "Trials", self.trials, "How often each setting answers each prompt.")
        self.mlx_lm = QCheckBox("Compare with mlx-lm")
        self.mlx_lm.setChecked(True)
        self.mlx_lm.toggled.connect(self.changed)
        set_tip(self.mlx_lm, "Runs stock mlx_lm.stream_generate on the same model as an outside baseline")
        self._column.addWidget(self.mlx_lm)

    def _add_number(self, form: QFormLayout, name: str, field: QSpinBox, explanation: str) -> None:
        field.setAccessibleName(name)
        set_tip(field, explanation)
        field.valueChanged.connect(self.changed)
        form.addRow(name, field)

    def _heading(self, name: str, words: str = "") -> None:
        if self._column.count():
            self._column.addSpacing(MEDIUM)
        self._column.addWidget(ThemedLabel(self._theme, name, bold=True))
        if words:
            self._column.addWidget(ThemedLabel(self._theme, words, "muted", -1, wraps=True))

    def _section(self, name: str, words: str = "") -> QFormLayout:
        self._heading(name, words)
        form = QFormLayout()
        form.setHorizontalSpacing(MEDIUM)
        form.setVerticalSpacing(TIGHT + 2)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        self._column.addLayout(form)
        return form

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
