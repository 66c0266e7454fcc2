"""The button of the toolbar that shows the model and loads another one."""

from textwrap import shorten

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton

from rdchat.inference.api import ModelCard, ranked_model, remote_model
from rdchat.services.background_work import FolderSearch
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.servers.remote_servers import RemoteServers
from rdchat.services.storage_watch import SettingsControl
from rdchat.services.window.app_status import AppStatus
from rdchat.ui.speed.draft_controls import add_models
from rdchat.ui.style import OpenMenu, add_action, button_text, formatting, set_tip, visible_text

_MAX_PROBLEM = 100
_ASLEEP = "It was not used for a while and gave its memory back. It loads again when you type.\n"


class ModelButton(QPushButton):
    """Shows the model's name; its menu loads another model.

    Args:
        slot: Has the loaded model, and loads others.
        status: Says how far a load is, and whether the model is asleep.
        settings: Have the models that were used lately.
        remote: The remote servers and their models.

    Attributes:
        choices_changed: Emitted when `choices` has other models.
    """

    folder_requested = Signal()
    models_requested = Signal()
    choices_changed = Signal()

    def __init__(self, slot: ModelSlot, status: AppStatus, settings: SettingsControl, remote: RemoteServers) -> None:
        super().__init__(flat=True)
        self._slot = slot
        self._status = status
        self._settings = settings
        self._remote = remote
        self._installed: FolderSearch | None = None
        self._menu = OpenMenu(self._fill_menu, self)
        self._menu.setToolTipsVisible(True)
        self._menu.aboutToShow.connect(self.look_for_models)
        self.setMenu(self._menu)
        self.setAccessibleName("Model")
        for changed in (status.changed, slot.load_started, slot.loaded):
            changed.connect(self.update_button)
        self.update_button()

    def offer_models(self, installed: FolderSearch) -> None:
        """Also list the models on this machine, which a search finds; the app calls it once after the start."""
        self._installed = installed
        for changed in (installed.changed, self._remote.changed):
            changed.connect(self._menu.remake_entries)
            changed.connect(self.choices_changed)

    def look_for_models(self) -> None:
        """Look for models on this machine; `choices_changed` follows if there are other ones."""
        if self._installed is not None:
            self._installed.search_folders()
        self._remote.ask_servers()

    def choices(self) -> list[tuple[str, str | None]]:
        """Return the names of the known models but the chosen one, each with what `ModelSlot.load_model` takes.

        First the default model, then those used lately, then others on this machine and on servers: each model once.
        """
        names: dict[str | None, str] = {None: formatting.DEFAULT_MODEL}
        names |= {model: formatting.model_label(model) for model in self._settings.values.recent_models}
        for each in self._cards:
            if not each.problem:
                names.setdefault(
                    each.model, formatting.model_label(each.model) if remote_model(each.model) else each.name
                )
        return [(name, model) for model, name in names.items() if model != self._slot.chosen]

    @property
    def _cards(self) -> tuple[ModelCard, ...]:
        installed = self._installed.results if self._installed is not None else ()
        return (*installed, *self._remote.cards)

    def update_button(self) -> None:
        """Show the loaded model, or that there is none."""
        model = self._slot.info
        status = self._status.value
        if model is None:
            self._show(status.text, f"{status.detail}\nClick to choose a model.".strip())
        elif model.server:
            tip = f"It runs on {model.server} ({model.device}): what you send leaves {formatting.MACHINE}."
            self._show(formatting.remote_label(model.server, model.name), f"{tip}\nClick to choose another model.")
        else:
            asleep = status.state is EngineState.ASLEEP
            chosen = self._slot.chosen
            name = formatting.model_label(chosen) if chosen and ranked_model(chosen) else model.name
            text = f"{name}  ·  asleep" if asleep else name
            tip = f"{model.path}\nIn memory as {formatting.dtype_text(model.dtype)}.\n"
            self._show(text, f"{tip}{_ASLEEP if asleep else ''}Click to choose another model.")

    def _show(self, text: str, tip: str) -> None:
        self.setText(button_text(text))
        set_tip(self, tip)
        self.setAccessibleDescription(text)

    def _fill_menu(self) -> None:
        """List models by where they are from, then servers with a problem, then ways to other models.

        The origin `rdchat` is rdchat's own folder, which has the models that it converted.
        """
        recent = self._settings.values.recent_models
        slot = self._slot
        cards = self._cards
        sections = {card.origin: f"From {card.origin}" for card in cards} | {"rdchat": "Converted"}
        sections |= {each.server.name: f"On {each.server.name} {formatting.LEAVES}" for each in self._remote.states}
        add_models(
            self._menu,
            slot.load_model,
            slot.chosen,
            recent,
            cards,
            none=formatting.DEFAULT_MODEL,
            unfit=("model", "loaded"),
            sections=sections,
        )
        for state in self._remote.states:
            if state.problem:
                self._menu.addSection(sections[state.server.name])
                text = shorten(visible_text(state.problem), _MAX_PROBLEM, placeholder=" …")
                add_action(self._menu, text, lambda: None, tip=visible_text(state.problem)).setEnabled(False)
        self._menu.addSeparator()
        self._menu.addAction("Models…", self.models_requested.emit)
        self._menu.addAction("Open Model Folder…", self.folder_requested.emit)
