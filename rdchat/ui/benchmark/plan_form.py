"""The form of a benchmark: prompts, drafting modes, their sizes, precisions, and numbers of replies."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QFormLayout, QGridLayout, QSpinBox, QVBoxLayout, QWidget

from rdchat.inference.api.bench_plan import BenchCell, BenchPlan
from rdchat.inference.api.prompt_files import first_of_each_group
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode
from rdchat.inference.benchmark.sweep import Sweep
from rdchat.services.chat.draft_control import DraftControl
from rdchat.ui.benchmark.number_field import NumberField
from rdchat.ui.benchmark.prompt_source import PromptSource
from rdchat.ui.benchmark.report_table import PLAIN_EXPLANATION
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

_MODE_NAMES = {Mode.OFF: "Off, run a second time"}
_NO_DRAFT_MODEL = "Choose a draft model in the speed panel first."
_CHECKED = (Mode.AUTO, Mode.DRAFTER, Mode.LOOKUP)


class PlanForm(QWidget):
    """A column of fields. `plan` makes the plan of what they hold."""

    changed = Signal()  # by the person
    failed = Signal(str)

    def __init__(self, drafting: DraftControl, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._drafting, self._theme = drafting, theme
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(LARGE, LARGE - 4, LARGE - 4, LARGE)
        self._column.setSpacing(SMALL)
        self._build_prompts()
        self._build_modes()
        self._build_sizes()
        self._build_precisions()
        self._build_amount()
        self._column.addStretch(1)
        drafting.changed.connect(self._show_options)
        self._show_options()

    def plan(self) -> BenchPlan:
        """Return what the fields ask for.

        Raises:
            InvalidSettingError: If a field holds what cannot be; the message names it.
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
        """Return the numbers of a size; none where no chosen mode has it, whatever the field holds."""
        return field.numbers() if field.isEnabledTo(self) else ()

    def _build_prompts(self) -> None:
        form = self._section("Prompts")
        self.source = PromptSource()
        self.limit = QSpinBox(maximum=999)
        self.limit.setSpecialValueText("All")
        form.addRow(self.source)  # over the whole width: names of files are long
        _add(form, "Of each group", self.limit, "Only the first few prompts of each group.")
        self.source.chosen.connect(self.changed)
        self.source.failed.connect(self.failed)
        self.limit.valueChanged.connect(self.changed)

    def _build_modes(self) -> None:
        self._heading("Drafting")
        self.modes = {mode: QCheckBox(_MODE_NAMES.get(mode, mode.words)) for mode in Mode}
        for mode, box in self.modes.items():
            box.setChecked(mode in _CHECKED)
            box.toggled.connect(self._show_sizes)
            box.toggled.connect(self.changed)  # after the sizes: who hears it reads the plan
            self._column.addWidget(box)

    def _build_sizes(self) -> None:
        form = self._section("Sizes", "Numbers separated by commas; every combination is measured.")
        usual = DraftSettings()
        self.beam_widths = NumberField[int]("Beam width", int, str(usual.beam_width), "W: beams of Drafter")
        self.beam_lengths = NumberField[int](
            "Beam length",
            int,
            str(usual.beam_length),
            "L: tokens of a beam, the one already chosen included",
        )
        self.draft_tokens = NumberField[int](
            "Draft tokens", int, str(usual.draft_tokens), "K: tokens that Draft model and Prompt lookup propose at most"
        )
        self.temperatures = NumberField[float]("Temperature", float, "0", "0 always takes the most likely token")
        for field in (self.beam_widths, self.beam_lengths, self.draft_tokens, self.temperatures):
            form.addRow(field.accessibleName(), field)
            field.textChanged.connect(self.changed)
        self._sizes = {
            "beam_width": self.beam_widths,
            "beam_length": self.beam_lengths,
            "draft_tokens": self.draft_tokens,
        }

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

    def _build_amount(self) -> None:
        form = self._section("Replies")
        self.max_tokens = QSpinBox(minimum=2, maximum=4096, value=64, singleStep=16)
        self.trials = QSpinBox(minimum=1, maximum=99, value=3)
        self.mlx_lm = QCheckBox("Compare with mlx-lm")
        self.mlx_lm.setChecked(True)
        set_tip(self.mlx_lm, "Runs stock mlx_lm.stream_generate on the same model as an outside baseline")
        _add(form, "Tokens at most", self.max_tokens, "Where a reply ends at the latest.")
        _add(form, "Trials", self.trials, "How often each setting answers each prompt.")
        self._column.addWidget(self.mlx_lm)
        self.max_tokens.valueChanged.connect(self.changed)
        self.trials.valueChanged.connect(self.changed)
        self.mlx_lm.toggled.connect(self.changed)

    def _heading(self, name: str, words: str = "") -> None:
        if self._column.count():
            self._column.addSpacing(MEDIUM)
        self._column.addWidget(ThemedLabel(self._theme, name, bold=True))
        if words:
            label = ThemedLabel(self._theme, words, "muted", -1)
            label.setWordWrap(True)
            self._column.addWidget(label)

    def _section(self, name: str, words: str = "") -> QFormLayout:
        self._heading(name, words)
        form = QFormLayout()
        form.setHorizontalSpacing(MEDIUM)
        form.setVerticalSpacing(TIGHT + 2)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        self._column.addLayout(form)
        return form

    def _show_options(self) -> None:
        """Let only those modes be chosen that the loaded model can have; the others say why not."""
        for mode, box in self.modes.items():
            reason = self._reason(mode)
            box.setEnabled(not reason)
            explanation = PLAIN_EXPLANATION if mode is Mode.OFF else formatting.MODE_EXPLANATIONS[mode]
            set_tip(box, reason or explanation)
            box.setAccessibleDescription(reason or explanation)
        self._show_sizes()

    def _show_sizes(self) -> None:
        """Let only those sizes be typed that a chosen mode has."""
        used = {name for mode in self._chosen() for name in BenchCell(DraftSettings(mode)).shape}
        for name, field in self._sizes.items():
            field.setEnabled(name in used)

    def _reason(self, mode: Mode) -> str:
        if mode is Mode.SPECULATIVE and not self._drafting.settings.draft_model:
            return _NO_DRAFT_MODEL
        option = self._drafting.option(mode)
        return option.reason if option is not None and not option.available else ""


def _add(form: QFormLayout, name: str, field: QWidget, explanation: str) -> None:
    field.setAccessibleName(name)
    set_tip(field, explanation)
    form.addRow(name, field)
