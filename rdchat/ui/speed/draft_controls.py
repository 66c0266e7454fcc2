"""The speed panel's section of draft settings: the mode, the drafter, sizes, and why a mode cannot run.

The wheel scrolls the panel past its fields and does not change them. `add_models` also fills other menus of models.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QResizeEvent, QWheelEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFormLayout,
    QLayout,
    QMenu,
    QPushButton,
    QSizePolicy,
    QSpinBox,
    QWidget,
)

from rdchat.inference.api import DRAFTERS, MAX_BEAM_ROWS, MAX_DRAFT_TOKENS, Mode, ModelCard, ModeOption, Statistics
from rdchat.services.engine.draft_control import DraftControl
from rdchat.ui.speed.sections import Section
from rdchat.ui.style import (
    DRAFT_SETTINGS,
    MODES,
    SEES,
    TIGHT,
    FileMode,
    OpenMenu,
    Theme,
    ThemedLabel,
    add_action,
    add_row,
    ask_to_open,
    button_text,
    fill_box,
    form_layout,
    listed,
    model_label,
    row,
    set_tip,
    small_text,
)
from rdchat.wording import counted

_FASTEST = "The fastest"
_CHOICE_LINES = 3
_REMOTE = "The other computer decides how it drafts."
_MODE_TIP = "How the next tokens are drafted. This changes the speed of a reply, not its text."
_MAX_REASONS = 20
# The pixels that a button needs for its frame and its menu arrow.
_MENU_ROOM = 36


class CalmComboBox(QComboBox):
    """A combo box that the wheel does not change while the panel scrolls under the pointer."""

    opened = Signal()

    def showPopup(self) -> None:
        self.opened.emit()
        super().showPopup()

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class CalmCheckBox(QCheckBox):
    """A check box whose signal is that of the other fields."""

    def __init__(self) -> None:
        super().__init__()
        self.edited = self.toggled

    def show_value(self, checked: bool) -> None:
        with QSignalBlocker(self):
            self.setChecked(checked)


class CalmSpinBox(QSpinBox):
    """A spin box that the wheel changes only where it has the focus."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(minimum=low, maximum=high)
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        # While 12 is typed, 1 is not a value.
        self.setKeyboardTracking(False)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setFixedWidth(60)
        self.edited = self.valueChanged

    def limit(self, high: int) -> None:
        """Set the highest value, without `edited`."""
        with QSignalBlocker(self):
            self.setMaximum(max(self.minimum(), high))

    def show_value(self, value: int) -> None:
        with QSignalBlocker(self):
            self.setValue(value)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()


class FolderPicker(QPushButton):
    """Shows the name of a chosen folder; its menu offers none, recent folders, installed drafters, and ways to others.

    Args:
        none: Shown if no folder is chosen.
        title: The title of the dialog that asks for a folder.
        explanation: The tooltip, below the chosen folder.
        recent: Returns the folders or hub ids to offer.
        installed: Returns the drafters on this machine; those that cannot be used have a problem.
    """

    # It carries a folder or hub id, or None.
    edited = Signal(object)
    opened = Signal()
    search_requested = Signal()

    def __init__(
        self,
        none: str,
        title: str,
        explanation: str,
        recent: Callable[[], Iterable[str]],
        installed: Callable[[], Iterable[ModelCard]],
    ) -> None:
        super().__init__()
        self._none = none
        self._title = title
        self._explanation = explanation
        self._recent = recent
        self._installed = installed
        self._chosen: str | None = None
        self._offered: tuple[ModelCard, ...] = ()
        self._menu = OpenMenu(self._fill, self)
        self._menu.setToolTipsVisible(True)
        self._menu.aboutToShow.connect(self.opened)
        self.setMenu(self._menu)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(80)
        self.show_value(None)

    def show_value(self, name: str | None) -> None:
        self._chosen = name
        self.setAccessibleDescription(name or self._none)
        set_tip(self, f"{name}\n\n{self._explanation}" if name else self._explanation)
        self._elide()

    def name_none(self, text: str) -> None:
        """Change the text that is shown if no folder is chosen."""
        if text != self._none:
            self._none = text
            self.show_value(self._chosen)
            self._menu.remake_entries()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide()

    def _elide(self) -> None:
        name = self._none if self._chosen is None else Path(self._chosen).name
        room = self.width() - _MENU_ROOM
        self.setText(button_text(self.fontMetrics().elidedText(name, Qt.TextElideMode.ElideMiddle, room)))

    def show_drafters(self) -> None:
        """Show drafters that were found since the menu was opened."""
        if tuple(self._installed()) != self._offered:
            self._menu.remake_entries()

    def _fill(self) -> None:
        self._offered = tuple(self._installed())
        unfit = "drafter", "used here"
        add_models(
            self._menu, self.edited.emit, self._chosen, self._recent(), self._offered, none=self._none, unfit=unfit
        )
        self._menu.addSeparator()
        self._menu.addAction("Find in Models…", self.search_requested.emit)
        self._menu.addAction("Choose Folder…", self._choose_folder)

    def _choose_folder(self) -> None:
        ask_to_open(self, self._title, FileMode.Directory, lambda names: self.edited.emit(names[0]))


def add_models(
    menu: QMenu,
    choose: Callable[[str | None], object],
    chosen: str | None,
    recent: Iterable[str],
    installed: Sequence[ModelCard],
    *,
    none: str,
    unfit: tuple[str, str],
    sections: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Add the choice of a model or drafter to a menu: none, the recent ones, and those on this machine by folder.

    Those that cannot be used share an entry; its tooltip has the reasons.

    Args:
        menu: The menu.
        choose: Called with the model that the person picks.
        chosen: The model that is chosen; it is listed in any case.
        recent: The models chosen lately.
        installed: The models on this machine.
        none: The text of the first entry, which stands for None.
        unfit: What a model is called, and what cannot be done with those that have a problem.
        sections: Headings of origins; others are headed by their own name.
    """
    seeing = {card.model for card in installed if card.sees and not card.problem}

    def add(name: str, model: str | None) -> None:
        name = f"{name}  ·  {SEES}" if model in seeing else name
        add_action(menu, name, lambda: choose(model), chosen == model, model or "")

    add(none, None)
    named = dict.fromkeys(([] if chosen is None else [chosen]) + [*recent])
    if named:
        menu.addSection("Recent")
    for model in named:
        add(model_label(model), model)
    by_origin: dict[str, list[ModelCard]] = {}
    for card in installed:
        by_origin.setdefault(card.origin, []).append(card)
    for origin, cards in by_origin.items():
        menu.addSection(button_text(sections.get(origin, origin)))
        for card in cards:
            if not card.problem:
                add(f"{card.name}  ·  {card.kind.label}" if card.kind else card.name, card.model)
        if reasons := [f"{card.name}: {card.problem}" for card in cards if card.problem]:
            text = f"{counted(len(reasons), unfit[0])} that cannot be {unfit[1]}"
            add_action(menu, text, lambda: None, tip=listed(reasons, _MAX_REASONS, "\n")).setEnabled(False)


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
        self.facts = small_text(theme, selectable=True)
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
        return self.insert_row(small_text(self.theme, "", color, selectable=True))

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
        missing = self._drafting.problem(settings.mode)
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
        problem, serious = self._problem(mode, option)
        self.problem.show_text(problem, "warning" if serious else "muted")
        applies = self._drafting.applies
        self.applies.show_text(f"Applies {applies}." if applies else "")

    def show_reply(self, statistics: Statistics, writing: bool) -> None:
        """Show what the automatic mode does in the reply that is being written, or did in the last one."""
        choice = statistics.choice if writing or statistics.generated_tokens else None
        self._note = ""
        self._more = ""
        if choice is not None and statistics.rounds and not writing:
            steps = counted(statistics.target_calls, "step")
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
                f"{DRAFTERS[mode].draft_size(choice.width, choice.length)}. A step is expected to write "
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

    def _problem(self, mode: Mode, option: ModeOption | None) -> tuple[str, bool]:
        """Return a note about the mode, and whether the mode cannot run."""
        problem = self._drafting.problem(mode)
        if self._drafting.checking and (option is None or problem):
            return "Checking whether this works here…", False
        if problem:
            # Prompt lookup needs nothing but a model that can check drafts.
            never = self._drafting.problem(Mode.LOOKUP)
            return f"{problem} {'This model cannot draft.' if never else 'Until then drafting is off.'}", True
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
