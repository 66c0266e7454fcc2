"""How replies are drafted: the mode, what shapes its drafts, and why a mode is not to be had."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QSignalBlocker, Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QCheckBox, QFileDialog, QGridLayout, QLabel, QPushButton, QWidget

from rdchat.inference.api.events import ModeOption
from rdchat.inference.api.reply_statistics import AutoChoice
from rdchat.inference.api.requests import MOST_BEAM_ROWS, MOST_DRAFT_TOKENS, DraftSettings, Mode
from rdchat.services.chat.draft_control import DraftControl
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import PlainLabel, set_tip
from rdchat.ui.look.theme import SMALL, TIGHT, Theme
from rdchat.ui.speed.fields import CalmComboBox, CalmSpinBox, FolderPicker
from rdchat.ui.speed.sections import Section

_COPIED_MS = 1600
_CHOICE_LINES = 3
_COPY = "Copy training command"
_WHO = "Who proposes tokens for the model to verify. It changes how fast a reply comes, never what it says."


class DraftControls(Section):
    """Shows the loaded model's settings and applies each change at once."""

    def __init__(self, drafting: DraftControl, theme: Theme) -> None:
        super().__init__(theme, "Drafting")
        self._drafting = drafting
        self._build_mode()
        self._build_numbers()
        self._build_pickers()
        self.applies = self.add(ThemedLabel(theme, "", "muted", -1))
        self._used_in: dict[QWidget, tuple[Mode, ...]] = {
            self.width_: (Mode.DRAFTER,),
            self.length: (Mode.DRAFTER,),
            self.lookup_branch: (Mode.DRAFTER,),
            self.draft_tokens: (Mode.SPECULATIVE, Mode.LOOKUP),
            self.drafter: (Mode.DRAFTER, Mode.AUTO),
            self.draft_model: (Mode.SPECULATIVE, Mode.AUTO),
        }
        self._explain()
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
        room = self.choice.fontMetrics().lineSpacing() * _CHOICE_LINES
        self.choice.setMinimumHeight(room)  # it changes many times in a reply, and what stands below keeps its place
        set_tip(
            self.choice,
            "What the automatic mode does at this moment, and why. 4 x 5 is beam width 4 and beam length 5.",
        )
        self.problem = self._add_words("warning")
        self.copy = self.add(QPushButton(_COPY))
        self.copy.setAutoDefault(False)
        self._copied = QTimer(self, singleShot=True, interval=_COPIED_MS)
        self._copied.timeout.connect(lambda: self.copy.setText(_COPY))

    def _add_words(self, color: str) -> ThemedLabel:
        label = self.add(ThemedLabel(self.theme, "", color, -1))
        label.setWordWrap(True)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        return label

    def _build_numbers(self) -> None:
        self.width_, self.length = CalmSpinBox(1, MOST_BEAM_ROWS), CalmSpinBox(2, MOST_BEAM_ROWS)
        self.draft_tokens = CalmSpinBox(1, MOST_DRAFT_TOKENS)
        self.lookup_branch = QCheckBox("Lookup branch")
        self._labels: dict[QWidget, QLabel] = {}
        grid = self._add_grid()
        self._add_field(grid, "Beam width", self.width_, 0)
        self._add_field(grid, "Beam length", self.length, 1)
        self._add_field(grid, "Draft tokens", self.draft_tokens, 2)
        grid.addWidget(self.lookup_branch, 3, 0, 1, 2)

    def _build_pickers(self) -> None:
        drafting = self._drafting
        self.drafter = FolderPicker("Model's own", lambda: drafting.recent_drafters, lambda: drafting.drafters)
        self.draft_model = FolderPicker("None", lambda: self._drafting.recent_draft_models)
        grid = self._add_grid()
        self._add_field(grid, "Drafter", self.drafter, 0)
        self.facts = ThemedLabel(self.theme, "", "muted", -1)
        self.facts.setWordWrap(True)
        self.facts.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        grid.addWidget(self.facts, 1, 0, 1, 2)
        self._add_field(grid, "Draft model", self.draft_model, 2)

    def _add_grid(self) -> QGridLayout:
        grid = QGridLayout(area := QWidget())
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(SMALL)
        grid.setVerticalSpacing(TIGHT)
        grid.setColumnStretch(1, 1)
        self.add(area)
        return grid

    def _add_field(self, grid: QGridLayout, label: str, field: QWidget, row: int) -> None:
        words = self._labels[field] = PlainLabel(label)
        words.setBuddy(field)
        field.setAccessibleName(label)
        grid.addWidget(words, row, 0)
        if isinstance(field, CalmSpinBox):
            grid.addWidget(field, row, 1, Qt.AlignmentFlag.AlignRight)
        else:
            grid.addWidget(field, row, 1)

    def _explain(self) -> None:
        self.lookup_branch.setAccessibleName("Lookup branch")
        for field, words in (
            (
                self.drafter,
                "A small network that drafts for this very model: published for it, or made by rdchat train-drafter.",
            ),
            (self.draft_model, "A smaller model that knows the same tokens."),
            (
                self.width_,
                f"Beams that the drafter follows side by side. Width times length is at most {MOST_BEAM_ROWS}.",
            ),
            (self.length, "Tokens of a beam; the first one is the token that the model has chosen already."),
            (self.draft_tokens, "The most tokens that are proposed in a round."),
            (self.lookup_branch, "Also propose what followed the same words earlier in the chat."),
        ):
            modes = " and ".join(mode.words for mode in self._used_in[field])
            explanation = f"{words} Used by: {modes}."
            for part in (field, self._labels.get(field)):
                if isinstance(part, FolderPicker):
                    part.explain(explanation)
                elif part is not None:
                    set_tip(part, explanation)
            field.setAccessibleDescription(words)

    def _connect(self) -> None:
        self._drafting.changed.connect(self.refresh)
        self._drafting.changed.connect(self.drafter.refresh)
        self.drafter.opened.connect(self._drafting.look_for_drafters)
        self.mode.opened.connect(self._drafting.refresh_options)
        self.mode.activated.connect(lambda: self._change(mode=Mode(self.mode.currentData())))
        self.width_.valueChanged.connect(lambda value: self._change(beam_width=value))
        self.length.valueChanged.connect(lambda value: self._change(beam_length=value))
        self.draft_tokens.valueChanged.connect(lambda value: self._change(draft_tokens=value))
        self.lookup_branch.toggled.connect(lambda on: self._change(lookup_branch=on))
        self.drafter.picked.connect(lambda name: self._change(drafter=name))
        self.draft_model.picked.connect(lambda name: self._change(draft_model=name))
        for picker, title, take in (
            (self.drafter, "Choose a drafter's folder", lambda name: self._change(drafter=name)),
            (self.draft_model, "Choose a draft model's folder", lambda name: self._change(draft_model=name)),
        ):
            picker.opened.connect(self._drafting.refresh_options)
            picker.folder_wanted.connect(lambda title=title, take=take: self._choose_folder(title, take))
        self.copy.clicked.connect(self._copy_command)

    def refresh(self) -> None:
        """Show the settings in force, and what is to be had."""
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
        self._show_words(settings.mode)

    def _show_beams(self, settings: DraftSettings) -> None:
        for field, value, low, other in (
            (self.width_, settings.beam_width, 1, settings.beam_length),
            (self.length, settings.beam_length, 2, settings.beam_width),
        ):
            with QSignalBlocker(field):
                field.setRange(low, max(low, MOST_BEAM_ROWS // other))
                field.setValue(value)

    def _show_words(self, mode: Mode) -> None:
        option = self._drafting.option(mode)
        self.explanation.setText(formatting.MODE_EXPLANATIONS[mode])
        self.facts.setText(_facts(option) if mode in self._used_in[self.drafter] else "")
        self.facts.setVisible(bool(self.facts.text()))
        self._show_choice()
        problem, serious = self._problem(option)
        self.problem.setText(problem)
        self.problem.set_color("warning" if serious else "muted")
        self.problem.setVisible(bool(problem))
        self.copy.setVisible(option is not None and bool(option.command))
        set_tip(self.copy, option.command if option else "")
        applies = self._drafting.applies
        self.applies.setText(f"Applies {applies}." if applies else "")
        self.applies.setVisible(bool(applies))

    def show_choice(self, choice: AutoChoice | None) -> None:
        """Show what the automatic mode does at this moment; None where no reply tells."""
        text = f"{_chosen(choice)}. {choice.words}" if choice else ""
        if text != self.choice.text():
            self.choice.setText(text)
            self._show_choice()

    def _show_choice(self) -> None:
        """What the mode does now takes the place of what it is."""
        told = bool(self.choice.text()) and self._drafting.settings.mode is Mode.AUTO
        self.choice.setVisible(told)
        self.explanation.setVisible(not told)

    def _problem(self, option: ModeOption | None) -> tuple[str, bool]:
        """Return what there is to say of the mode, and whether it keeps it from running."""
        if self._drafting.checking and (option is None or not option.available):
            return "Looking whether it can run…", False
        if option is not None and not option.available:
            return f"{option.reason} Until then, replies are decoded plainly.", True
        if self._drafting.last_problem:
            return self._drafting.last_problem, True
        return (option.reason if option else ""), False

    def _change(self, **values: object) -> None:
        self._drafting.change(replace(self._drafting.settings, **values))  # type: ignore[arg-type]

    def _choose_folder(self, title: str, take: Callable[[str], None]) -> None:
        dialog = QFileDialog(self, title, str(Path.home()))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(take)
        dialog.open()

    def _copy_command(self) -> None:
        option = self._drafting.option(self._drafting.settings.mode)
        if option is not None:
            QGuiApplication.clipboard().setText(option.command)
            self.copy.setText("Copied")
            self._copied.start()


def _facts(option: ModeOption | None) -> str:
    """Return the kind of the head that drafts, and how sure it is that it was made for the model."""
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
