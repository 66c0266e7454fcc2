"""A thin progress bar without text."""

from PySide6.QtWidgets import QProgressBar

from rdchat.hub.downloads.download import Download

_HEIGHT = 5
_WHOLE = 1000


class ProgressLine(QProgressBar):
    """Fills up, or moves to and fro while the share is unknown."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setTextVisible(False)
        self.setRange(0, 0)
        self.setFixedHeight(_HEIGHT)
        self.setAccessibleName(name)

    def show_share(self, share: float | None) -> None:
        """Show a share from 0 to 1; None if it is unknown."""
        self.setRange(0, 0 if share is None else _WHOLE)
        if share is not None:
            self.setValue(round(_WHOLE * share))

    def show_download(self, download: Download) -> None:
        """Show the downloaded share."""
        self.show_share(download.done_bytes / download.total_bytes if download.total_bytes else None)
