"""The downloads service with what it said, for tests."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
from pytestqt.qtbot import QtBot

from rdchat.hub import Tokens
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.services.models.downloads import Downloads
from tests.hub.downloads.downloading import LIMITS, check_whole


class FollowedDownloads:
    """Attributes are the service and what it said.

    Args:
        qtbot: Runs the event loop.
        tokens: Where tokens are found.
    """

    def __init__(self, qtbot: QtBot, tokens: Tokens) -> None:
        self._qtbot = qtbot
        self.service = Downloads(tokens, replace(LIMITS, lock_wait_s=1e6))
        self.finished: list[str] = []
        self.went_on: list[str] = []
        self.service.finished.connect(lambda progress: self.finished.append(progress.repository))
        self.service.went_on.connect(lambda went_on: self.went_on.extend(each.repository for each in went_on))

    def start(self, name: str) -> str:
        """Start the download of a model; return its id."""
        return self.service.start_download(Download(name))

    def check_end(self, download: str, files: dict[str, bytes]) -> None:
        """Wait until a download is finished, and check its files."""
        check_whole(Path(self.wait_for(download, DownloadState.FINISHED).folder), files)

    def now(self, download: str) -> Download | None:
        return {progress.id: progress for progress in self.service.all()}.get(download)

    def wait(self, download: str, wanted: Callable[[Download], object]) -> Download:
        """Return the progress of a download once it is as wanted."""
        found: list[Download] = []

        def look() -> bool:
            progress = self.now(download)
            if progress is not None and wanted(progress):
                found.append(progress)
            return bool(found)

        self._qtbot.waitUntil(look)
        return found[0]

    def wait_for(self, download: str, state: DownloadState) -> Download:
        return self.wait(download, lambda progress: progress.state is state)

    def go_on_for(self, seconds: float) -> None:
        """Let everything go on for some time, for what happens at any moment."""
        self._qtbot.wait(round(seconds * 1000))

    def restored(self) -> tuple[Download, ...]:
        """Read what earlier runs left; return what is listed then."""
        with self._qtbot.waitSignal(self.service.restored):
            self.service.restore_downloads()
        return self.service.all()

    def child(self) -> psutil.Process:
        """Return the process that downloads."""
        (child,) = [child for child in psutil.Process().children() if "downloads" in child.cmdline()]
        return child
