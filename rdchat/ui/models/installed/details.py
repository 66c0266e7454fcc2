"""The details of one model: name, place, memory, facts and drafters."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFormLayout, QWidget

from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.model_card import ModelCard
from rdchat.ui.look.formatting import day_words
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.layouts import column, form_layout, scrolled
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, TIGHT, Theme
from rdchat.ui.models.installed.memory_section import MemorySection
from rdchat.ui.models.installed.words import facts_of, short_name, verifies_words

_WIDEST, _NAMES_WIDTH = 620, 88
_TOP_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop


class FactsForm(QWidget):
    """Names and values below a heading."""

    def __init__(self, theme: Theme, heading: str) -> None:
        super().__init__()
        self._theme = theme
        self._rows: Sequence[tuple[str, str, str]] = ()
        self._form = form_layout(spacing=(MEDIUM, TIGHT), align=_TOP_LEFT)
        self._form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        column(ThemedLabel(theme, heading, "muted", -1, bold=True), self._form, within=self, spacing=TIGHT)

    def show_rows(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Show rows of name, value and tooltip."""
        if rows == self._rows:
            return
        self._rows = rows
        while self._form.rowCount():
            self._form.removeRow(0)
        for name, value, tip in rows:
            label = ThemedLabel(self._theme, name, "muted")
            label.setMinimumWidth(_NAMES_WIDTH)  # the same in all forms
            label.setAlignment(_TOP_LEFT)
            field = ThemedLabel(self._theme, value, wraps=True, selectable=True)
            set_tip(label, tip)
            set_tip(field, tip)
            self._form.addRow(label, field)


class ModelDetails(QWidget):
    """Shows a model on this machine, or a deleted one."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.name = ElidedLabel(theme, "", points_more=5, bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.place = ElidedLabel(theme, "", "muted", mode=Qt.TextElideMode.ElideMiddle)
        self.state = ThemedLabel(theme, "", "success", bold=True)
        self.problem = ThemedLabel(theme, "", "danger", wraps=True, selectable=True)
        self.memory = MemorySection(theme)
        self.facts, self.drafts = FactsForm(theme, "Model"), FactsForm(theme, "Drafting")
        content = QWidget()
        content.setMaximumWidth(_WIDEST)
        head = column(self.name, self.place, self.state, self.problem, spacing=TIGHT)
        parts = (head, self.memory, self.facts, self.drafts, None)
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
        words = "It can be loaded once it is here whole." if model.is_unfinished else model.problem
        if model.is_drafter and not model.problem:
            words = "It drafts for the models that it fits: choose it on the Drafters page."
        if model.problem and model.repository:
            words += " Verify tells which of its files are wrong, and can fetch them again."
        self._show_head(model.name, f"{model.place}  ·  {model.path}", state, words)
        self.problem.set_color("danger" if model.problem else "muted")
        self.memory.setVisible(model.sizes is not None)
        self.facts.show_rows(facts_of(model))
        self.facts.show()
        self.drafts.setVisible(model.can_be_loaded)
        self.show_drafters(model, None, ())

    def show_trashed(self, trashed: TrashedModel) -> None:
        """Show a deleted model."""
        place = f"{'Deleted' if trashed.place is None else 'In the Trash'}  ·  {day_words(trashed.deleted)}"
        until = "delete it for good" if trashed.place is None else "empty the Trash"
        self._show_head(short_name(trashed), place, "", f"It still takes its place on the disk until you {until}.")
        self.problem.set_color("muted")
        for part in (self.memory, self.facts, self.drafts):
            part.hide()

    def show_drafters(
        self, model: ModelCard, heads: Sequence[ModelCard] | None, draft_models: Sequence[ModelCard]
    ) -> None:
        """Show the drafters for a model; None while they are searched."""
        verifies, reason = verifies_words(model)
        rows = [("Verifies", f"{verifies}\n{reason}" if model.tried and reason else verifies, reason)]
        if heads is None:
            rows.append(("Drafters", "Looking…", ""))
        else:
            matches = dict.fromkeys(head.match.words for head in heads if head.match and head.match.words)
            named = "\n".join(_head_words(head) for head in heads) or "None on this machine"
            models = "\n".join(short_name(other) for other in draft_models) or "None on this machine"
            rows.append(("Drafters", named, "\n".join(matches)))
            rows.append(("Draft models", models, "Smaller models with the same tokenizer file"))
        self.drafts.show_rows(rows)

    def _show_head(self, name: str, place: str, state: str, problem: str) -> None:
        self.name.setText(name)
        self.place.setText(place)
        self.state.say(state)
        self.problem.say(problem)


def _head_words(head: ModelCard) -> str:
    kind = f" ({head.kind.words})" if head.kind is not None else ""
    return f"{head.name}{kind}{'' if head.fits_surely else ', its sizes fit'}"
