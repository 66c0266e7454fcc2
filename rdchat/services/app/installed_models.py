"""The models on this machine, looked for beside the window's own work."""

from rdchat.inference.api.model_card import ModelCard
from rdchat.services.background.folder_search import FolderSearch


class InstalledModels(FolderSearch):
    """See `FolderSearch`; it finds models."""

    @property
    def models(self) -> tuple[ModelCard, ...]:
        """What was found last."""
        return self.found
