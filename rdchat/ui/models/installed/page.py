"""Everything on this machine that rdchat can run."""

from PySide6.QtWidgets import QWidget

from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.theme import Theme


class InstalledPage(QWidget):
    """Everything on this machine that rdchat can run.

    Args:
        desk: What the window works with.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, theme: Theme) -> None:
        super().__init__()
        self._desk, self._theme = desk, theme
