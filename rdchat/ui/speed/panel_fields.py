"""Fields of the draft controls: the wheel scrolls the panel past them, and they fit its width."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QResizeEvent, QWheelEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QMenu, QPushButton, QSizePolicy, QSpinBox

from rdchat.inference.api.model_facts import ModelCard
from rdchat.ui.style.buttons import OpenMenu, add_action
from rdchat.ui.style.formatting import SEES, counted, listed, model_label
from rdchat.ui.style.labels import button_text, set_tip
from rdchat.ui.style.opening import FileMode, ask_to_open

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
