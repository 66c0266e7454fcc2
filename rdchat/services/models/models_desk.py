"""What the models window works with, in one hand; built when the window is first asked for."""

from PySide6.QtCore import QObject

from rdchat.hub.downloads.download_progress import DownloadLimits
from rdchat.hub.tokens import Tokens
from rdchat.services.chat.draft_control import DraftControl
from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.models.downloads import Downloads
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf
from rdchat.services.models.drafters.hub_drafters import HubDrafters
from rdchat.services.models.training.estimator import Estimator
from rdchat.services.models.training.training_control import TrainingControl


class ModelsDesk(QObject):
    """Attributes are the parts; each page of the window takes those that it needs.

    Attributes:
        slot: The model that answers, and how another one is loaded.
        preferences: What the person prefers.
        drafting: How replies are drafted, and the drafters to choose from.
        tokens: Where the person's hub tokens are found.
        downloads: What is being downloaded.
        shelf: The drafters on this machine.
        hub_drafters: Those that are published.
        training: The training of a drafter.
        estimator: What one would take.
    """

    def __init__(
        self, slot: ModelSlot, preferences: SettingsControl, drafting: DraftControl, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.slot, self.preferences, self.drafting = slot, preferences, drafting
        self.tokens = Tokens()
        self.downloads = Downloads(self.tokens, DownloadLimits(), self)
        self.shelf = DrafterShelf(slot, drafting, preferences, self)
        self.hub_drafters = HubDrafters(self.tokens, self.downloads, self)
        self.hub_drafters.downloaded.connect(self.shelf.look)
        self.training = TrainingControl(self)
        self.estimator = Estimator(self)

    def close(self) -> None:
        """End what goes on; downloads are paused and go on when the app is started again."""
        self.hub_drafters.close()
        self.downloads.close()
        self.estimator.close()
        self.training.close()
        self.shelf.close()
