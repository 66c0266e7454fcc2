"""The form of a benchmark: prompts, drafting modes, their sizes, precisions, and numbers of replies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QGridLayout, QLineEdit, QSpinBox, QWidget

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api.benchmark import EVERYDAY_PROMPTS, BenchPlan, Prompt, Sweep, first_of_each_group, read_prompts
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode
from rdchat.services.drafting.draft_control import DraftControl
from rdchat.ui.benchmark.results import PLAIN_EXPLANATION
from rdchat.ui.style import formatting
from rdchat.ui.style.definitions import MODES
from rdchat.ui.style.labels import ThemedLabel, set_tip
from rdchat.ui.style.layouts import add_row, form_layout
from rdchat.ui.style.opening import FileMode, ask_to_open
from rdchat.ui.style.theme import LARGE, MEDIUM, TIGHT, Theme

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
        """Return the prompts, or the first few of each group; a limit of 0 is none."""
        prompts: tuple[Prompt, ...] = self.itemData(self._last)
        return tuple(first_of_each_group(prompts, limit)) if limit else prompts

    def read(self, path: str) -> None:
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
            ask_to_open(self, title, FileMode.ExistingFile, lambda names: self.read(names[0]), _PROMPT_KINDS)


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
            self._form.addRow(ThemedLabel(self._theme, text, "muted", -1, wraps=True))

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
