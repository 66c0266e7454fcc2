"""The section of how replies are drafted: the mode, the sizes of its drafts, and why a mode cannot run."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from rdchat.inference.api.events import ModeOption
from rdchat.inference.api.reply_statistics import AutoChoice
from rdchat.inference.api.requests import MOST_BEAM_ROWS, MOST_DRAFT_TOKENS, Mode
from rdchat.services.chat.draft_control import DraftControl
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import add_row, form_layout, row
from rdchat.ui.look.plain_text import PlainLabel, set_tip
from rdchat.ui.look.theme import SMALL, TIGHT, Theme
from rdchat.ui.speed.fields import CalmCheckBox, CalmComboBox, CalmSpinBox, FolderPicker
from rdchat.ui.speed.sections import Section

_COPIED_MS = 1600
_CHOICE_LINES = 3
_COPY = "Copy training command"
_WHO = "Who proposes tokens for the model to verify. It changes how fast a reply comes, never what it says."


class _Field(NamedTuple):
    """A field that changes one of the draft settings."""

    name: str
    widget: CalmSpinBox | CalmCheckBox | FolderPicker
    setting: str  # of `DraftSettings`
    modes: Sequence[Mode]  # that use it
    words: str  # what it means


class DraftControls(Section):
    """Shows the loaded model's draft settings and applies each change at once."""

    def __init__(self, drafting: DraftControl, theme: Theme) -> None:
        super().__init__(theme, "Drafting")
        self._drafting = drafting
        self._build_mode()
        self.width_, self.length = CalmSpinBox(1, MOST_BEAM_ROWS), CalmSpinBox(2, MOST_BEAM_ROWS)
        self.draft_tokens = CalmSpinBox(1, MOST_DRAFT_TOKENS)
        self.lookup_branch = CalmCheckBox("Lookup branch")
        self.drafter = FolderPicker(
            "Model's own", "Choose a drafter's folder", lambda: drafting.recent_drafters, lambda: drafting.drafters
        )
        self.draft_model = FolderPicker(
            "None", "Choose a draft model's folder", lambda: drafting.recent_draft_models, tuple
        )
        self.facts = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self._fields = self._all_fields()
        self._build_form()
        self.applies = self.add(ThemedLabel(theme, "", "muted", -1))
        self._connect()
        self.refresh()

    def _build_mode(self) -> None:
        self.mode = self.add(CalmComboBox())
        self.mode.setAccessibleName("Draft mode")
        set_tip(self.mode, _WHO)
        for mode in Mode:
            self.mode.addItem(mode.words, mode)
        self.explanation = self._add_words("muted")
        self.choice = self._add_words("muted")
        self.choice.setAlignment(Qt.AlignmentFlag.AlignTop)
        height = self.choice.fontMetrics().lineSpacing() * _CHOICE_LINES
        self.choice.setMinimumHeight(height)  # it changes many times in a reply, and the widgets below do not move
        set_tip(
            self.choice,
            "What the automatic mode does at this moment, and why. 4 x 5 is beam width 4 and beam length 5.",
        )
        self.problem = self._add_words("warning")
        self.copy = self.add(push_button(_COPY, ""))

    def _add_words(self, color: str) -> ThemedLabel:
        return self.add(ThemedLabel(self.theme, "", color, -1, wraps=True, selectable=True))

    def _all_fields(self) -> Sequence[_Field]:
        head, chains = (Mode.DRAFTER,), (Mode.SPECULATIVE, Mode.LOOKUP)
        width = f"Beams that the drafter follows side by side. Width times length is at most {MOST_BEAM_ROWS}."
        length = "Tokens of a beam; the first one is the token that the model has chosen already."
        lookup = "Also propose what followed the same words earlier in the chat."
        drafter = "A small network that drafts for this very model: published for it, or made by rdchat train-drafter."
        model = "A smaller model that knows the same tokens."
        most = "The most tokens that are proposed in a round."
        return (
            _Field("Beam width", self.width_, "beam_width", head, width),
            _Field("Beam length", self.length, "beam_length", head, length),
            _Field("Draft tokens", self.draft_tokens, "draft_tokens", chains, most),
            _Field("Lookup branch", self.lookup_branch, "lookup_branch", head, lookup),
            _Field("Drafter", self.drafter, "drafter", (*head, Mode.AUTO), drafter),
            _Field("Draft model", self.draft_model, "draft_model", (Mode.SPECULATIVE, Mode.AUTO), model),
        )

    def _build_form(self) -> None:
        self._form = form_layout(area := QWidget(), spacing=(SMALL, TIGHT), align=Qt.AlignmentFlag.AlignLeft)
        self.add(area)
        for field in self._fields:
            widget, explanation = field.widget, f"{field.words} Used by: {' and '.join(m.words for m in field.modes)}."
            if isinstance(widget, CalmCheckBox):
                self._form.addRow(widget)
            else:
                line = row(None, widget) if isinstance(widget, CalmSpinBox) else None
                add_row(self._form, field.name, widget, explanation, line)
            widget.setAccessibleName(field.name)
            if isinstance(widget, FolderPicker):
                widget.explain(explanation)
            else:
                widget.setAccessibleDescription(field.words)
                set_tip(widget, explanation)
            if widget is self.drafter:
                self._form.addRow(self.facts)
        self._labels = {label.buddy(): label for label in area.findChildren(PlainLabel)}

    def _connect(self) -> None:
        self._drafting.changed.connect(self.refresh)
        self._drafting.changed.connect(self.drafter.refresh)
        self.drafter.opened.connect(self._drafting.look_for_drafters)
        self.mode.activated.connect(lambda: self._change("mode", Mode(self.mode.currentData())))
        for field in self._fields:
            field.widget.edited.connect(partial(self._change, field.setting))
        for box in (self.mode, self.drafter, self.draft_model):
            box.opened.connect(self._drafting.refresh_options)
        self.copy.clicked.connect(self._copy_command)

    def refresh(self) -> None:
        """Show the present settings, and which of them can be changed."""
        settings = self._drafting.settings
        self.mode.setCurrentIndex(self.mode.findData(settings.mode))
        self.width_.limit(MOST_BEAM_ROWS // settings.beam_length)
        self.length.limit(MOST_BEAM_ROWS // settings.beam_width)
        self.mode.setEnabled(self._drafting.ready)
        option = self._drafting.option(settings.mode)
        missing = option is not None and not option.available
        for field in self._fields:
            widget, picker = field.widget, isinstance(field.widget, FolderPicker)
            widget.show_value(getattr(settings, field.setting))
            used = self._drafting.ready and settings.mode in field.modes
            used = used and (not missing or picker)  # the missing one can be picked
            used = used and (widget is not self.width_ or option is None or option.trees)
            widget.setEnabled(used)
            if label := self._labels.get(widget):
                label.setEnabled(used)
            if picker:
                self._form.setRowVisible(widget, settings.mode in field.modes)
        self._show_words(settings.mode, option)

    def _show_words(self, mode: Mode, option: ModeOption | None) -> None:
        self.explanation.setText(formatting.MODE_EXPLANATIONS[mode])
        self.facts.say(_facts(option) if mode in (Mode.DRAFTER, Mode.AUTO) else "")
        self._show_choice()
        problem, serious = self._problem(option)
        self.problem.say(problem)
        self.problem.set_color("warning" if serious else "muted")
        self.copy.setVisible(option is not None and bool(option.command))
        set_tip(self.copy, option.command if option else "")
        applies = self._drafting.applies
        self.applies.say(f"Applies {applies}." if applies else "")

    def show_choice(self, choice: AutoChoice | None) -> None:
        """Show what the automatic mode does at this moment; None if it does nothing."""
        text = f"{_chosen(choice)}. {choice.words}" if choice else ""
        if text != self.choice.text():
            self.choice.setText(text)
            self._show_choice()

    def _show_choice(self) -> None:
        """Replace the mode's explanation with its current choice, if there is one."""
        chosen = bool(self.choice.text()) and self._drafting.settings.mode is Mode.AUTO
        self.choice.setVisible(chosen)
        self.explanation.setVisible(not chosen)

    def _problem(self, option: ModeOption | None) -> tuple[str, bool]:
        """Return a note about the mode, and whether the mode cannot run."""
        if self._drafting.checking and (option is None or not option.available):
            return "Looking whether it can run…", False
        if option is not None and not option.available:
            return f"{option.reason} Until then, replies are decoded plainly.", True
        if self._drafting.last_problem:
            return self._drafting.last_problem, True
        return (option.reason if option else ""), False

    def _change(self, setting: str, value: Any) -> None:
        self._drafting.change(replace(self._drafting.settings, **{setting: value}))

    def _copy_command(self) -> None:
        option = self._drafting.option(self._drafting.settings.mode)
        if option is not None:
            QGuiApplication.clipboard().setText(option.command)
            self.copy.setText("Copied")
            QTimer.singleShot(_COPIED_MS, self.copy, lambda: self.copy.setText(_COPY))


def _facts(option: ModeOption | None) -> str:
    """Return the kind of the drafter head, and whether it was made for the model."""
    if option is None or option.kind is None:
        return ""
    match = option.match
    if match is None or match.sure:
        return f"{option.kind.words}{', made for this model' if match else ''}."
    return f"{option.kind.words}. {match.words}".strip()


def _chosen(choice: AutoChoice) -> str:
    """Return what the automatic mode does: `Auto: Drafter, 4 x 5` or `Auto: Prompt lookup, 6 tokens`."""
    mode = Mode(choice.mode)
    if mode is Mode.OFF:
        return "Auto: plain decoding"
    tokens = formatting.counted(choice.length - 1, "token")
    shape = f"{choice.width} x {choice.length}" if mode is Mode.DRAFTER else tokens
    return f"Auto: {mode.words}, {shape}"
