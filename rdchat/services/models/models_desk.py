"""Builds the services of the models window, and closes them."""

from dataclasses import replace

from PySide6.QtCore import QObject

from rdchat.chat.settings import Settings
from rdchat.hub.cache_layout import downloaded_repositories
from rdchat.hub.tokens import Tokens
from rdchat.hub.trash import TrashedModel
from rdchat.services.background.background_work import FolderSearch
from rdchat.services.chat.draft_control import DraftControl
from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.models.discover.fit import Machine
from rdchat.services.models.discover.hub_details import HubDetails
from rdchat.services.models.discover.hub_search import HubSearch
from rdchat.services.models.downloads.downloads import LIMITS, Downloads
from rdchat.services.models.downloads.hub_account import HubAccount
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf
from rdchat.services.models.drafters.hub_drafters import HubDrafters
from rdchat.services.models.installed.library import Library
from rdchat.services.models.installed.removal import Removal, Removed
from rdchat.services.models.installed.verification import Verification
from rdchat.services.models.sources import DeviceMemory, ModelSources
from rdchat.services.models.training.training_control import TrainingControl


class ModelsDesk(QObject):
    """The models window's services; built when the window is first asked for."""

    def __init__(
        self,
        slot: ModelSlot,
        preferences: SettingsControl,
        drafting: DraftControl,
        sources: ModelSources,
        parent: QObject | None = None,
        *,
        memory: DeviceMemory | None = None,
    ) -> None:
        super().__init__(parent)
        self.slot, self.preferences, self.drafting = slot, preferences, drafting
        self.tokens = Tokens()
        self.account = HubAccount(self.tokens, self)
        limits = replace(LIMITS, at_once=preferences.settings.downloads_at_once)
        self.downloads = Downloads(self.tokens, limits, self)
        self.account.accepted.connect(self.downloads.retry_refused)
        preferences.changed.connect(self._apply)
        self.library = Library(sources, slot, preferences, self)
        self.verification = Verification(self.tokens, self)
        self.removal = Removal(self)
        self.search = HubSearch(self.tokens, self)
        self.details = HubDetails(self.tokens, self)
        self.memory = memory or DeviceMemory(sources.memory, self)
        for happened in (slot.loaded, slot.failed, slot.unloaded):
            happened.connect(self.memory.ask)
        self.here = FolderSearch(downloaded_repositories, self)  # hub ids of what is on this machine
        self.removal.removed.connect(self._on_removed)
        self.removal.restored.connect(self._on_restored)
        self.shelf = DrafterShelf(slot, drafting, preferences, self.library, sources.made_for, parent=self)
        self.hub_drafters = HubDrafters(self.tokens, self.downloads, self)
        self.downloads.finished.connect(self.shelf.look)
        self.training = TrainingControl(self)
        self.downloads.restore()

    @property
    def machine(self) -> Machine | None:
        """This machine's memory and precision; None before the engine has started."""
        memory = self.memory.now
        return None if memory is None else Machine(memory, self.slot.dtype)

    def close(self) -> None:
        """End all work; running downloads are resumed at the next start."""
        self.search.close()
        self.details.close()
        self.here.close()
        self.downloads.close()
        self.account.close()
        self.hub_drafters.close()
        self.training.close()
        self.shelf.close()
        for part in (self.library, self.memory, self.verification):
            part.close()
        self.removal.close()

    def _on_removed(self, removed: Removed) -> None:
        self.downloads.forget_deleted(removed.model.path, removed.trashed.entry if removed.trashed else None)
        if removed.with_unfinished:
            self.downloads.forget_unfinished(removed.model.repository)
        self.shelf.look()

    def _on_restored(self, trashed: TrashedModel) -> None:
        self.downloads.bring_back(trashed.entry)
        self.shelf.look()

    def _apply(self, settings: Settings) -> None:
        self.downloads.set_at_once(settings.downloads_at_once)
