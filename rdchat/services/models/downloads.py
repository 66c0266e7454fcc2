"""The list of downloads, and the hub's token that they use."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError
from rdchat.hub import (
    AccessRefusedError,
    Endpoint,
    Token,
    Tokens,
    TokenSource,
    check_names,
    downloaded_with,
    find_endpoint,
    free_bytes,
    snapshot_of,
)
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadLimits, DownloadState, with_drafter
from rdchat.hub.downloads.download_process import DownloadProcess
from rdchat.hub.downloads.download_record import listed_downloads
from rdchat.services.background_work import BackgroundWork, MainThread
from rdchat.services.models.threaded_service import ModelService
from rdchat.work import Job

_LOG = logging.getLogger(__name__)
LIMITS = DownloadLimits(tries=60, lock_wait_s=1e9)
"""The window tries for an hour without a network, and waits for other programs' downloads of the same model."""

type _TokenFacts = tuple[Token | None, str | None]
"""The token in use, and its account's name; None if the hub was not asked for that."""


class Downloads(QObject):
    """Starts, pauses, resumes and discards downloads, and lists them. It lives on the main thread.

    Downloads that run when the app ends, however it ends, are resumed at the next start. Paused and failed ones wait
    for the person.

    A model with a suggested drafter that is not here makes a pair of downloads: the drafter's begins when the model's
    has finished. For people a pair is one download, under the model's id: `all` and `find_download` return it so, and
    the commands for it act on that one of the two whose turn it is (`_current_id`).

    Args:
        tokens: The person's tokens.
        limits: Limits of number, time and disk space.
        parent: The Qt parent.

    Attributes:
        changed: Emitted with a download that is another one now, or was taken off the list.
        restored: Emitted when the downloads of earlier runs are listed.
        went_on: Emitted with the downloads that the app resumes at its start.
    """

    changed = Signal(Download)
    finished = Signal(Download)
    failed = Signal(Download)
    removed = Signal(str)
    restored = Signal()
    went_on = Signal(tuple)

    def __init__(self, tokens: Tokens, limits: DownloadLimits = LIMITS, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._process = DownloadProcess(tokens, limits, resumes=True)
        self._main = MainThread(self)
        self._on_change = self._main.bring(self._take)
        self._reserve_bytes = limits.reserve_bytes
        self._work = BackgroundWork("list of downloads", self)
        # All downloads by id, those of drafters once they have begun.
        self._listed: dict[str, Download] = {}
        self._running: dict[str, Job[Any]] = {}
        # The drafters of pairs, by the id of the model's download; each as it was before it began.
        self._drafters: dict[str, Download] = {}

    def start_download(self, download: Download) -> str:
        """Start or resume a download and return its id.

        Of one with a drafter to be made from its files (`Download.drafter`), `begin_drafter` has written the record.

        Raises:
            HubError: If that is no hub id, or no revision.
            InvalidSettingError: If `HF_ENDPOINT` is no address.
        """
        find_endpoint()
        check_names(download.repository, download.revision)
        listed = self._listed.get(download.id)
        # A drafter's record may be newer than the listed one.
        if listed is None or (download.drafter and listed.state.has_ended):
            self._show(download.at(DownloadState.PAUSED))
        self._resume(download.id)
        return download.id

    def resume(self, download: str) -> None:
        """Resume a paused, failed or unfinished download."""
        self._resume(self._current_id(download))

    def _resume(self, download: str) -> None:
        """Begin or resume the download with this id, of a pair just this one, unless it runs already."""
        before = self._listed[download]
        if before.state.has_ended:
            waiting = before.at(DownloadState.WAITING)
            self._running[download] = self._process.start_download(waiting, self._on_change)
            self._take(waiting)

    def pause(self, download: str) -> None:
        """Stop a download; its bytes stay."""
        download = self._current_id(download)
        if (job := self._running.get(download)) is not None:
            job.cancel()
            self._process.pause(self._listed[download])

    def discard(self, download: str) -> None:
        """Stop a download and remove its files; `removed` follows.

        Of a pair whose model is complete, only the drafter's files are removed.
        """
        self.pause(download)
        self._process.discard(self._listed[self._current_id(download)], self._on_change)

    def hide_download(self, download: str) -> None:
        """Show a finished download no longer, of a pair both; the model stays."""
        if self._joined(self._listed[download]).state is DownloadState.FINISHED:
            for each in {download, self._current_id(download)}:
                self._forget(each)

    def clear_finished(self) -> None:
        for download in self.all():
            self.hide_download(download.id)

    def retry_refused(self) -> None:
        """Resume the downloads that the hub refused for lack of a token; there is another one now."""
        for download in tuple(self._listed.values()):
            if download.state is DownloadState.FAILED and download.lack:
                self._resume(download.id)

    def set_at_once(self, number: int) -> None:
        """Set how many downloads run at once."""
        self._process.set_at_once(number)

    def all(self) -> tuple[Download, ...]:
        """Return the downloads, in the order in which they were begun."""
        drafters = {drafter.id for drafter in self._drafters.values()}
        return tuple(self._joined(download) for download in self._listed.values() if download.id not in drafters)

    def find_download(self, repository: str, revision: str = "main") -> Download | None:
        """Return the download of a repository and revision; None without one."""
        download = self._listed.get(Download(repository, revision).id)
        return None if download is None else self._joined(download)

    def _joined(self, download: Download) -> Download:
        """Return a model's download as one with that of its drafter, if it has one."""
        drafter = self._drafters.get(download.id)
        return download if drafter is None else with_drafter(download, self._listed.get(drafter.id, drafter))

    def _current_id(self, download: str) -> str:
        """Return the id of the download of a pair whose turn it is: the drafter's once the model's has finished.

        For a download that is no pair that is its own id.
        """
        drafter = self._drafters.get(download)
        if drafter is None or self._listed[download].state is not DownloadState.FINISHED:
            return download
        return drafter.id

    def models_of(self, drafter: str) -> tuple[str, ...]:
        """Return the ids of the models' downloads with which a drafter's makes a pair."""
        return tuple(model for model, own in self._drafters.items() if own.id == drafter)

    def forget_deleted(self, model: Path, repository: str = "") -> None:
        """Take a deleted model's downloads off the list.

        Args:
            model: The snapshot's folder.
            repository: The hub id whose unfinished downloads were deleted too; empty for none.
        """
        for download in tuple(self._listed.values()):
            is_model = model == Path(download.folder)
            is_stopped = download.state in {DownloadState.PAUSED, DownloadState.FAILED}
            is_finished = download.state is DownloadState.FINISHED
            if (is_finished and is_model) or (is_stopped and download.repository == repository):
                self._forget(download.id)

    def going(self) -> tuple[Download, ...]:
        """Return the downloads that run or wait for their turn."""
        return tuple(download for download in self.all() if not download.state.has_ended)

    def disk_room(self) -> tuple[int | None, int]:
        """Return the free bytes of the disk that takes models, None if unknown, and the bytes that downloads lack."""
        going = self.going()
        free = free_bytes()
        if free is None or not going:
            return free, 0
        to_come = sum(download.total_bytes - download.done_bytes for download in going)
        return free, max(0, to_come + self._reserve_bytes - free)

    def restore_downloads(self) -> None:
        """List the unfinished downloads of earlier runs, and resume those that were running."""
        problem = "What earlier runs left cannot be listed: %s"
        self._work.do(listed_downloads, self._take_left, lambda error: _LOG.warning(problem, error))

    def end_process(self) -> None:
        """Pause all and end the process; the next start resumes the running ones."""
        self._main.refuse_calls()
        self._process.close()
        self._work.finish_work()

    def _take(self, download: Download) -> None:
        """Take a record from the process; begin the drafter's download when its model's has finished.

        A download that was taken off the list meanwhile is ignored.
        """
        before = self._listed.get(download.id)
        if before is None:
            return
        if download.state.has_ended:
            self._running.pop(download.id, None)
        if download.state is DownloadState.REMOVED:
            self._forget(download.id)
            return
        self._listed[download.id] = download
        self.changed.emit(download)
        if download.state is not before.state:
            if download.state is DownloadState.FINISHED:
                self.finished.emit(download)
                if (drafter := self._drafters.get(download.id)) is not None:
                    self.start_download(drafter)
            elif download.state is DownloadState.FAILED:
                self.failed.emit(download)

    def _show(self, download: Download) -> None:
        """List a download, as a pair with a suggested drafter that is not here."""
        self._listed[download.id] = download
        drafter = None if download.drafter else downloaded_with(download.repository, download.revision)
        if drafter is not None and snapshot_of(drafter.repository) is None:
            files = (DownloadFile("its files", 0, drafter.weight_bytes),)  # until the hub has listed them
            self._drafters[download.id] = Download(drafter.repository, is_model=False, files=files)
        self.changed.emit(download)

    def _forget(self, download: str) -> None:
        """Take a download off the list."""
        removed = self._listed.pop(download)
        self._drafters.pop(download, None)
        # A removed drafter ends its pair if the model is here, or the drafter is. Otherwise the pair stays: the drafter
        # is downloaded after the model.
        for model in self.models_of(download):
            if DownloadState.FINISHED in {removed.state, self._listed[model].state}:
                del self._drafters[model]
        self.changed.emit(removed)
        self.removed.emit(download)

    def _take_left(self, left: tuple[Download, ...]) -> None:
        """List the downloads of earlier runs, except those that were started meanwhile."""
        new = [download for download in left if download.id not in self._listed]
        for download in new:
            self._show(download.at(DownloadState.PAUSED))
        went_on = tuple(download for download in new if not download.state.has_ended)
        for download in went_on:
            self.resume(download.id)
        if went_on:
            self.went_on.emit(went_on)
        self.restored.emit()


class HubAccount(ModelService):
    """Stores and checks the person's token for the hub.

    It asks the keychain, and the hub only when the person gives a token or asks whose it is. Its attributes are facts
    about the token in use, never the token itself.

    Attributes:
        busy: The running work, for people; empty for none.
        name: The account that the hub names for the token; empty until the hub was asked.
        problem: The last error.
        source: Where the token was found; None without one.
        accepted: Emitted when the hub knows the token that was just given.
    """

    accepted = Signal()
    busy = ""
    name = ""
    problem = ""
    source: TokenSource | None = None

    def look_up_token(self) -> None:
        """Find out which token is in use; the keychain may ask the person."""
        self._do("Reading the token…", self._find)

    def ask_account(self) -> None:
        """Ask the hub whose token is in use."""
        self._do(f"Asking {self.host}…", self._find_name)

    def give(self, text: str) -> None:
        """Have the hub check a token, and keep it; emits `accepted` if the hub knows the token."""
        self._do(f"Asking {self.host}…", lambda endpoint: self._check_and_keep(endpoint, text), self.accepted.emit)

    def forget_token(self) -> None:
        """Forget the token that was given for this hub."""
        self._do("Forgetting the token…", self._forget)

    def _do(
        self, busy: str, work: Callable[[Endpoint], _TokenFacts], then: Callable[[], object] = lambda: None
    ) -> None:
        """Run work on the thread, unless other work runs."""

        def end(result: _TokenFacts) -> None:
            token, name = result
            source = token.source if token else None
            # `name` is None where the hub was not asked. A known name stays then, as long as the token comes from the
            # same place.
            if name is not None or source is not self.source:
                self.name = name or ""
            self.source = source
            self._set()
            then()

        if not self.busy:
            self._set(busy)
            self._work.do(lambda: work(find_endpoint()), end, lambda error: self._set(problem=str(error)))

    def _set(self, busy: str = "", problem: str = "") -> None:
        self.busy = busy
        self.problem = problem
        self.changed.emit()

    # These run on the thread. Each returns what is known of the token in use when it has ended.

    def _find(self, endpoint: Endpoint) -> _TokenFacts:
        return self._tokens.find_token(endpoint, again=True), None

    def _find_name(self, endpoint: Endpoint) -> _TokenFacts:
        token, _ = self._find(endpoint)
        return token, _account_of(endpoint, token) if token else None

    def _check_and_keep(self, endpoint: Endpoint, text: str) -> _TokenFacts:
        token = Token(text.strip())
        name = _account_of(endpoint, token)
        self._tokens.remember(token, endpoint)
        return self._tokens.find_token(endpoint), name

    def _forget(self, endpoint: Endpoint) -> _TokenFacts:
        self._tokens.forget_token(endpoint)
        return self._find(endpoint)


def _account_of(endpoint: Endpoint, token: Token) -> str:
    """Ask the hub whose token this is."""
    from rdchat.hub.hub_api import HubApi  # noqa: PLC0415  slow to import

    try:
        return HubApi(replace(endpoint, token=token)).account()
    except AccessRefusedError as error:
        hint = "Copy it again, or create a new one."
        raise RdchatError(f"{endpoint.host} does not know this token.", hint) from error
    except RdchatError as error:
        raise RdchatError(f"The token could not be checked. {error}") from error
