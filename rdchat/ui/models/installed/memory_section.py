"""Whether a model fits the memory, with a bar, the figures, and a choice of context and drafter."""

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QGridLayout, QWidget

from rdchat.inference.api.memory_facts import GATE_TOKENS, MachineMemory, MemoryNeed, gigabytes, memory_need
from rdchat.inference.api.model_card import ModelCard
from rdchat.inference.api.requests import Dtype
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import PlainLabel, set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.fields import choice_box
from rdchat.ui.models.installed.memory_bar import LIMIT, MemoryBar, MemoryPart, part_color
from rdchat.ui.models.installed.words import judge

_SWATCH, _MARK = 10, 2
_CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)


class MemorySection(QWidget):
    """Computes the need of memory as the engine does before it loads a model."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._model: ModelCard | None = None
        self._memory: MachineMemory | None = None
        self._dtype = Dtype.AUTO
        self._weights_bytes: int | None = None  # of the loaded model, as they are
        self._tokens = GATE_TOKENS  # chosen last, for whichever model
        self._drafters: list[ModelCard] = []  # heads and draft models
        self.verdict = ThemedLabel(theme, "", bold=True, wraps=True)
        self.detail = ThemedLabel(theme, "", "muted", wraps=True)
        self.bar = MemoryBar(theme)
        self._legend = QGridLayout()
        self._legend.setHorizontalSpacing(SMALL)
        self._legend.setVerticalSpacing(2)
        self._legend.setColumnStretch(1, 1)
        self._lines = [_Line(theme, self._legend, number) for number in range(5)]
        self.context = choice_box(
            "Context", "Tokens that prompt and reply have together; longer chats take more memory", letters=8
        )
        self.drafter = choice_box("Drafter", "What drafts takes memory beside the model", letters=14)
        for box in (self.context, self.drafter):
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self._build()
        self.context.activated.connect(self._choose_context)
        self.drafter.activated.connect(self._reckon)
        theme.changed.connect(self._reckon)

    def _build(self) -> None:
        labels = [ThemedLabel(self._theme, words, "muted") for words in ("Context", "Drafter")]
        for label, box in zip(labels, (self.context, self.drafter), strict=True):
            label.setBuddy(box)
        controls = row(labels[0], self.context, SMALL, labels[1], self.drafter, None)
        column(self.verdict, self.detail, self.bar, self._legend, TIGHT, controls, within=self, spacing=TIGHT)

    @property
    def gate(self) -> MemoryNeed | None:
        """The memory that the engine requires before it loads the shown model."""
        if self._model is None or self._model.sizes is None or self._memory is None:
            return None
        return memory_need(self._model.sizes, self._dtype, self._memory.on_gpu)

    def show_model(self, model: ModelCard, dtype: Dtype, weights_bytes: int | None) -> None:
        """Show another model.

        Args:
            model: Which; nothing is shown of one whose sizes are not known.
            dtype: The precision that it would be loaded in.
            weights_bytes: What its weights take, where it is loaded.
        """
        other = self._model is None or self._model.path != model.path
        self._model, self._dtype, self._weights_bytes = model, dtype, weights_bytes
        if other:
            self._drafters = []
            self._fill_contexts()
            self._fill_drafters()
        self._reckon()

    def show_memory(self, memory: MachineMemory | None) -> None:
        """Set the machine's memory."""
        self._memory = memory
        self._reckon()

    def show_drafters(self, heads: Sequence[ModelCard], draft_models: Sequence[ModelCard]) -> None:
        """Offer drafters to reckon with. A head that was made for the model is taken: the automatic mode loads it."""
        chosen = self.drafter.currentText() if self._drafters else ""
        self._drafters = [*heads, *draft_models]
        sure = next((head.name for head in heads if head.fits_surely), "")
        self._fill_drafters(chosen or sure)
        self._reckon()

    def _fill_contexts(self) -> None:
        assert self._model is not None
        most = self._model.sizes.context_length if self._model.sizes else GATE_TOKENS
        choices = [count for count in _CONTEXTS if count < most] + [most]
        self.context.clear()
        for count in choices:
            self.context.addItem(f"{count:,}", count)
        fitting = [number for number, count in enumerate(choices) if count <= self._tokens]
        self.context.setCurrentIndex(fitting[-1] if fitting else 0)

    def _fill_drafters(self, chosen: str = "") -> None:
        self.drafter.clear()
        self.drafter.addItem("None")
        for each in self._drafters:
            self.drafter.addItem(each.name.rpartition("/")[2])
        names = [each.name for each in self._drafters]
        shown = [name.rpartition("/")[2] for name in names]
        place = names.index(chosen) if chosen in names else shown.index(chosen) if chosen in shown else -1
        self.drafter.setCurrentIndex(place + 1)
        self.drafter.setEnabled(bool(self._drafters))

    def _choose_context(self) -> None:
        self._tokens = self.context.currentData()
        self._reckon()

    def _need(self, memory: MachineMemory) -> MemoryNeed | None:
        if self._model is None or self._model.sizes is None:
            return None
        tokens = self.context.currentData() or GATE_TOKENS
        need = memory_need(self._model.sizes, self._dtype, memory.on_gpu, tokens)
        place = self.drafter.currentIndex() - 1
        if place >= 0:
            drafter = self._drafters[place]
            taken = drafter.weights_bytes
            if drafter.sizes is not None:  # a draft model, which has a KV cache of its own
                taken = memory_need(drafter.sizes, self._dtype, memory.on_gpu, need.tokens).total_bytes
            need = replace(need, drafter_bytes=taken)
        return need if self._weights_bytes is None else replace(need, weights_bytes=self._weights_bytes)

    def _reckon(self) -> None:
        memory, gate = self._memory, self.gate
        need = self._need(memory) if memory is not None else None
        known = need is not None
        for part in (self.bar, self.context, self.drafter, *(line.name for line in self._lines)):
            part.setEnabled(known)
        self.drafter.setEnabled(known and bool(self._drafters))
        if memory is None or need is None or gate is None:
            self.verdict.set_color("muted")
            self.verdict.setText("Asking the device for its memory…")
            self.detail.hide()
            self._show_parts([], 0)
            return
        judged = judge(need, replace(gate, weights_bytes=need.weights_bytes), memory)
        self.verdict.set_color(judged.color)
        self.verdict.setText(judged.words)
        detail = judged.detail
        if self._weights_bytes is not None:
            held = f"In use for it now: {gigabytes(memory.held_bytes)}."
            detail = f"{held} {detail}".strip()
        self.detail.say(detail)
        left = max(memory.total_bytes - need.total_bytes, 0)
        self._show_parts(
            [
                MemoryPart("Weights", "target", need.weights_bytes, f"as {need.precision}"),
                MemoryPart(
                    f"Chat of {need.tokens:,} tokens", "prompt", need.cache_bytes, "the KV cache, as it is when full"
                ),
                MemoryPart("Drafter", "draft", need.drafter_bytes, "its weights, and its own KV cache if it has one"),
                MemoryPart("Left for others", "", left, "the system and other apps"),
            ],
            memory.room.limit_bytes,
        )

    def _show_parts(self, parts: Sequence[MemoryPart], limit: int) -> None:
        self.bar.show_parts(parts, limit)
        mark = MemoryPart("The most that a model is given now", LIMIT, limit, "the line in the bar")
        shown = [part for part in (*parts, mark) if part.size > 0]
        for number, line in enumerate(self._lines):
            line.show_part(shown[number] if number < len(shown) else None)


class _Line:
    """A line of the legend: a swatch, a name and a size."""

    def __init__(self, theme: Theme, grid: QGridLayout, number: int) -> None:
        self._theme = theme
        self.swatch = PlainLabel()
        self.swatch.setAutoFillBackground(True)
        self.name = ThemedLabel(theme, "", "muted")
        self.figure = ThemedLabel(theme, "", tabular=True)
        self.figure.setAlignment(Qt.AlignmentFlag.AlignRight)
        grid.addWidget(self.swatch, number, 0, Qt.AlignmentFlag.AlignCenter)
        grid.addWidget(self.name, number, 1)
        grid.addWidget(self.figure, number, 2)
        grid.setContentsMargins(0, 0, MEDIUM, 0)

    def show_part(self, part: MemoryPart | None) -> None:
        for widget in (self.swatch, self.name, self.figure):
            widget.setVisible(part is not None)
        if part is not None:
            self.swatch.setFixedSize(_MARK if part.color == LIMIT else _SWATCH, _SWATCH)
            palette = self.swatch.palette()
            palette.setColor(self.swatch.backgroundRole(), part_color(self._theme, part))
            self.swatch.setPalette(palette)
            self.name.setText(part.name)
            set_tip(self.name, part.words)
            self.figure.setText(gigabytes(part.size))
