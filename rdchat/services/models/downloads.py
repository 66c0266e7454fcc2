"""Downloads as widgets see them: what goes on in the downloading process, told on the main thread."""

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.hub.downloads.download_process import DownloadProcess
from rdchat.hub.downloads.download_progress import DownloadLimits, DownloadProgress, DownloadState
from rdchat.hub.tokens import Tokens


class Downloads(QObject):
    """Starts, pauses, resumes and discards downloads. Lives on the main thread.

    Args:
        tokens: Where the person's tokens are found.
        limits: Of downloads at once, times and the disk.
        parent: The Qt parent.
    """

    progressed = Signal(DownloadProgress)
    finished = Signal(DownloadProgress)
    _told = Signal(object)  # from the reading thread

    def __init__(self, tokens: Tokens, limits: DownloadLimits, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._told.connect(self._take, Qt.ConnectionType.QueuedConnection)
        self._process = DownloadProcess(self._told.emit, tokens, limits)

    def start(self, repository: str, revision: str = "main", gguf: str = "") -> str:
        """Begin a download, or go on with one that was left unfinished; return its id.

        Raises:
            HubError: If that is no hub id, or no revision.
            InvalidSettingError: If `HF_ENDPOINT` is no address.
        """
        return self._process.start(repository, revision, gguf)

    def progress(self) -> tuple[DownloadProgress, ...]:
        """Return where each download stands, in the order in which they were begun."""
        return self._process.progress()

    def close(self) -> None:
        """Pause all and end the process."""
        self._process.close()

    @Slot(object)
    def _take(self, progress: DownloadProgress) -> None:
        self.progressed.emit(progress)
        if progress.state is DownloadState.FINISHED:
            self.finished.emit(progress)
