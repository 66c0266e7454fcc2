"""The section of how replies are drafted: the mode, the sizes of its drafts, and why a mode cannot run."""

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QSignalBlocker, Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QCheckBox, QFormLayout, QWidget

from rdchat.inference.api.events import ModeOption
from rdchat.inference.api.reply_statistics import AutoChoice
from rdchat.inference.api.requests import MOST_BEAM_ROWS, MOST_DRAFT_TOKENS, DraftSettings, Mode
from rdchat.services.chat.draft_control import DraftControl
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import row
from rdchat.ui.look.plain_text import PlainLabel, set_tip
from rdchat.ui.look.theme import SMALL, TIGHT, Theme
from rdchat.ui.speed.fields import CalmComboBox, CalmSpinBox, FolderPicker
from rdchat.ui.speed.sections import Section

_COPIED_MS = 1600
_CHOICE_LINES = 3
_COPY = "Copy training command"
_WHO = "Who proposes tokens for the model to verify. It changes how fast a reply comes, never what it says."


class DraftControls(Section):
    """Shows the loaded model's draft settings and applies each change at once."""

    def __init__(self, drafting: DraftControl, theme: Theme) -> None:
        super().__init__(theme, "Drafting")
        self._drafting = drafting
        self._used_in: dict[QWidget, Sequence[Mode]] = {}
        self._labels: dict[QWidget, PlainLabel] = {}
        self._build_mode()
        self._build_sizes()
        self._build_pickers()
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

    def _build_sizes(self) -> None:
        self.width_, self.length = CalmSpinBox(1, MOST_BEAM_ROWS), CalmSpinBox(2, MOST_BEAM_ROWS)
        self.draft_tokens = CalmSpinBox(1, MOST_DRAFT_TOKENS)
        self.lookup_branch = QCheckBox("Lookup branch")
        form, head = self._add_form(), (Mode.DRAFTER,)
        words = f"Beams that the drafter follows side by side. Width times length is at most {MOST_BEAM_ROWS}."
        self._add_field(form, "Beam width", self.width_, head, words)
        words = "Tokens of a beam; the first one is the token that the model has chosen already."
        self._add_field(form, "Beam length", self.length, head, words)
        words = "The most tokens that are proposed in a round."
        self._add_field(form, "Draft tokens", self.draft_tokens, (Mode.SPECULATIVE, Mode.LOOKUP), words)
        words = "Also propose what followed the same words earlier in the chat."
        self._add_field(form, "Lookup branch", self.lookup_branch, head, words)

    def _build_pickers(self) -> None:
        drafting = self._drafting
        self.drafter = FolderPicker(
            "Model's own", "Choose a drafter's folder", lambda: drafting.recent_drafters, lambda: drafting.drafters
        )
        self.draft_model = FolderPicker(
            "None", "Choose a draft model's folder", lambda: drafting.recent_draft_models, tuple
        )
        form = self._add_form()
        words = "A small network that drafts for this very model: published for it, or made by rdchat train-drafter."
        self._add_field(form, "Drafter", self.drafter, (Mode.DRAFTER, Mode.AUTO), words)
        self.facts = ThemedLabel(self.theme, "", "muted", -1, wraps=True, selectable=True)
        form.addRow(self.facts)
        words = "A smaller model that knows the same tokens."
        self._add_field(form, "Draft model", self.draft_model, (Mode.SPECULATIVE, Mode.AUTO), words)

    def _add_form(self) -> QFormLayout:
        form = QFormLayout(area := QWidget())
        form.setContentsMargins(0, 0, 0, 0)
        form.setHorizontalSpacing(SMALL)
        form.setVerticalSpacing(TIGHT)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        self.add(area)
        return form

    def _add_field(self, form: QFormLayout, name: str, field: QWidget, modes: Sequence[Mode], words: str) -> None:
        """Add a field with its label; `words` explain it, `modes` are those that use it."""
        self._used_in[field] = modes
        field.setAccessibleName(name)
        explanation = f"{words} Used by: {' and '.join(mode.words for mode in modes)}."
        if isinstance(field, FolderPicker):
            field.explain(explanation)
        else:
            field.setAccessibleDescription(words)
            set_tip(field, explanation)
        if isinstance(field, QCheckBox):
            form.addRow(field)
            return
        label = self._labels[field] = PlainLabel(name)
        label.setBuddy(field)
        set_tip(label, explanation)
        form.addRow(label, row(None, field) if isinstance(field, CalmSpinBox) else field)

    def _connect(self) -> None:
        self._drafting.changed.connect(self.refresh)
        self._drafting.changed.connect(self.drafter.refresh)
        self.drafter.opened.connect(self._drafting.look_for_drafters)
        self.mode.activated.connect(lambda: self._change(mode=Mode(self.mode.currentData())))
        self.width_.valueChanged.connect(lambda value: self._change(beam_width=value))
        self.length.valueChanged.connect(lambda value: self._change(beam_length=value))
        self.draft_tokens.valueChanged.connect(lambda value: self._change(draft_tokens=value))
        self.lookup_branch.toggled.connect(lambda on: self._change(lookup_branch=on))
        self.drafter.picked.connect(lambda name: self._change(drafter=name))
        self.draft_model.picked.connect(lambda name: self._change(draft_model=name))
        for box in (self.mode, self.drafter, self.draft_model):
            box.opened.connect(self._drafting.refresh_options)
        self.copy.clicked.connect(self._copy_command)

    def refresh(self) -> None:
        """Show the present settings, and which of them can be changed."""
        settings = self._drafting.settings
        with QSignalBlocker(self.mode):
            self.mode.setCurrentIndex(self.mode.findData(settings.mode))
        self._show_beams(settings)
        with QSignalBlocker(self.draft_tokens):
            self.draft_tokens.setValue(settings.draft_tokens)
        with QSignalBlocker(self.lookup_branch):
            self.lookup_branch.setChecked(settings.lookup_branch)
        self.drafter.show_chosen(settings.drafter)
        self.draft_model.show_chosen(settings.draft_model)
        self.mode.setEnabled(self._drafting.ready)
        option = self._drafting.option(settings.mode)
        missing = option is not None and not option.available
        for field, modes in self._used_in.items():
            used = self._drafting.ready and settings.mode in modes
            used = used and (not missing or isinstance(field, FolderPicker))  # what is picked may be what is missing
            used = used and (field is not self.width_ or option is None or option.trees)
            shown = not isinstance(field, FolderPicker) or settings.mode in modes
            for part in (field, self._labels.get(field)):
                if part is not None:
                    part.setEnabled(used)
                    part.setVisible(shown)
        self._show_words(settings.mode, option)

    def _show_beams(self, settings: DraftSettings) -> None:
        for field, value, low, other in (
            (self.width_, settings.beam_width, 1, settings.beam_length),
            (self.length, settings.beam_length, 2, settings.beam_width),
        ):
            with QSignalBlocker(field):
                field.setRange(low, max(low, MOST_BEAM_ROWS // other))
                field.setValue(value)

    def _show_words(self, mode: Mode, option: ModeOption | None) -> None:
        self.explanation.setText(formatting.MODE_EXPLANATIONS[mode])
        self.facts.say(_facts(option) if mode in self._used_in[self.drafter] else "")
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

    def _change(self, **values: object) -> None:
        self._drafting.change(replace(self._drafting.settings, **values))  # type: ignore[arg-type]

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
