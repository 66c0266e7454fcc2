"""Downloads as widgets see them: what goes on in the downloading process, told on the main thread."""

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.hub.downloads.download_process import DownloadProcess
from rdchat.hub.downloads.download_progress import DownloadLimits, DownloadProgress, DownloadState, FileProgress
from rdchat.hub.downloads.wanted_downloads import WantedDownload, write_wanted
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.tokens import Tokens
from rdchat.services.background.work_queue import WorkQueue
from rdchat.services.models.downloading.download_totals import DownloadTotals, totals_of
from rdchat.services.models.downloading.left_over import LeftOver, free_bytes, left_over

_LOG = logging.getLogger(__name__)
LIMITS = DownloadLimits(tries=60, lock_wait_s=1e9)
"""The window has time: it goes on trying for an hour without a network, and waits for other programs' downloads."""
_DISK_LOOK_MS = 3000


class Downloads(QObject):
    """Starts, pauses, resumes and discards downloads, and remembers them. Lives on the main thread.

    What goes on when the app ends, however it ends, is gone on with at the next start; what was paused or has failed
    waits for the person.

    Args:
        tokens: Where the person's tokens are found.
        limits: Of downloads at once, times and the disk.
        parent: The Qt parent.

    Attributes:
        free_bytes: Of the disk that takes what is downloaded; None until it was looked at.
    """

    progressed = Signal(DownloadProgress)
    finished = Signal(DownloadProgress)
    failed = Signal(DownloadProgress)
    removed = Signal(str)
    disk_looked = Signal()
    restored = Signal()  # what earlier runs left is listed
    went_on = Signal(tuple)  # DownloadProgress of each download that a start of the app goes on with by itself
    _told = Signal(object)  # from any thread

    def __init__(self, tokens: Tokens, limits: DownloadLimits = LIMITS, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._told.connect(self._take, Qt.ConnectionType.QueuedConnection)
        self._process = DownloadProcess(self._tell, tokens, limits)
        self._reserve_bytes = limits.reserve_bytes
        self._work = WorkQueue("downloads' disk", self)
        self._shown: dict[str, DownloadProgress] = {}
        self._no_models: set[str] = set()
        self._deleted: dict[Path, list[tuple[DownloadProgress, bool]]] = {}  # by the trash's entry; whether models
        self._remembered: tuple[WantedDownload, ...] | None = None
        self._restored = False
        self._closed = False
        self.free_bytes: int | None = None
        self._disk_timer = QTimer(self, interval=_DISK_LOOK_MS)
        self._disk_timer.timeout.connect(self._look_at_disk)
        self._watched = False

    def start(self, repository: str, revision: str = "main", gguf: str = "", *, is_model: bool = True) -> str:
        """Begin a download, or go on with one that was left unfinished; return its id.

        Args:
            repository: The hub id.
            revision: A branch, tag or commit.
            gguf: The GGUF file to take, where there are several.
            is_model: Whether it answers by itself once it is here; a drafter head does not.

        Raises:
            HubError: If that is no hub id, or no revision.
            InvalidSettingError: If `HF_ENDPOINT` is no address.
        """
        find_endpoint()
        known = self._known(repository, revision, gguf)
        download = known.id if known else self._add(WantedDownload(repository, revision, gguf, is_model, True), ()).id
        self.resume(download)
        return download

    def resume(self, download: str) -> None:
        """Go on with a download that was paused, has failed or was left by an earlier run."""
        self._process.resume(download)
        if self._shown[download].state.has_ended:
            self._take(self._shown[download].resumed())

    def pause(self, download: str) -> None:
        """Stop a download; its bytes stay."""
        self._process.pause(download)

    def discard(self, download: str) -> None:
        """Stop a download and remove what it has left; `removed` follows."""
        self._process.discard(download)

    def clear(self, download: str) -> None:
        """Show a finished download no longer; the model stays."""
        if self._shown[download].state is DownloadState.FINISHED:
            self._forget(download)

    def clear_finished(self) -> None:
        for progress in self.progress():
            self.clear(progress.id)

    def retry_refused(self) -> None:
        """Go on with what the hub refused for want of a token: there is another one now."""
        for progress in self.progress():
            if progress.state is DownloadState.FAILED and progress.lack:
                self.resume(progress.id)

    def set_at_once(self, number: int) -> None:
        """Let so many downloads go on at once."""
        self._process.set_at_once(number)

    def progress(self) -> tuple[DownloadProgress, ...]:
        """Return where each download stands, in the order in which they were begun."""
        return tuple(self._shown.values())

    def last_of(self, repository: str, revision: str = "main", gguf: str = "") -> DownloadProgress | None:
        """Return where the download of just that stands; None where there was none."""
        return self._known(repository, revision, gguf)

    def forget_deleted(self, model: Path, entry: Path | None) -> None:
        """Show what was downloaded no longer, as it was deleted.

        Args:
            model: Its snapshot's folder, or the GGUF file in it.
            entry: Of the trash, by which `bring_back` shows it again; None where it was deleted for good.
        """
        deleted = [progress for progress in self.progress() if _is_of(progress, model)]
        if entry is not None:
            self._deleted[entry] = [(progress, self.is_model(progress.id)) for progress in deleted]
        for progress in deleted:
            self._forget(progress.id)

    def forget_unfinished(self, repository: str) -> None:
        """Show a model's unfinished downloads no longer, as what they left was deleted."""
        for progress in self.progress():
            if progress.repository == repository and progress.state in {DownloadState.PAUSED, DownloadState.FAILED}:
                self._forget(progress.id)

    def bring_back(self, entry: Path) -> None:
        """Show again what was downloaded of a model that is back from the trash."""
        for progress, is_model in self._deleted.pop(entry, ()):
            if self._known(progress.repository, progress.revision, progress.gguf) is None:
                self._show(progress, is_model)

    def is_model(self, download: str) -> bool:
        """Tell whether it answers by itself once it is here."""
        return download not in self._no_models

    def totals(self) -> DownloadTotals:
        """Return what goes on, in sum."""
        return totals_of(self._shown.values())

    @property
    def lacking_bytes(self) -> int:
        """How much more the disk would have to have free for all that goes on; 0 where it suffices, or nobody knows."""
        totals = self.totals()
        if self.free_bytes is None or not totals.going:
            return 0
        return max(0, totals.total_bytes - totals.done_bytes + self._reserve_bytes - self.free_bytes)

    def restore(self) -> None:
        """List what earlier runs left unfinished, and go on with what went on then. Once; later calls do nothing."""
        if not self._restored:
            self._restored = True
            self._work.do(left_over, self._take_left_over)

    def watch_disk(self, watched: bool) -> None:
        """Look how much of the disk is free, every few seconds while somebody watches or something is downloaded."""
        if self._closed:
            return
        self._watched = watched
        if watched:
            self._look_at_disk()
        self._set_disk_timer()

    def close(self) -> None:
        """Pause all and end the process; the next start goes on with what went on."""
        self._closed = True
        self._disk_timer.stop()
        self._process.close()
        self._work.close()

    def _tell(self, progress: DownloadProgress) -> None:
        with suppress(RuntimeError):  # the app has ended meanwhile
            self._told.emit(progress)

    @Slot(object)
    def _take(self, progress: DownloadProgress) -> None:
        before = self._shown.get(progress.id)
        if self._closed or before is None:
            return
        if progress.state is DownloadState.REMOVED:
            self._forget(progress.id)
            return
        if not progress.files:  # nothing is known yet of what was known before
            progress = replace(progress, files=before.files, commit=before.commit, left_out=before.left_out)
        self._shown[progress.id] = progress
        self._remember()
        self.progressed.emit(progress)
        if progress.state is not before.state:
            self._set_disk_timer()
            if progress.state is DownloadState.FINISHED:
                self.finished.emit(progress)
            elif progress.state is DownloadState.FAILED:
                self.failed.emit(progress)

    def _add(self, wanted: WantedDownload, files: tuple[FileProgress, ...]) -> DownloadProgress:
        paused = self._process.add(wanted.repository, wanted.revision, wanted.gguf, files)
        self._show(paused, wanted.is_model)
        return paused

    def _show(self, progress: DownloadProgress, is_model: bool) -> None:
        self._shown[progress.id] = progress
        if not is_model:
            self._no_models.add(progress.id)
        self.progressed.emit(progress)

    def _forget(self, download: str) -> None:
        del self._shown[download]
        self._no_models.discard(download)
        self._remember()
        self._set_disk_timer()
        self.removed.emit(download)

    def _known(self, repository: str, revision: str, gguf: str) -> DownloadProgress | None:
        wanted = (repository, revision, gguf)
        return next((p for p in self._shown.values() if (p.repository, p.revision, p.gguf) == wanted), None)

    def _remember(self) -> None:
        """Write down what has not finished, where that is another than before."""
        wanted = tuple(
            WantedDownload(p.repository, p.revision, p.gguf, self.is_model(p.id), not p.state.has_ended)
            for p in self._shown.values()
            if p.state is not DownloadState.FINISHED
        )
        if wanted != self._remembered:
            self._remembered = wanted
            self._work.do(lambda: write_wanted(paths.downloads_path(), wanted))

    def _take_left_over(self, left: tuple[LeftOver, ...] | RdchatError) -> None:
        if isinstance(left, RdchatError):
            _LOG.warning("What earlier runs left cannot be listed: %s", left)
            return
        went_on = []
        for each in left:
            wanted = each.wanted
            if self._known(wanted.repository, wanted.revision, wanted.gguf):
                continue  # begun meanwhile
            with suppress(RdchatError):  # the file was written by somebody else
                paused = self._add(wanted, each.files)
                if wanted.goes_on:
                    went_on.append(paused)
        for paused in went_on:
            self.resume(paused.id)
        self._remember()
        if went_on:
            self.went_on.emit(tuple(went_on))
        self.restored.emit()

    def _set_disk_timer(self) -> None:
        wanted = self._watched or any(not progress.state.has_ended for progress in self._shown.values())
        if wanted != self._disk_timer.isActive():
            (self._disk_timer.start if wanted else self._disk_timer.stop)()

    def _look_at_disk(self) -> None:
        self._work.do(free_bytes, self._take_free_bytes)

    def _take_free_bytes(self, free: int | RdchatError | None) -> None:
        if not isinstance(free, RdchatError) and free != self.free_bytes:
            self.free_bytes = free
            self.disk_looked.emit()


def _is_of(progress: DownloadProgress, model: Path) -> bool:
    """Tell whether a finished download is what lies at a path: a snapshot's folder, or a GGUF file in it."""
    folder = Path(progress.folder)
    here = model == folder or any(model == folder / file.name for file in progress.files)
    return here and progress.state is DownloadState.FINISHED
