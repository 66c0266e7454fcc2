"""The details of one model: name, place, memory, facts and drafters."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFormLayout, QFrame, QScrollArea, QWidget

from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.model_card import ModelCard
from rdchat.ui.look.formatting import day_words
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.layouts import column
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.installed.memory_section import MemorySection
from rdchat.ui.models.installed.words import facts_of, short_name, verifies_words

_WIDEST, _NAMES_WIDTH = 620, 88


class ModelDetails(QScrollArea):
    """Attributes are the parts.

    Args:
        theme: The appearance to follow.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__(widgetResizable=True)
        self._theme = theme
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.viewport().setAutoFillBackground(False)
        self.name = ElidedLabel(theme, "", points_more=5, bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.place = ElidedLabel(theme, "", "muted", mode=Qt.TextElideMode.ElideMiddle)
        self.state = ThemedLabel(theme, "", "success", bold=True)
        self.problem = ThemedLabel(theme, "", "danger", wraps=True, selectable=True)
        self.memory = MemorySection(theme)
        self._memory_title, self._facts_title, self._drafts_title = (
            ThemedLabel(theme, words, "muted", -1, bold=True) for words in ("Memory", "Model", "Drafting")
        )
        self.facts, self._facts_form = _form()
        self.drafts, self._drafts_form = _form()
        self._build()

    def _build(self) -> None:
        content = QWidget()
        content.setAutoFillBackground(False)
        content.setMaximumWidth(_WIDEST)
        column_layout = column(
            self.name,
            self.place,
            self.state,
            self.problem,
            within=content,
            spacing=TIGHT,
            margins=(LARGE, LARGE - TIGHT, LARGE, LARGE),
        )
        sections: tuple[tuple[QWidget, QWidget], ...] = (
            (self._memory_title, self.memory),
            (self._facts_title, self.facts),
            (self._drafts_title, self.drafts),
        )
        for title, part in sections:
            column_layout.addSpacing(MEDIUM)
            column_layout.addWidget(title)
            column_layout.addWidget(part)
        column_layout.addStretch(1)
        self.setWidget(content)

    def show_model(self, model: ModelCard, state: str) -> None:
        """Show a model that lies on this machine.

        Args:
            model: Which.
            state: What is going on with it, in words; empty for nothing.
        """
        self._show_head(model.name, f"{model.place}  ·  {model.path}", state)
        self.problem.set_color("danger" if model.problem else "muted")
        words = "It can be loaded once it is here whole." if model.is_unfinished else model.problem
        if model.is_drafter and not model.problem:
            words = "It drafts for the models that it fits: choose it on the Drafters page."
        if model.problem and model.repository:
            words += " Verify tells which of its files are wrong, and can fetch them again."
        self._show_problem(words)
        self._show_parts(memory=model.sizes is not None, drafts=model.can_be_loaded)
        self._fill(self._facts_form, facts_of(model))
        self.show_drafters(model, None, ())

    def show_trashed(self, trashed: TrashedModel) -> None:
        """Show a model that was deleted."""
        self._show_head(
            short_name(trashed),
            f"{'Deleted' if trashed.place is None else 'In the Trash'}  ·  {day_words(trashed.deleted)}",
            "",
        )
        self.problem.set_color("muted")
        until = "delete it for good" if trashed.place is None else "empty the Trash"
        self._show_problem(f"It still takes its place on the disk until you {until}.")
        self._show_parts(memory=False, drafts=False)
        self._facts_title.hide()
        self.facts.hide()

    def show_drafters(
        self, model: ModelCard, heads: Sequence[ModelCard] | None, draft_models: Sequence[ModelCard]
    ) -> None:
        """Show the drafters for a model; None while they are searched."""
        verifies, reason = verifies_words(model)
        rows = [("Verifies", f"{verifies}\n{reason}" if model.tried and reason else verifies, reason)]
        if heads is None:
            rows.append(("Drafters", "Looking…", ""))
        else:
            named = [_head_words(head) for head in heads]
            rows.append(("Drafters", "\n".join(named) or "None on this machine", _tips(heads)))
            models = "\n".join(short_name(other) for other in draft_models) or "None on this machine"
            rows.append(("Draft models", models, "Smaller models with the same tokenizer file"))
        self._fill(self._drafts_form, rows)

    def _show_head(self, name: str, place: str, state: str) -> None:
        self.name.setText(name)
        set_tip(self.name, "")
        self.place.setText(place)
        self.state.say(state)

    def _show_problem(self, words: str) -> None:
        self.problem.say(words)

    def _show_parts(self, *, memory: bool, drafts: bool) -> None:
        self._memory_title.setVisible(memory)
        self._drafts_title.setVisible(drafts)
        self.memory.setVisible(memory)
        self.drafts.setVisible(drafts)
        self._facts_title.show()
        self.facts.show()

    def _fill(self, form: QFormLayout, rows: Sequence[tuple[str, str, str]]) -> None:
        while form.rowCount() > len(rows):
            form.removeRow(form.rowCount() - 1)
        while form.rowCount() < len(rows):
            value = ThemedLabel(self._theme, wraps=True, selectable=True)
            name_label = ThemedLabel(self._theme, "", "muted")
            name_label.setMinimumWidth(_NAMES_WIDTH)  # the same in both forms
            name_label.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
            form.addRow(name_label, value)
        for number, (name, words, tip) in enumerate(rows):
            for role, text in ((QFormLayout.ItemRole.LabelRole, name), (QFormLayout.ItemRole.FieldRole, words)):
                item = form.itemAt(number, role)
                label = item.widget() if item is not None else None
                assert isinstance(label, ThemedLabel)
                label.setText(text)
                set_tip(label, tip)


def _head_words(head: ModelCard) -> str:
    kind = f" ({head.kind.words})" if head.kind is not None else ""
    return f"{head.name}{kind}{'' if head.fits_surely else ', its sizes fit'}"


def _tips(heads: Sequence[ModelCard]) -> str:
    return "\n".join(dict.fromkeys(head.match.words for head in heads if head.match and head.match.words))


def _form() -> tuple[QWidget, QFormLayout]:
    part = QWidget()
    form = QFormLayout(part)
    form.setContentsMargins(0, 0, 0, 0)
    form.setHorizontalSpacing(MEDIUM)
    form.setVerticalSpacing(TIGHT)
    form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
    form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
    form.setContentsMargins(0, 0, SMALL, 0)
    return part, form
