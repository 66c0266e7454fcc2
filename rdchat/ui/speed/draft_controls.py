"""The section of how replies are drafted: the mode, the drafter, advanced settings, and why a mode cannot run."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFormLayout, QLayout, QWidget

from rdchat.inference.api.events import ModeOption
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DRAFTERS, MAX_BEAM_ROWS, MAX_DRAFT_TOKENS, Mode
from rdchat.services.drafting.draft_control import DraftControl
from rdchat.ui.speed.panel_fields import CalmCheckBox, CalmComboBox, CalmSpinBox, FolderPicker
from rdchat.ui.speed.sections import Section
from rdchat.ui.style import formatting
from rdchat.ui.style.labels import DRAFT_SETTINGS, MODES, ThemedLabel, set_tip
from rdchat.ui.style.layouts import add_row, fill_box, form_layout, row
from rdchat.ui.style.theme import TIGHT, Theme

_FASTEST = "The fastest"
_CHOICE_LINES = 3
_REMOTE = "The other computer decides how it drafts."
_MODE_TIP = "How the next tokens are drafted. This changes the speed of a reply, not its text."


class _Field(NamedTuple):
    """A field that changes one of the draft settings.

    Attributes:
        setting: The name of the setting in `DraftSettings`.
    """

    name: str
    widget: CalmSpinBox | CalmCheckBox | FolderPicker
    setting: str


class DraftControls(Section):
    """Shows the loaded model's draft settings and applies each change at once."""

    def __init__(self, drafting: DraftControl, theme: Theme) -> None:
        super().__init__(theme, "Drafting")
        self._drafting = drafting
        # What the automatic mode does or did, and the figures behind that
        self._note = ""
        self._more = ""
        self._build_mode()
        self.width_ = CalmSpinBox(1, MAX_BEAM_ROWS)
        self.length = CalmSpinBox(2, MAX_BEAM_ROWS)
        self.draft_tokens = CalmSpinBox(1, MAX_DRAFT_TOKENS)
        self.lookup_branch = CalmCheckBox()
        tip = DRAFT_SETTINGS["Drafter"]
        title = "Choose a drafter's folder"
        self.drafter = FolderPicker(
            _own_drafter(None), title, tip, lambda: drafting.recent_drafters, lambda: drafting.drafters
        )
        tip = DRAFT_SETTINGS["Draft model"]
        title = "Choose a draft model's folder"
        self.draft_model = FolderPicker("None", title, tip, lambda: drafting.recent_draft_models, tuple)
        self.facts = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        set_tip(self.facts, "The kind of drafter head, and whether it was made for this model.")
        self._fields = self._all_fields()
        self.advanced = Section(theme, "Advanced")
        self._lines: dict[str, tuple[QFormLayout, QWidget | QLayout]] = {}
        self._build_forms()
        self.applies = self.insert_row(ThemedLabel(theme, "", "muted", -1))
        self._connect()
        self.show_settings()

    def _build_mode(self) -> None:
        self.mode = self.insert_row(CalmComboBox())
        self.mode.setAccessibleName("Draft mode")
        set_tip(self.mode, _MODE_TIP)
        self.always = CalmComboBox()
        fill_box(self.always, [(_FASTEST, Mode.AUTO), *((mode.label, mode) for mode in DRAFTERS)])
        self.explanation = self._add_text("muted")
        self.explanation.setAlignment(Qt.AlignmentFlag.AlignTop)
        height = self.explanation.fontMetrics().lineSpacing() * _CHOICE_LINES
        # The text changes many times in a reply; the widgets below do not move.
        self.explanation.setMinimumHeight(height)
        self.problem = self._add_text("warning")

    def _add_text(self, color: str) -> ThemedLabel:
        return self.insert_row(ThemedLabel(self.theme, "", color, -1, wraps=True, selectable=True))

    def _all_fields(self) -> Sequence[_Field]:
        return (
            _Field("Drafter", self.drafter, "drafter"),
            _Field("Draft model", self.draft_model, "draft_model"),
            _Field("Beams", self.width_, "beam_width"),
            _Field("Beam length", self.length, "beam_length"),
            _Field("Draft tokens", self.draft_tokens, "draft_tokens"),
            _Field("Prompt lookup too", self.lookup_branch, "lookup_branch"),
        )

    def _build_forms(self) -> None:
        """Put the drafters below the mode, and sizes into the advanced settings."""
        forms = {}
        for section in (self, self.advanced):
            forms[section] = form_layout(area := QWidget(), spacing=(TIGHT, TIGHT), align=Qt.AlignmentFlag.AlignLeft)
            section.insert_row(area)
        add_row(forms[self.advanced], "Draft with", self.always, _MODE_TIP)
        for field in self._fields:
            widget = field.widget
            form = forms[self if isinstance(field.widget, FolderPicker) else self.advanced]
            line = None if isinstance(widget, FolderPicker) else row(None, widget)
            add_row(form, field.name, widget, DRAFT_SETTINGS[field.name].format(rows=MAX_BEAM_ROWS), line)
            self._lines[field.setting] = form, line or widget
            if widget is self.drafter:
                form.addRow(self.facts)
        self.insert_row(self.advanced)

    def _connect(self) -> None:
        self._drafting.changed.connect(self.show_settings)
        self._drafting.changed.connect(self.drafter.show_drafters)
        self.drafter.opened.connect(self._drafting.look_for_drafters)
        for box in (self.mode, self.always):
            box.activated.connect(lambda index, box=box: self._change("mode", Mode(box.itemData(index))))
        for field in self._fields:
            field.widget.edited.connect(partial(self._change, field.setting))
        for opener in (self.mode, self.always, self.drafter, self.draft_model):
            opener.opened.connect(self._drafting.refresh_options)

    def show_settings(self) -> None:
        """Show the present settings, and which of them can be changed."""
        settings = self._drafting.settings
        offered = dict.fromkeys((Mode.AUTO, Mode.OFF, settings.mode))
        fill_box(self.mode, [(mode.label, mode) for mode in offered], settings.mode)
        fixed = settings.mode in DRAFTERS
        self.always.setCurrentIndex(self.always.findData(settings.mode if fixed else Mode.AUTO))
        self.width_.limit(MAX_BEAM_ROWS // settings.beam_length)
        self.length.limit(MAX_BEAM_ROWS // settings.beam_width)
        for box in (self.mode, self.always):
            box.setEnabled(self._drafting.ready)
        option = self._drafting.option(settings.mode)
        missing = option is not None and not option.available
        # An option is about the drafter that is chosen.
        own = None if settings.drafter else self._drafting.option(Mode.DRAFTER)
        self.drafter.name_none(_own_drafter(own))
        self.mode.setVisible(not self._drafting.is_remote)
        for field in self._fields:
            widget = field.widget
            picker = isinstance(field.widget, FolderPicker)
            widget.show_value(getattr(settings, field.setting))
            # A missing drafter can be picked.
            used = settings.mode.uses(field.setting) and (not missing or picker)
            used = used and (widget is not self.width_ or option is None or option.trees)
            used = used and not self._drafting.is_remote
            widget.setEnabled(self._drafting.ready)
            form, line = self._lines[field.setting]
            form.setRowVisible(line, used)
        self.advanced.setVisible(not self._drafting.is_remote)
        self._show_text(settings.mode, option)

    def _show_text(self, mode: Mode, option: ModeOption | None) -> None:
        self._explain()
        self.facts.show_text(_facts(option) if mode.uses("drafter") else "")
        problem, serious = self._problem(option)
        self.problem.show_text(problem, "warning" if serious else "muted")
        applies = self._drafting.applies
        self.applies.show_text(f"Applies {applies}." if applies else "")

    def show_reply(self, statistics: Statistics, writing: bool) -> None:
        """Show what the automatic mode does in the reply that is being written, or did in the last one."""
        choice = statistics.choice if writing or statistics.generated_tokens else None
        self._note = ""
        self._more = ""
        if choice is not None and statistics.rounds and not writing:
            steps = formatting.counted(statistics.target_calls, "step")
            self._note = f"Auto drafted in {statistics.drafted_rounds:,} of {steps} of the last reply."
        elif choice is not None and not writing:
            self._note = "Auto did not draft in the last reply."
            self._more = choice.words
        elif choice is not None and (mode := Mode(choice.mode)) is Mode.OFF:
            self._note = choice.words
        elif choice is not None:
            # A settled reply has a measured speed.
            expected = "" if statistics.settled else f" {choice.words}"
            self._note = f"Auto is using {DRAFTERS[mode].noun}.{expected}"
            self._more = (
                f"{DRAFTERS[mode].size_text(choice.width, choice.length)}. A step is expected to write "
                f"{choice.tokens_per_call:.1f} tokens and take {choice.cost:.1f} times as long as one without a draft."
            )
        self._explain()

    def _explain(self) -> None:
        """Explain the mode, or show what the automatic mode does."""
        mode = self._drafting.settings.mode
        auto = mode is Mode.AUTO
        own = (auto and self._note) or MODES[mode]
        self.explanation.setText(_REMOTE if self._drafting.is_remote else own)
        set_tip(self.explanation, self._more if auto else "")

    def _problem(self, option: ModeOption | None) -> tuple[str, bool]:
        """Return a note about the mode, and whether the mode cannot run."""
        if self._drafting.checking and (option is None or not option.available):
            return "Checking whether this works here…", False
        if option is not None and not option.available:
            # Prompt lookup needs nothing but a model that can check drafts.
            lookup = self._drafting.option(Mode.LOOKUP)
            never = lookup is not None and not lookup.available
            return f"{option.reason} {'This model cannot draft.' if never else 'Until then drafting is off.'}", True
        if self._drafting.last_problem:
            return self._drafting.last_problem, True
        return (option.reason if option else ""), False

    def _change(self, setting: str, value: Any) -> None:
        self._drafting.change(replace(self._drafting.settings, **{setting: value}))


def _own_drafter(option: ModeOption | None) -> str:
    """Return whether there is a drafter that was made for the model; None where that is not known."""
    if option is None:
        return "The model's own"
    if not option.available:
        return "None for this model"
    return "Made for this model" if option.match is None or option.match.sure else "Fits this model"


def _facts(option: ModeOption | None) -> str:
    """Return the kind of the drafter head, and whether it was made for the model."""
    if option is None or option.kind is None:
        return ""
    match = option.match
    kind = f"Kind: {option.kind.label}."
    return kind if match is None or match.sure else f"{kind} {match.text}".strip()
