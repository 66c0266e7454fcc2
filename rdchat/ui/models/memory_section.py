"""How much of the machine's memory a model needs, as a verdict and as a bar."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from PySide6.QtCore import QRectF
from PySide6.QtWidgets import QWidget

from rdchat.inference.api import GATE_TOKENS, Fit, MachineMemory, MemoryNeed, ModelSizes
from rdchat.services.models.fit import Machine
from rdchat.ui.plots.drawing import Chart, Drawing
from rdchat.ui.style import SMALL, TIGHT, Theme, ThemedLabel, choice_box, column, fill_box, nothing, row
from rdchat.wording import size_text

_CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
# In pixels. The mark of the limit extends beyond the bar by `_TICK`.
_BAR = 16.0
_TICK = 4.0
_LINE = 20.0
_SWATCH = 10.0
_FIGURE = 80.0


class MemoryPart(NamedTuple):
    """A part of the machine's memory.

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
        """Show parts, and the most bytes that a model is given; `when` says of which time that is."""
        self._when = when
        self._parts = [part for part in parts if part.size > 0]
        self._limit = limit
        self.redraw("; ".join(f"{part.name}: {size_text(part.size)}" for part in self._parts))

    def draw(self, drawing: Drawing) -> None:
        drawing.height = _BAR + 2 * _TICK
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
        line = QRectF(0, drawing.height, drawing.width, _LINE)
        swatch = _SWATCH if part.color != "text" else 2
        drawing.area(QRectF((_SWATCH - swatch) / 2, line.y() + (_LINE - _SWATCH) / 2, swatch, _SWATCH), part.color)
        drawing.write_text(
            QRectF(_SWATCH + SMALL, line.y(), line.width() - _SWATCH - SMALL - _FIGURE, _LINE), part.name, "muted"
        )
        drawing.write_text(
            QRectF(line.width() - _FIGURE, line.y(), _FIGURE, _LINE), size_text(part.size), align="right"
        )
        drawing.add_tooltip(line, part.text)
        drawing.height += _LINE


class MemorySection(QWidget):
    """Computes the memory that a model needs, as the engine does before it loads one."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._show_again: Callable[[], None] = nothing
        # The last choice holds for all models.
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

    def show_sizes(
        self,
        sizes: ModelSizes | None,
        machine: Machine | None,
        *,
        weights_bytes: int | None = None,
        drafter_bytes: int = 0,
        from_hub: bool = False,
    ) -> None:
        """Show the need of a model; nothing of one on this machine whose sizes are unknown.

        Args:
            sizes: The model's.
            machine: Its memory, and the precision to load in; None while it is unknown.
            weights_bytes: Measured bytes of its weights, if it is loaded.
            drafter_bytes: Of the drafter that the automatic mode loads with it.
            from_hub: Whether it is not here yet: the verdict counts the drafter, which is downloaded with it.
        """
        self.setVisible(sizes is not None or from_hub)
        self._show_again = partial(self._show_need, sizes, machine, weights_bytes, drafter_bytes, from_hub)
        max_tokens = sizes.context_length if sizes is not None else GATE_TOKENS
        choices = [count for count in _CONTEXTS if count < max_tokens] + [max_tokens]
        chosen = max((count for count in choices if count <= self._tokens), default=choices[0])
        fill_box(self.context, ((f"{count:,}", count) for count in choices), chosen)
        self._controls.setVisible(len(choices) > 1)
        self._show_again()

    def _choose_context(self) -> None:
        self._tokens = self.context.currentData()
        self._show_again()

    def _show_need(
        self,
        sizes: ModelSizes | None,
        machine: Machine | None,
        weights_bytes: int | None,
        drafter_bytes: int,
        from_hub: bool,
    ) -> None:
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
        weights = need.weights_bytes if weights_bytes is None else weights_bytes
        need = replace(need, weights_bytes=weights, drafter_bytes=drafter_bytes)
        text, detail, color = judge(need, replace(gate, weights_bytes=weights), memory)
        self.verdict.show_text(text, color)
        held = f"It uses {size_text(memory.held_bytes)} now." if weights_bytes is not None else ""
        on_cpu = "" if memory.on_gpu else f"In {need.precision} on this CPU."
        self.detail.show_text(" ".join(filter(None, (on_cpu, held, detail))))
        left = max(memory.total_bytes - need.total_bytes, 0)
        chat = f"Chat of {need.tokens:,} tokens"
        cache = "the KV cache when it is full"
        parts = [
            MemoryPart("Weights", "writing", need.weights_bytes, f"as {need.precision}"),
            MemoryPart(chat, "reading", need.cache_bytes, cache),
            MemoryPart("Images", "checking", need.image_bytes, "what was seen last, when it is full"),
            MemoryPart("Drafter", "drafting", need.drafter_bytes, "the one that Auto uses"),
            MemoryPart("Rest of the memory", "border", left, "for the system and other apps"),
        ]
        self.bar.show_parts(parts, memory.room.limit_bytes, "" if from_hub else " now")


def judge(need: MemoryNeed, gate: MemoryNeed, memory: MachineMemory) -> tuple[str, str, str]:
    """Return whether a model fits in words, advice, and the name of a colour.

    Args:
        need: With the chosen context and the drafter.
        gate: The least that loading it takes; the engine refuses a model by the same arithmetic. With the drafter where
            both are one download.
        memory: The machine's.
    """
    room = memory.room
    fit = need.fit(memory.room)
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
