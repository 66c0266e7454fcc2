"""Whether a model fits the memory, with a chart, and a choice of context and drafter."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from PySide6.QtWidgets import QComboBox, QWidget

from rdchat.inference.api.memory_facts import GATE_TOKENS, MachineMemory, MemoryNeed, gigabytes, memory_need
from rdchat.inference.api.model_card import ModelCard
from rdchat.inference.api.requests import Dtype
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import SMALL, TIGHT, Theme
from rdchat.ui.models.fields import choice_box
from rdchat.ui.models.installed.words import judge
from rdchat.ui.plots.drawing import Box, Drawing
from rdchat.ui.plots.plot_view import Chart

_CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
_BAR, _TICK, _LINE, _SWATCH, _FIGURE = 16.0, 4.0, 20.0, 10.0, 80.0  # pixels; _TICK: the mark above and below the bar


class MemoryPart(NamedTuple):
    """A part of the machine's memory."""

    name: str
    color: str  # a name of `TimeColors` or `Palette`
    size: int  # in bytes
    words: str  # explains it


class MemoryChart(Chart):
    """The machine's memory as a bar of parts, with a mark at the most that a model is given, and a legend below."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Memory")
        self._parts: list[MemoryPart] = []
        self._limit = 0

    def show_parts(self, parts: Sequence[MemoryPart], limit: int) -> None:
        """Show parts, and the most bytes that a model is given."""
        self._parts, self._limit = [part for part in parts if part.size > 0], limit
        self.redraw("; ".join(f"{part.name}: {gigabytes(part.size)}" for part in self._parts))

    def draw(self, drawing: Drawing) -> None:
        drawing.height = _BAR + 2 * _TICK
        drawing.area(Box(0, _TICK, drawing.width, _BAR), "border")
        whole, left = sum(part.size for part in self._parts), 0.0
        for part in self._parts:
            box = Box(left, _TICK, part.size / whole * drawing.width, _BAR)
            times = self.theme.colors
            color = getattr(times, part.color).name() if hasattr(times, part.color) else part.color
            drawing.area(box, color)
            drawing.mark(box, f"{part.name}, {gigabytes(part.size)}: {part.words}")
            left = box.right
            self._draw_legend(drawing, part, color)
        if 0 < self._limit < whole:
            drawing.area(Box(self._limit / whole * drawing.width - 1, 0, 2, _BAR + 2 * _TICK), "text")
        if self._limit:
            mark = MemoryPart("The most that a model is given now", "text", self._limit, "the line in the bar")
            self._draw_legend(drawing, mark, mark.color)

    def _draw_legend(self, drawing: Drawing, part: MemoryPart, color: str) -> None:
        line = Box(0, drawing.height, drawing.width, _LINE)
        swatch = _SWATCH if color != "text" else 2
        drawing.area(Box((_SWATCH - swatch) / 2, line.y + (_LINE - _SWATCH) / 2, swatch, _SWATCH), color)
        drawing.text(Box(_SWATCH + SMALL, line.y, line.width - _SWATCH - SMALL - _FIGURE, _LINE), part.name, "muted")
        drawing.text(Box(line.width - _FIGURE, line.y, _FIGURE, _LINE), gigabytes(part.size), align="right")
        drawing.mark(line, part.words)
        drawing.height += _LINE


class MemorySection(QWidget):
    """Computes the memory that a model needs, as the engine does before it loads one."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._model: ModelCard | None = None
        self._memory: MachineMemory | None = None
        self._dtype = Dtype.AUTO
        self._weights_bytes: int | None = None  # measured, of the loaded model
        self._tokens = GATE_TOKENS  # chosen last, for any model
        self.verdict = ThemedLabel(theme, "", bold=True, wraps=True)
        self.detail = ThemedLabel(theme, "", "muted", wraps=True)
        self.bar = MemoryChart(theme)
        tip = "Tokens that prompt and reply have together; longer chats take more memory"
        self.context = choice_box("Context", tip, letters=8)
        self.drafter = choice_box("Drafter", "What drafts takes memory beside the model", letters=14)
        labels = [ThemedLabel(theme, words, "muted") for words in ("Context", "Drafter")]
        for label, box in zip(labels, (self.context, self.drafter), strict=True):
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            label.setBuddy(box)
        controls = row(labels[0], self.context, SMALL, labels[1], self.drafter, None)
        title = ThemedLabel(theme, "Memory", "muted", -1, bold=True)
        column(title, self.verdict, self.detail, self.bar, TIGHT, controls, within=self, spacing=TIGHT)
        self.context.activated.connect(self._choose_context)
        self.drafter.activated.connect(self._show_need)

    def show_model(self, model: ModelCard, dtype: Dtype, weights_bytes: int | None) -> None:
        """Show another model, whose sizes are known.

        Args:
            model: The model.
            dtype: The precision that it would be loaded in.
            weights_bytes: Bytes of its weights, if it is loaded.
        """
        other = self._model is None or self._model.path != model.path
        self._model, self._dtype, self._weights_bytes = model, dtype, weights_bytes
        if other:
            self._fill_contexts(model.sizes.context_length if model.sizes else GATE_TOKENS)
            self._fill_drafters(())
        self._show_need()

    def show_memory(self, memory: MachineMemory | None) -> None:
        """Set the machine's memory."""
        self._memory = memory
        self._show_need()

    def show_drafters(self, heads: Sequence[ModelCard], draft_models: Sequence[ModelCard]) -> None:
        """Offer drafters. One that was made for the model is chosen at first: the automatic mode loads it."""
        offered, chosen = self.drafter.count() > 1, self.drafter.currentData()
        sure = next((head.name for head in heads if head.fits_surely), "")
        self._fill_drafters((*heads, *draft_models), (chosen.name if chosen else "") if offered else sure)
        self._show_need()

    def _fill_contexts(self, most: int) -> None:
        choices = [count for count in _CONTEXTS if count < most] + [most]
        self.context.clear()
        for count in choices:
            self.context.addItem(f"{count:,}", count)
        self.context.setCurrentIndex(max(sum(count <= self._tokens for count in choices) - 1, 0))

    def _fill_drafters(self, drafters: Sequence[ModelCard], chosen: str = "") -> None:
        self.drafter.clear()
        self.drafter.addItem("None")
        for place, each in enumerate(drafters, start=1):
            self.drafter.addItem(each.name.rpartition("/")[2], each)
            if each.name == chosen:
                self.drafter.setCurrentIndex(place)

    def _choose_context(self) -> None:
        self._tokens = self.context.currentData()
        self._show_need()

    def _needs(self, memory: MachineMemory, model: ModelCard) -> tuple[MemoryNeed, MemoryNeed] | None:
        """Return the need with the chosen context and drafter, and the least that loading the model takes."""
        if model.sizes is None:
            return None
        gate = memory_need(model.sizes, self._dtype, memory.on_gpu)
        need = memory_need(model.sizes, self._dtype, memory.on_gpu, self.context.currentData() or GATE_TOKENS)
        drafter = self.drafter.currentData()
        if drafter is not None and drafter.sizes is not None:  # a draft model, which has a KV cache of its own
            bytes_ = memory_need(drafter.sizes, self._dtype, memory.on_gpu, need.tokens).total_bytes
            need = replace(need, drafter_bytes=bytes_)
        elif drafter is not None:
            need = replace(need, drafter_bytes=drafter.weights_bytes)
        if self._weights_bytes is not None:
            need = replace(need, weights_bytes=self._weights_bytes)
        return need, replace(gate, weights_bytes=need.weights_bytes)

    def _show_need(self) -> None:
        memory = self._memory
        needs = self._needs(memory, self._model) if memory is not None and self._model is not None else None
        self.context.setEnabled(needs is not None)
        self.drafter.setEnabled(needs is not None and self.drafter.count() > 1)
        if memory is None or needs is None:
            self.verdict.set_color("muted")
            self.verdict.setText("Asking the device for its memory…")
            self.detail.hide()
            self.bar.show_parts([], 0)
            return
        need, gate = needs
        words, detail, color = judge(need, gate, memory)
        self.verdict.set_color(color)
        self.verdict.setText(words)
        held = f"In use for it now: {gigabytes(memory.held_bytes)}." if self._weights_bytes is not None else ""
        self.detail.say(f"{held} {detail}".strip())
        left = max(memory.total_bytes - need.total_bytes, 0)
        chat, cache = f"Chat of {need.tokens:,} tokens", "the KV cache, as it is when full"
        parts = [
            MemoryPart("Weights", "target", need.weights_bytes, f"as {need.precision}"),
            MemoryPart(chat, "prompt", need.cache_bytes, cache),
            MemoryPart("Drafter", "draft", need.drafter_bytes, "its weights, and its own KV cache if it has one"),
            MemoryPart("Left for others", "border", left, "the system and other apps"),
        ]
        self.bar.show_parts(parts, memory.room.limit_bytes)
