"""The toolbar: the model with its menu, and buttons of the window's actions."""

from collections.abc import Sequence, Set
from functools import partial
from pathlib import Path

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QMenu, QPushButton, QSizePolicy, QToolBar, QWidget

from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.model_card import ModelCard
from rdchat.inference.api.requests import Dtype
from rdchat.services.background.background_work import FolderSearch
from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import OpenMenu, add_action
from rdchat.ui.look.icons import show_icon
from rdchat.ui.look.plain_text import button_text, set_tip
from rdchat.ui.look.theme import Theme
from rdchat.ui.settings.chat_options import ChatOptions
from rdchat.ui.window.menus import WindowActions

_MOST_REASONS = 20  # in a tip


class ModelButton(QPushButton):
    """Shows the model's name and precision; its menu loads another model or precision."""

    folder_requested = Signal()
    models_requested = Signal()
    choices_changed = Signal()

    def __init__(self, slot: ModelSlot, preferences: SettingsControl) -> None:
        super().__init__()
        self._slot, self._preferences = slot, preferences
        self._installed: FolderSearch | None = None
        self._menu = OpenMenu(self._fill_menu, self)
        self._menu.setToolTipsVisible(True)
        self._precisions = self._build_precisions()
        self._menu.aboutToShow.connect(self.look)
        self.setMenu(self._menu)
        self.setFlat(True)
        self.setAccessibleName("Model")
        for changed in (slot.load_started, slot.loaded, slot.failed, slot.unload_started):
            changed.connect(self.refresh)
        slot.load_progressed.connect(self._show_load)
        self.refresh()

    def offer(self, installed: FolderSearch) -> None:
        """Also list the models on this machine."""
        self._installed = installed
        installed.changed.connect(self._menu.refresh)
        installed.changed.connect(self.choices_changed)

    def look(self) -> None:
        """Look for models on this machine; `choices_changed` follows if there are other ones."""
        if self._installed is not None:
            self._installed.look()

    def choices(self) -> list[tuple[str, str | None]]:
        """Return the names of the known models but the chosen one, each with the argument for `ModelSlot.load`."""
        found: dict[str | None, str] = {None: formatting.DEFAULT_MODEL}
        found |= {model: Path(model).name for model in self._preferences.settings.recent_models}
        for each in self._installed.found if self._installed is not None else ():
            if not each.problem:
                found.setdefault(each.model, each.name)
        return [(name, model) for model, name in found.items() if model != self._slot.chosen]

    def refresh(self) -> None:
        """Show the loaded model, or that there is none."""
        model = self._slot.info
        if self._slot.loading:
            self._show("Loading the model…", "The model is being loaded. Click to choose another.")
        elif model is None:
            self._show("No model", "No model is loaded. Click to choose one.")
        else:
            words = f"{model.name}  ·  {formatting.dtype_words(model.dtype)}"
            self._show(words, f"{model.path}\nClick to choose another model.")

    def _show(self, words: str, tip: str) -> None:
        self.setText(button_text(words))
        set_tip(self, tip)
        self.setAccessibleDescription(words)

    def _show_load(self, progress: LoadProgress) -> None:
        self._show(formatting.load_words(progress), "The model is being loaded. Click to choose another.")

    def _fill_menu(self) -> None:
        recent, chosen = self._preferences.settings.recent_models, self._slot.chosen
        if chosen is not None and chosen not in recent:  # it did not load, and the precision below is for it
            recent = (chosen, *recent)
        for action in self._precisions.actions():
            action.setChecked(action.data() == self._slot.dtype)
        self._add_model(formatting.DEFAULT_MODEL, None)
        if recent:
            self._menu.addSection("Recent")
            for model in recent:
                self._add_model(Path(model).name, model)
        if self._installed is not None:
            self._add_installed(self._installed.found, {None, *recent})
        self._menu.addSeparator()
        self._menu.addMenu(self._precisions)
        self._menu.addSeparator()
        self._menu.addAction("Models…", self.models_requested.emit)
        self._menu.addAction("Open folder…", self.folder_requested.emit)

    def _add_installed(self, models: Sequence[ModelCard], listed: Set[str | None]) -> None:
        """List models that are not in the menu yet, by place; count those that cannot be loaded in one line."""
        for place in dict.fromkeys(model.place for model in models):
            here = [model for model in models if model.place == place and model.model not in listed]
            fit = [model for model in here if not model.problem]
            unfit = [f"{model.name}: {model.problem}" for model in here if model.problem]
            if here:
                self._menu.addSection(f"From {button_text(place)}" if place != "rdchat" else "Converted")
            for model in fit:
                self._add_model(model.name, model.model)
            if unfit:
                words = f"{formatting.counted(len(unfit), 'model')} that cannot be loaded"
                tip = "\n".join(unfit[:_MOST_REASONS])
                add_action(self._menu, words, lambda: None, tip=tip).setEnabled(False)

    def _add_model(self, name: str, model: str | None) -> None:
        add_action(self._menu, name, partial(self._slot.load, model), self._slot.chosen == model, model or "")

    def _build_precisions(self) -> QMenu:
        menu = QMenu("Precision", self._menu)
        group = QActionGroup(menu)
        for dtype in Dtype:
            load = partial(self._slot.load_precision, dtype)
            group.addAction(add_action(menu, formatting.DTYPE_WORDS[dtype], load, chosen=False)).setData(dtype)
        return menu


class Header(QToolBar):
    """The toolbar.

    Args:
        model: The button of the model.
        popover: The chat's options.
        theme: The appearance to follow.
        actions: The window's.
    """

    def __init__(self, model: ModelButton, popover: ChatOptions, theme: Theme, actions: WindowActions) -> None:
        super().__init__("Toolbar")
        self.setObjectName("header")
        self.setMovable(False)
        self.setFloatable(False)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.PreventContextMenu)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonIconOnly)
        self.setIconSize(QSize(18, 18))
        self.model, self.popover = model, popover
        popover.setParent(self, popover.windowFlags())
        self._options = actions.options
        self.addActions([actions.sidebar, actions.new_chat])
        self.addWidget(_spring())
        self.addWidget(self.model)
        self.addWidget(_spring())
        self.addActions([actions.options, actions.panel])
        shown = (actions.sidebar, actions.new_chat, actions.options, actions.panel)
        for action, icon in zip(shown, ("sidebar", "new", "options", "panel"), strict=True):
            show_icon(action, icon, theme, "text")
            self.widgetForAction(action).setAccessibleName(action.text().rstrip("…"))
        show_icon(model, "model", theme)

    def open_options(self) -> None:
        """Open the chat's options below their button."""
        self.popover.open_below(self.widgetForAction(self._options))


def _spring() -> QWidget:
    spring = QWidget()
    spring.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
    return spring
