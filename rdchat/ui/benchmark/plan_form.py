"""The form of a benchmark of several prompts: the prompts, drafting modes, sizes, precisions and numbers of replies."""

from collections.abc import Callable
from itertools import batched
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QLineEdit, QSpinBox, QWidget

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
from rdchat.services.engine.draft_control import DraftControl
from rdchat.ui.benchmark.results import PLAIN_EXPLANATION
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    MODES,
    TIGHT,
    FileMode,
    Theme,
    ThemedLabel,
    add_row,
    ask_to_open,
    choice_box,
    form_layout,
    formatting,
    push_button,
    row,
    set_tip,
    small_text,
)

_NEW = DraftSettings()
_MODE_NAMES = {Mode.OFF: "Off, twice (measuring error)"}
_CHECKED = (Mode.AUTO, Mode.DRAFTER, Mode.LOOKUP)
# Label and explanation of a field, by its name among the draft settings, which also have its first value (`_NEW`).
_SIZES = {
    "beam_width": ("Beams", "Beams that the drafter follows side by side"),
    "beam_length": ("Beam length", "The first token is the model's own, so a beam of 5 drafts 4"),
    "draft_tokens": ("Draft tokens", "About how many tokens Draft model and Prompt lookup propose"),
}
_FILES = "A file has one prompt per line, or JSON lines with “prompt” (and “category”), or Spec-Bench's “turns”."
_PROMPT_KINDS = ["Prompts (*.txt *.jsonl *.json)", "All files (*)"]


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
        self.source = choice_box("Prompts", "", [(f"Everyday questions ({len(EVERYDAY_PROMPTS)})", EVERYDAY_PROMPTS)])
        self.source.currentIndexChanged.connect(self.changed)
        self._form.addRow(self.source)  # Without a label: names of files are long.
        self._form.addRow(push_button("Prompts from a File…", _FILES, self._choose_file))
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
            name: self._add_field(label, text, QLineEdit(str(getattr(_NEW, name))))
            for name, (label, text) in _SIZES.items()
        }
        tip = "0 always takes the most likely token"
        self.temperatures = self._add_field("Temperature", tip, QLineEdit("0"))
        self._add_heading("Precision", "Other precisions reload the model; yours is restored afterwards.")
        names = formatting.DTYPE_TEXT | {Dtype.AUTO: "As loaded"}
        self.dtypes = {dtype: self._box(names[dtype], dtype is Dtype.AUTO) for dtype in Dtype}
        for pair in batched(self.dtypes.values(), 2):
            self._form.addRow(row(*((box, 1) for box in pair)))
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

    def _add_field[F: QSpinBox | QLineEdit](self, name: str, text: str, field: F) -> F:
        add_row(self._form, name, field, text)
        field.textChanged.connect(self.changed)
        return field

    def plan(self) -> BenchPlan:
        """Return the plan of the fields.

        Raises:
            InvalidSettingError: If the content of a field is invalid; the message names the field.
        """
        drafting = self._drafting.settings
        prompts: tuple[Prompt, ...] = self.source.currentData()
        if limit := self.limit.value():
            prompts = tuple(first_of_each_group(prompts, limit))
        sweep = Sweep(
            self._chosen(),
            self._sizes("beam_width"),
            self._sizes("beam_length"),
            self._sizes("draft_tokens"),
            temperatures=_numbers(self.temperatures, float),
            dtypes=tuple(dtype for dtype, box in self.dtypes.items() if box.isChecked()),
            draft_model=drafting.draft_model,
            drafters=(drafting.drafter,),
        )
        replies = self.max_tokens.value()
        trials = self.trials.value()
        return BenchPlan(sweep.cells(), prompts, replies, trials, mlx_lm=self.mlx_lm.isChecked())

    def read_prompts(self, path: str) -> None:
        """Take the prompts of a file, or emit `failed`."""
        try:
            prompts = tuple(read_prompts(Path(path)))
        except RdchatError as error:
            self.failed.emit(str(error))
            return
        self.source.insertItem(0, f"{Path(path).name} ({len(prompts)})", prompts)
        self.source.setCurrentIndex(0)

    def _choose_file(self) -> None:
        title = "Choose a file of prompts"
        ask_to_open(self, title, FileMode.ExistingFile, lambda names: self.read_prompts(names[0]), _PROMPT_KINDS)

    def _sizes(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a size; none if no chosen mode uses it: `_show_sizes` disables its field then.

        `isEnabledTo` asks for the field's own state: a run disables the whole form, which changes no plan.
        """
        return _numbers(self.sizes[name], int) if self.sizes[name].isEnabledTo(self) else ()

    def _chosen(self) -> tuple[Mode, ...]:
        return tuple(mode for mode, box in self.modes.items() if box.isChecked() and box.isEnabledTo(self))

    def _show_options(self) -> None:
        """Enable the modes that the loaded model can run; tooltips give the reasons for the others."""
        for mode, box in self.modes.items():
            reason = self._drafting.problem(mode)
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


def _numbers[T: (int, float)](field: QLineEdit, kind: Callable[[str], T]) -> tuple[T, ...]:
    """Return the numbers in a field, separated by commas, each once.

    Raises:
        InvalidSettingError: If the field is empty, or an entry is not a number.
    """
    items = [item.strip() for item in field.text().split(",") if item.strip()]
    if not items:
        raise InvalidSettingError(f"{field.accessibleName()}: type at least one number.")
    try:
        return tuple(dict.fromkeys(kind(item) for item in items))
    except ValueError as error:
        name = "whole numbers" if kind is int else "numbers"
        problem = f"{field.accessibleName()}: type {name} separated by commas, such as 1, 4."
        raise InvalidSettingError(problem) from error
