"""The memory that a model needs, in the details of a model: a verdict in words, and a bar of the machine's memory.

`MemoryNeed` (in `inference.api`) computes the need; the engine decides by the same arithmetic whether it loads a model.
There are two needs here: the one shown, with the context that is chosen in the section, and the least that a load
takes, by which the engine may refuse it (in the code `gate`, the engine's memory gate).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from PySide6.QtCore import QRectF
from PySide6.QtWidgets import QWidget

from rdchat.inference.api import GATE_TOKENS, Fit, MachineMemory, MemoryNeed, ModelSizes
from rdchat.services.models.fit import Machine
from rdchat.ui.plots.drawing import Chart, Drawing
from rdchat.ui.style import SMALL, TIGHT, Theme, ThemedLabel, choice_box, column, fill_box, row, scaled
from rdchat.wording import size_text

# Lengths of a chat that can be chosen, in tokens, below the model's own limit.
_CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
# Sizes in pixels: the height of the bar, how far the mark of the limit extends beyond it at both sides, the height of a
# line of the legend, the square of colour at its left, and the width of the figure at its right. Line and figure are
# `scaled`.
_BAR = 16.0
_TICK = 4.0
_LINE = 20
_SWATCH = 10.0
_FIGURE = 60


class MemoryPart(NamedTuple):
    """A part of the machine's memory: a piece of the bar, and a line of the legend.

    Attributes:
        color: A name of `Colors`.
        size: Its size in bytes.
        text: An explanation.
    """

    name: str
    color: str
    size: int
    text: str


class MemoryChart(Chart):
    """The machine's memory as a bar of parts with a legend; a mark shows the most that a model may take."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Memory")
        self._parts: list[MemoryPart] = []
        self._limit = 0
        self._when = ""

    def show_parts(self, parts: Sequence[MemoryPart], limit: int, when: str = "") -> None:
        """Show parts, and the most bytes that a model is given.

        Args:
            parts: All of the machine's memory; those without a size are left out.
            limit: The most bytes of a model; 0 shows no mark.
            when: Follows "Available to models": of which time the limit is, such as " now".
        """
        self._when = when
        self._parts = [part for part in parts if part.size > 0]
        self._limit = limit
        self.redraw("; ".join(f"{part.name}: {size_text(part.size)}" for part in self._parts))

    def draw(self, drawing: Drawing) -> None:
        drawing.height = _BAR + 2 * _TICK
        drawing.size = scaled(drawing.size)
        drawing.area(QRectF(0, _TICK, drawing.width, _BAR), "border")
        total = sum(part.size for part in self._parts)
        left = 0.0
        for part in self._parts:
            box = QRectF(left, _TICK, part.size / total * drawing.width, _BAR)
            drawing.area(box, part.color)
            drawing.add_tooltip(box, f"{part.name}, {size_text(part.size)}: {part.text}")
            left = box.right()
            self._draw_legend(drawing, part)
        if 0 < self._limit < total:
            drawing.area(QRectF(self._limit / total * drawing.width - 1, 0, 2, _BAR + 2 * _TICK), "text")
        if self._limit:
            mark = MemoryPart(f"Available to models{self._when}", "text", self._limit, "the line in the bar")
            self._draw_legend(drawing, mark)

    def _draw_legend(self, drawing: Drawing, part: MemoryPart) -> None:
        line = QRectF(0, drawing.height, drawing.width, scaled(_LINE))
        swatch = _SWATCH if part.color != "text" else 2  # the mark of the limit is a line
        top = line.center().y() - _SWATCH / 2
        drawing.area(QRectF((_SWATCH - swatch) / 2, top, swatch, _SWATCH), part.color)
        name = line.adjusted(_SWATCH + SMALL, 0, -scaled(_FIGURE), 0)
        drawing.write_text(name, part.name, "muted")
        drawing.write_text(line, size_text(part.size), align="right")
        drawing.add_tooltip(line, part.text)
        drawing.height = line.bottom()


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """What a model's need of memory is computed from.

    Attributes:
        sizes: The model's; None while they are unknown.
        machine: Its memory, and the precision to load in; None while it is unknown.
        weights_bytes: Measured bytes of the weights of a loaded model; None for another one.
        drafter_bytes: Bytes of the drafter that the automatic mode loads with it.
        from_hub: Whether it is not here yet. Then the verdict counts the drafter, which is downloaded with it, and the
            section is shown even before its sizes are known.
    """

    sizes: ModelSizes | None
    machine: Machine | None
    weights_bytes: int | None = None
    drafter_bytes: int = 0
    from_hub: bool = False


class MemorySection(QWidget):
    """Shows the memory that a model needs, with a choice of how long a chat is."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._model = ModelMemory(None, None)
        # The length that was chosen last, in tokens; it holds for all models.
        self._tokens = GATE_TOKENS
        self.verdict = ThemedLabel(theme, "", bold=True, wraps=True)
        self.detail = ThemedLabel(theme, "", "muted", wraps=True)
        self.bar = MemoryChart(theme)
        tip = "Tokens of prompt and reply together. Longer chats take more memory."
        self.context = choice_box("Context", tip, letters=8)
        self.context.activated.connect(self._choose_context)
        title = ThemedLabel(theme, "Memory", "muted", -1, bold=True)
        self._controls = QWidget()
        row(ThemedLabel(theme, "Context", "muted"), self.context, None, within=self._controls)
        column(title, self.verdict, self.detail, self.bar, TIGHT, self._controls, within=self, spacing=TIGHT)

    def show_model(self, model: ModelMemory) -> None:
        """Show the need of a model; hide the section for one on this machine whose sizes are unknown."""
        sizes = model.sizes
        self._model = model
        self.setVisible(sizes is not None or model.from_hub)
        max_tokens = sizes.context_length if sizes is not None else GATE_TOKENS
        choices = [count for count in _CONTEXTS if count < max_tokens] + [max_tokens]
        chosen = max((count for count in choices if count <= self._tokens), default=choices[0])
        fill_box(self.context, ((f"{count:,}", count) for count in choices), chosen)
        self._controls.setVisible(len(choices) > 1)
        self._show_need()

    def _choose_context(self) -> None:
        self._tokens = self.context.currentData()
        self._show_need()

    def _show_need(self) -> None:
        """Show the need of the model with the chosen length of a chat."""
        sizes = self._model.sizes
        machine = self._model.machine
        drafter_bytes = self._model.drafter_bytes
        from_hub = self._model.from_hub
        self.context.setEnabled(machine is not None)
        if machine is None or sizes is None:
            unknown = "Not known: Hugging Face has not given its size."
            self.verdict.show_text(unknown if sizes is None else "Checking the memory…", "muted")
            self.detail.hide()
            self.bar.show_parts([], 0)
            return
        memory = machine.memory
        gate = machine.need(sizes, drafter_bytes if from_hub else 0)
        need = MemoryNeed.for_sizes(sizes, machine.dtype, memory.on_gpu, self.context.currentData() or GATE_TOKENS)
        need = replace(need, drafter_bytes=drafter_bytes)
        held = ""
        if (weights := self._model.weights_bytes) is not None:
            gate = replace(gate, weights_bytes=weights)
            need = replace(need, weights_bytes=weights)
            held = f"It uses {size_text(memory.held_bytes)} now."
        text, detail, color = judge(need, gate, memory)
        self.verdict.show_text(text, color)
        on_cpu = "" if memory.on_gpu else "On a CPU, weights take more memory than in the files."
        self.detail.show_text(" ".join(filter(None, (on_cpu, held, detail))))
        left = max(memory.total_bytes - need.total_bytes, 0)
        chat = f"Chat of {need.tokens:,} tokens"
        parts = [
            MemoryPart("Weights", "writing", need.weights_bytes, f"as {need.precision}"),
            MemoryPart(chat, "reading", need.cache_bytes, "the KV cache when it is full"),
            MemoryPart("Images", "checking", need.image_bytes, "what was seen last, when it is full"),
            MemoryPart("Drafter", "drafting", need.drafter_bytes, "the one that Auto uses"),
            MemoryPart("Rest of the memory", "border", left, "for the system and other apps"),
        ]
        self.bar.show_parts(parts, memory.room.limit_bytes, "" if from_hub else " now")


def judge(need: MemoryNeed, gate: MemoryNeed, memory: MachineMemory) -> tuple[str, str, str]:
    """Return whether a model fits in words, advice, and the name of a colour.

    In this order: the engine refuses it (by `gate`); it loads, but not with the chosen context (by `need`); it fits
    tightly; it fits.

    Args:
        need: With the chosen context and the drafter.
        gate: The least that loading it takes, with the drafter where both are one download. If that does not fit, the
            engine refuses the model.
        memory: The machine's.
    """
    room = memory.room
    fit = need.fit(room)
    text = f"{size_text(need.total_bytes)} of {size_text(memory.total_bytes)}"
    if gate.fit(room) is Fit.TOO_LARGE:
        over = size_text(gate.total_bytes - room.limit_bytes)
        alone = replace(gate, drafter_bytes=0).fit(room)
        pair = "" if alone is Fit.TOO_LARGE else " with its drafter"
        return f"Too large{pair}: needs {over} more than is available", "", "danger"
    if fit is Fit.TOO_LARGE:
        over = size_text(need.total_bytes - room.limit_bytes)
        what = f"with {need.tokens:,} tokens" + (" and the drafter" if need.drafter_bytes else "")
        return f"Loads, but {what} it needs {over} more than is available", "", "warning"
    if fit is Fit.TIGHT:
        return f"Tight: {text}", "It may be slow. Close other apps first.", "warning"
    return f"Fits: {text}", "", "success"
