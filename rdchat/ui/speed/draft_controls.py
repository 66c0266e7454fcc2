"""The speed panel's section of draft settings: the mode, the drafter, sizes, and why a mode cannot run.

`DraftControls` shows the settings of `DraftControl` and passes each change to it. The fields are "calm": the wheel
scrolls the panel under them and changes a value only in a field that has the focus. `add_models` also fills the menus
of models in the window's header and in the settings.
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
    QLayout,
    QMenu,
    QPushButton,
    QSizePolicy,
    QSpinBox,
    QWidget,
)

from rdchat.inference.api import (
    DRAFTERS,
    MAX_BEAM_ROWS,
    MAX_DRAFT_TOKENS,
    AutoChoice,
    Mode,
    ModelCard,
    ModeOption,
    Statistics,
    draft_size,
    remote_model,
)
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

# Lines of text that have room below the mode.
_EXPLANATION_LINES = 3
_REMOTE = "The other computer decides how it drafts."
_MODE_TIP = "How the next tokens are drafted. This changes the speed of a reply, not its text."
# Unusable models whose reasons one tooltip lists.
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
    """A check box with what every field of a setting has: the signal `edited` and the method `show_value`."""

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
    """A button that shows the name of the chosen drafter's folder, with a menu of drafters to choose from.

    The menu offers none, recent folders, installed drafters, a search in the Models window and a dialog for a folder.

    Args:
        none: The button's text if no folder is chosen.
        title: The title of the dialog that asks for a folder.
        explanation: The tooltip, below the chosen folder.
        recent: Returns the folders or hub ids to offer.
        installed: Returns the drafters on this machine; those that cannot be used have a problem.
    """

    # The person has chosen a folder or hub id, or None.
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
        add_models(
            self._menu,
            self.edited.emit,
            self._chosen,
            self._recent(),
            self._offered,
            none=self._none,
            unfit=("drafter", "used here"),
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

    Those of a folder that cannot be used share one disabled entry; its tooltip has the reasons.

    Args:
        menu: The menu.
        choose: Called with the model that the person picks.
        chosen: The model that is chosen; it is listed in any case.
        recent: The models chosen lately.
        installed: The models on this machine.
        none: The text of the first entry, which stands for None.
        unfit: Two parts of the shared entry's text: what a model is called, and what cannot be done with it, such as
            `drafter` and `used here`.
        sections: The heading of each folder; one that is missing here is headed by its own name.
    """
    seeing = {card.model for card in installed if card.sees and not card.problem}

    def add(name: str, model: str | None) -> None:
        name = f"{name}  ·  {SEES}" if model in seeing else name
        add_action(menu, name, lambda: choose(model), chosen == model, model or "")

    add(none, None)
    # A remote model is listed below its server alone.
    served = {card.model for card in installed if remote_model(card.model) and not card.problem}
    recent_models = [model for model in dict.fromkeys((chosen, *recent)) if model is not None and model not in served]
    if recent_models:
        menu.addSection("Recent")
    for model in recent_models:
        add(model_label(model), model)
    by_origin: dict[str, list[ModelCard]] = {}
    for card in installed:
        by_origin.setdefault(card.origin, []).append(card)
    for origin, cards in by_origin.items():
        menu.addSection(button_text(sections.get(origin, origin)))
        for card in cards:
            if not card.problem:
                add(card.name, card.model)
        if reasons := [f"{card.name}: {card.problem}" for card in cards if card.problem]:
            text = f"{counted(len(reasons), unfit[0])} that cannot be {unfit[1]}"
            add_action(menu, text, lambda: None, tip=listed(reasons, _MAX_REASONS, "\n")).setEnabled(False)


class _Field(NamedTuple):
    """A field that changes one of the draft settings.

    Attributes:
        name: Its label, also its key in `DRAFT_SETTINGS`.
        widget: The field.
        setting: The name of the setting in `DraftSettings`.
    """

    name: str
    widget: CalmSpinBox | CalmCheckBox | FolderPicker
    setting: str


class DraftControls(Section):
    """Shows the loaded model's draft settings and applies each change at once."""

    def __init__(self, drafting: DraftControl, theme: Theme) -> None:
        super().__init__(theme, "Drafting settings")
        self._drafting = drafting
        # What the automatic mode does or did in a reply, shown in place of its explanation; for the tooltip, the
        # figures behind that; and the size of its drafts.
        self._auto_note = ""
        self._auto_figures = ""
        self._auto_size = ""
        self._build_mode()
        # `width` is a method of Qt's.
        self.width_ = CalmSpinBox(1, MAX_BEAM_ROWS)
        self.length = CalmSpinBox(2, MAX_BEAM_ROWS)
        self.draft_tokens = CalmSpinBox(1, MAX_DRAFT_TOKENS)
        self.lookup_branch = CalmCheckBox()
        self.exact = CalmCheckBox()
        self.drafter = FolderPicker(
            _own_drafter(None),
            "Choose a drafter's folder",
            DRAFT_SETTINGS["Drafter"],
            lambda: drafting.recent_drafters,
            lambda: drafting.drafters,
        )
        self.draft_model = FolderPicker(
            "None",
            "Choose a draft model's folder",
            DRAFT_SETTINGS["Draft model"],
            lambda: drafting.recent_draft_models,
            # Called, it returns an empty tuple: no installed models are offered here.
            tuple,
        )
        self.facts = small_text(theme, selectable=True)
        set_tip(self.facts, "Whether the drafter was made for this model.")
        self._fields = (
            _Field("Drafter", self.drafter, "drafter"),
            _Field("Draft model", self.draft_model, "draft_model"),
            _Field("Beams", self.width_, "beam_width"),
            _Field("Beam length", self.length, "beam_length"),
            _Field("Draft tokens", self.draft_tokens, "draft_tokens"),
            _Field("Lookup too", self.lookup_branch, "lookup_branch"),
        )
        self._form = form_layout(area := QWidget(), spacing=(TIGHT, TIGHT), align=Qt.AlignmentFlag.AlignLeft)
        self.insert_row(area)
        # Of each setting: its field, or the layout around that.
        self._lines: dict[str, QWidget | QLayout] = {}
        self._build_form()
        self.applies = self.insert_row(ThemedLabel(theme, "", "muted", -1))
        self._connect()
        self.show_settings()

    def _build_mode(self) -> None:
        self.mode = self.insert_row(CalmComboBox())
        self.mode.setAccessibleName("Draft mode")
        set_tip(self.mode, _MODE_TIP)
        fill_box(self.mode, [(mode.label, mode) for mode in Mode])
        self.explanation = self.insert_row(small_text(self.theme, "", "muted", selectable=True))
        self.explanation.setAlignment(Qt.AlignmentFlag.AlignTop)
        height = self.explanation.fontMetrics().lineSpacing() * _EXPLANATION_LINES
        # The text changes many times in a reply; the widgets below should not move.
        self.explanation.setMinimumHeight(height)
        self.problem = self.insert_row(small_text(self.theme, "", "warning", selectable=True))

    def _build_form(self) -> None:
        for field in (*self._fields, _Field("Exact times", self.exact, "profile")):
            widget = field.widget
            # Small fields stand at the right of their line.
            line = None if isinstance(widget, FolderPicker) else row(None, widget)
            add_row(self._form, field.name, widget, DRAFT_SETTINGS[field.name].format(rows=MAX_BEAM_ROWS), line)
            self._lines[field.setting] = line or widget
            if widget is self.drafter:
                self._form.addRow(self.facts)

    def _connect(self) -> None:
        self._drafting.changed.connect(self.show_settings)
        self._drafting.changed.connect(self.drafter.show_drafters)
        self.drafter.opened.connect(self._drafting.look_for_drafters)
        self.mode.activated.connect(lambda index: self._change("mode", Mode(self.mode.itemData(index))))
        self.exact.edited.connect(self._drafting.set_exact_times)
        for field in self._fields:
            field.widget.edited.connect(partial(self._change, field.setting))
        for opener in (self.mode, self.drafter, self.draft_model):
            opener.opened.connect(self._drafting.refresh_options)

    def show_settings(self) -> None:
        """Show the present settings, and which of them can be changed."""
        drafting = self._drafting
        settings = drafting.settings
        self.mode.setCurrentIndex(self.mode.findData(settings.mode))
        # Width times length is the number of rows that a call of the model verifies. The limits come before the values,
        # since a field cuts off a value beyond its limit.
        self.width_.limit(MAX_BEAM_ROWS // settings.beam_length)
        self.length.limit(MAX_BEAM_ROWS // settings.beam_width)
        self.mode.setEnabled(drafting.ready)
        option = drafting.option(settings.mode)
        # The option tells of the drafter that is chosen; the model's own drafter is known only if none is.
        own = None if settings.drafter else drafting.option(Mode.DRAFTER)
        self.drafter.name_none(_own_drafter(own))
        self.mode.setVisible(not drafting.is_remote)
        for field in self._fields:
            field.widget.show_value(getattr(settings, field.setting))
            field.widget.setEnabled(drafting.ready)
            self._form.setRowVisible(self._lines[field.setting], self._has_use(field, option))
        self._form.setRowVisible(self._lines["profile"], not drafting.is_remote)
        self._show_texts()

    def _has_use(self, field: _Field, option: ModeOption | None) -> bool:
        """Return whether a field has an effect in the chosen mode, whose option is `option`."""
        mode = self._drafting.settings.mode
        if self._drafting.is_remote or not mode.uses(field.setting):
            return False
        if field.widget is self.width_ and option is not None and not option.trees:
            return False
        # A mode that cannot run has no use for sizes, but a missing drafter can be picked.
        return isinstance(field.widget, FolderPicker) or not self._drafting.problem(mode)

    def _show_texts(self) -> None:
        """Show the texts around the fields: explanation, drafter, problem, and when a change applies."""
        settings = self._drafting.settings
        mode = settings.mode
        option = self._drafting.option(mode)
        self._explain()
        self.facts.show_text(_doubt(option) if mode.uses("drafter") else "")
        problem, serious = self._problem(mode, option)
        self.problem.show_text(problem, "warning" if serious else "muted")
        size = self._auto_size if mode is Mode.AUTO else draft_size(*settings.sizes.values())
        brief = " · ".join(filter(None, (mode.label, problem if serious else size)))
        self.show_brief(_REMOTE if self._drafting.is_remote else brief, "warning" if serious else "muted")
        applies = self._drafting.applies
        self.applies.show_text(f"Applies {applies}." if applies else "")

    def show_reply(self, statistics: Statistics, *, writing: bool, busy: bool) -> None:
        """Show what the automatic mode does in the reply that is being written, or did in the last one.

        A reply that was not written in mode Auto has no `choice`: then the mode is explained as usual. What a choice
        expects is left out on a `busy` computer, and until it is known whether it is that.
        """
        choice = statistics.choice if writing or statistics.generated_tokens else None
        self._auto_note = ""
        self._auto_figures = ""
        self._auto_size = ""
        if choice is not None:
            self._note_choice(choice, writing=writing, trusted=statistics.settled and not busy)
        self._show_texts()

    def _note_choice(self, choice: AutoChoice, *, writing: bool, trusted: bool) -> None:
        """Note what the automatic mode does; also its expectations, if they can be `trusted`."""
        mode = Mode(choice.mode)
        if mode is Mode.OFF:
            self._auto_size = "not drafting" if writing else ""
            self._auto_note = choice.words if trusted else ""
            return
        drafter = DRAFTERS[mode]
        self._auto_size = drafter.draft_size(choice.width, choice.length)
        if writing:
            self._auto_note = f"Auto is using {drafter.noun}: {self._auto_size}."
        if trusted:
            self._auto_figures = (
                f"{choice.words} A step is expected to write {choice.tokens_per_call:.1f} tokens and take "
                f"{choice.cost:.1f} times as long as one without a draft."
            )

    def _explain(self) -> None:
        """Explain the mode, or show what the automatic mode does."""
        mode = self._drafting.settings.mode
        text = MODES[mode]
        if self._drafting.is_remote:
            text = _REMOTE
        elif mode is Mode.AUTO and self._auto_note:
            text = self._auto_note
        self.explanation.setText(text)
        set_tip(self.explanation, self._auto_figures if mode is Mode.AUTO else "")

    def _problem(self, mode: Mode, option: ModeOption | None) -> tuple[str, bool]:
        """Return a note about the mode, and whether it is a problem; otherwise the note is muted.

        The first of these that there is: that the engine still checks the mode, unless it is known to run already; why
        the mode cannot run; why the last reply was not drafted to its end; what limits the mode.
        """
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
    """Return the drafter picker's text if none is chosen: whether the model has a drafter of its own.

    `option` is that of the mode with a drafter head; None where it is not known. A drafter that may not have been made
    for this model only "fits" it.
    """
    if option is None:
        return "The model's own"
    if not option.available:
        return "None for this model"
    return "Made for this model" if option.match is None or option.match.sure else "Fits this model"


def _doubt(option: ModeOption | None) -> str:
    """Return why the drafter may not have been made for the model; empty where it was, or where that is not known."""
    return option.match.text if option and option.match else ""
