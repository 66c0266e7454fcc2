"""The details of one model: name, place, memory, facts and drafters."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QWidget

from rdchat.inference.api.model_facts import GATE_TOKENS, ModelCard, gigabytes, memory_need
from rdchat.services.models.draft_advice import DraftAdvice
from rdchat.services.models.fit import Machine
from rdchat.ui.models.texts import drafter_name, facts_of, judge, short_name, support_text
from rdchat.ui.plots.drawing import Box, Drawing
from rdchat.ui.plots.plot_view import Chart
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.labels import ElidedLabel, ThemedLabel, set_tip
from rdchat.ui.style.layouts import choice_box, column, fill_box, row, scrolled
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

_WIDEST, _NAMES_WIDTH = 620, 88
_TOP_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop
_CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
_BAR, _TICK, _LINE, _SWATCH, _FIGURE = 16.0, 4.0, 20.0, 10.0, 80.0  # pixels; _TICK: of the mark, beyond the bar


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

    def show_parts(self, parts: Sequence[MemoryPart], limit: int) -> None:
        """Show parts, and the most bytes that a model is given."""
        self._parts, self._limit = [part for part in parts if part.size > 0], limit
        self.redraw("; ".join(f"{part.name}: {gigabytes(part.size)}" for part in self._parts))

    def draw(self, drawing: Drawing) -> None:
        drawing.height = _BAR + 2 * _TICK
        drawing.area(Box(0, _TICK, drawing.width, _BAR), "border")
        total, left = sum(part.size for part in self._parts), 0.0
        for part in self._parts:
            box = Box(left, _TICK, part.size / total * drawing.width, _BAR)
            drawing.area(box, part.color)
            drawing.mark(box, f"{part.name}, {gigabytes(part.size)}: {part.text}")
            left = box.right
            self._draw_legend(drawing, part)
        if 0 < self._limit < total:
            drawing.area(Box(self._limit / total * drawing.width - 1, 0, 2, _BAR + 2 * _TICK), "text")
        if self._limit:
            mark = MemoryPart("Available to models now", "text", self._limit, "the line in the bar")
            self._draw_legend(drawing, mark)

    def _draw_legend(self, drawing: Drawing, part: MemoryPart) -> None:
        line = Box(0, drawing.height, drawing.width, _LINE)
        swatch = _SWATCH if part.color != "text" else 2
        drawing.area(Box((_SWATCH - swatch) / 2, line.y + (_LINE - _SWATCH) / 2, swatch, _SWATCH), part.color)
        drawing.text(Box(_SWATCH + SMALL, line.y, line.width - _SWATCH - SMALL - _FIGURE, _LINE), part.name, "muted")
        drawing.text(Box(line.width - _FIGURE, line.y, _FIGURE, _LINE), gigabytes(part.size), align="right")
        drawing.mark(line, part.text)
        drawing.height += _LINE


class MemorySection(QWidget):
    """Computes the memory that a model needs, as the engine does before it loads one."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._model: ModelCard | None = None
        self._machine: Machine | None = None
        self._weights_bytes: int | None = None
        self._drafter_bytes = 0
        self._tokens = GATE_TOKENS  # the last choice; it holds for all models
        self.verdict = ThemedLabel(theme, "", bold=True, wraps=True)
        self.detail = ThemedLabel(theme, "", "muted", wraps=True)
        self.bar = MemoryChart(theme)
        tip = "Tokens of prompt and reply together. Longer chats take more memory."
        self.context = choice_box("Context", tip, letters=8)
        self.context.activated.connect(self._choose_context)
        title = ThemedLabel(theme, "Memory", "muted", -1, bold=True)
        controls = row(ThemedLabel(theme, "Context", "muted"), self.context, None)
        column(title, self.verdict, self.detail, self.bar, TIGHT, controls, within=self, spacing=TIGHT)

    def show_model(
        self,
        model: ModelCard,
        machine: Machine | None,
        weights_bytes: int | None,
        drafter_bytes: int,
    ) -> None:
        """Show a model whose sizes are known.

        Args:
            model: The model.
            machine: Its memory, and the precision to load in; None while it is unknown.
            weights_bytes: Measured bytes of its weights, if it is loaded.
            drafter_bytes: Of the drafter that the automatic mode loads with it.
        """
        other = self._model is None or self._model.path != model.path
        self._model, self._machine = model, machine
        self._weights_bytes, self._drafter_bytes = weights_bytes, drafter_bytes
        if other:
            max_tokens = model.sizes.context_length if model.sizes else GATE_TOKENS
            choices = [count for count in _CONTEXTS if count < max_tokens] + [max_tokens]
            chosen = max((count for count in choices if count <= self._tokens), default=choices[0])
            fill_box(self.context, ((f"{count:,}", count) for count in choices), chosen)
        self._show_need()

    def _choose_context(self) -> None:
        self._tokens = self.context.currentData()
        self._show_need()

    def _show_need(self) -> None:
        machine, sizes = self._machine, self._model.sizes if self._model else None
        self.context.setEnabled(machine is not None and sizes is not None)
        if machine is None or sizes is None:
            self.verdict.show_text("Checking the memory…", "muted")
            self.detail.hide()
            self.bar.show_parts([], 0)
            return
        memory, gate = machine.memory, machine.need(sizes)
        need = memory_need(sizes, machine.dtype, memory.on_gpu, self.context.currentData() or GATE_TOKENS)
        weights = need.weights_bytes if self._weights_bytes is None else self._weights_bytes
        need = replace(need, weights_bytes=weights, drafter_bytes=self._drafter_bytes)
        text, detail, color = judge(need, replace(gate, weights_bytes=weights), memory)
        self.verdict.show_text(text, color)
        held = f"It uses {gigabytes(memory.held_bytes)} now." if self._weights_bytes is not None else ""
        on_cpu = "" if memory.on_gpu else f"In {need.precision} on this CPU."
        self.detail.show_text(" ".join(filter(None, (on_cpu, held, detail))))
        left = max(memory.total_bytes - need.total_bytes, 0)
        chat, cache = f"Chat of {need.tokens:,} tokens", "the KV cache when it is full"
        parts = [
            MemoryPart("Weights", "writing", need.weights_bytes, f"as {need.precision}"),
            MemoryPart(chat, "reading", need.cache_bytes, cache),
            MemoryPart("Drafter", "drafting", need.drafter_bytes, "the one that Auto uses"),
            MemoryPart("Rest of the memory", "border", left, "for the system and other apps"),
        ]
        self.bar.show_parts(parts, memory.room.limit_bytes)


class FactsForm(QWidget):
    """Names and values below a heading."""

    def __init__(self, theme: Theme, heading: str) -> None:
        super().__init__()
        self._theme = theme
        self._rows: Sequence[tuple[str, str, str]] = ()
        self._labels: list[ThemedLabel] = []
        self._table = QGridLayout()  # a QFormLayout cuts values of several lines
        self._table.setHorizontalSpacing(MEDIUM)
        self._table.setVerticalSpacing(TIGHT)
        self._table.setColumnStretch(1, 1)
        column(ThemedLabel(theme, heading, "muted", -1, bold=True), self._table, within=self, spacing=TIGHT)

    def show_rows(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Show rows of name, value and tooltip."""
        if rows == self._rows:
            return
        self._rows = rows
        for label in self._labels:
            label.hide()
            label.deleteLater()
        self._labels = []
        for number, (name, value, tip) in enumerate(rows):
            label = ThemedLabel(self._theme, name, "muted")
            label.setMinimumWidth(_NAMES_WIDTH)  # the same in all forms
            label.setAlignment(_TOP_LEFT)
            field = ThemedLabel(self._theme, value, wraps=True, selectable=True)
            set_tip(label, tip)
            set_tip(field, tip)
            self._table.addWidget(label, number, 0)
            self._table.addWidget(field, number, 1)
            self._labels += label, field


class InstalledDetails(QWidget):
    """Shows a model on this machine, with a button that calls `follow_advice`."""

    def __init__(self, theme: Theme, follow_advice: Callable[[], object]) -> None:
        super().__init__()
        self.name = ElidedLabel(theme, "", points_more=5, bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.location = ElidedLabel(theme, "", "muted", mode=Qt.TextElideMode.ElideMiddle)
        self.state = ThemedLabel(theme, "", "success", bold=True)
        self.problem = ThemedLabel(theme, "", "danger", wraps=True, selectable=True)
        self.memory = MemorySection(theme)
        self.facts, self.drafts = FactsForm(theme, "Model"), FactsForm(theme, "Drafting")
        self.advice = ThemedLabel(theme, "", wraps=True)
        self.follow = push_button("", "", follow_advice)
        self.advised = row((self.advice, 1), self.follow, spacing=MEDIUM)
        content = QWidget()
        content.setMaximumWidth(_WIDEST)
        head = column(self.name, self.location, self.state, self.problem, spacing=TIGHT)
        parts = (head, self.memory, self.facts, self.drafts, self.advised, None)
        column(*parts, within=content, spacing=MEDIUM + TIGHT, margins=(LARGE, LARGE - TIGHT, LARGE, LARGE))
        area = scrolled(content)
        for part in (area.viewport(), content):
            part.setAutoFillBackground(False)
        column(area, within=self)

    def show_model(self, model: ModelCard, state: str) -> None:
        """Show a model on this machine.

        Args:
            model: The model.
            state: Whether it is loaded; may be empty.
        """
        text = "Finish the download to load this model." if model.is_unfinished else model.problem
        if model.is_drafter and not model.problem:
            text = "This is a drafter. Choose it on the Drafters page."
        if model.problem and model.repository:
            text += " Verify finds the damaged files and can download them again."
        self.name.setText(model.name)
        self.location.setText(f"{model.origin}  ·  {model.path}")
        self.state.show_text(state)
        self.problem.show_text(text)
        self.problem.set_color("danger" if model.problem else "muted")
        self.memory.setVisible(model.sizes is not None)
        self.facts.show_rows(facts_of(model))
        self.facts.show()
        self.drafts.setVisible(model.can_be_loaded)
        self.show_drafters(model, None, ())
        self.show_advice(None)

    def show_drafters(
        self, model: ModelCard, heads: Sequence[ModelCard] | None, draft_models: Sequence[ModelCard]
    ) -> None:
        """Show the drafters for a model; None while they are searched."""
        support, reason = support_text(model)
        rows = [("Support", f"{support}\n{reason}" if model.tried and reason else support, reason)]
        if heads is None:
            rows.append(("Drafters", "Searching…", ""))
        else:
            matches = dict.fromkeys(head.match.text for head in heads if head.match and head.match.text)
            named = "\n".join(_head_text(head, model) for head in heads) or "None on this machine"
            models = "\n".join(short_name(other.name) for other in draft_models) or "None on this machine"
            rows.append(("Drafters", named, "\n".join(matches)))
            rows.append(("Draft models", models, "Smaller models with the same tokenizer"))
        self.drafts.show_rows(rows)

    def show_advice(self, advice: DraftAdvice | None) -> None:
        """Show what would make the model faster; None hides it."""
        self.advice.show_text(advice.text if advice is not None else "")
        self.follow.setText(advice.action.value if advice is not None else "")
        self.follow.setVisible(bool(self.follow.text()))


def _head_text(head: ModelCard, model: ModelCard) -> str:
    kind = f" ({head.kind.label})" if head.kind is not None else ""
    return f"{drafter_name(head, [model.name])}{kind}{'' if head.fits_surely else ', may fit'}"
