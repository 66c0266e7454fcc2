"""What the hub has to draft for a model, asked when a person wants to know."""

import logging
import threading
from contextlib import suppress

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.hub.downloads.download_progress import DownloadProgress, DownloadState
from rdchat.hub.drafters.published_drafters import FoundDrafter, PublishedKind, WantedModel, find_published
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.hub_api import HubApi
from rdchat.hub.tokens import Tokens
from rdchat.services.models.downloading.downloads import Downloads

_LOG = logging.getLogger(__name__)


class HubDrafters(QObject):
    """Searches for one model at a time. Lives on the main thread; nothing is asked before `search`.

    Args:
        tokens: Where the person's tokens are found.
        downloads: Fetch what is wanted.
        parent: The Qt parent.

    Attributes:
        model: What was searched for last; empty before that.
        searching: Whether the hub is being asked.
        found: What was found so far.
        finished: What was downloaded since the window was first opened.
        problem, hint: Why the hub could not be asked, or nothing be downloaded.
    """

    changed = Signal()
    downloaded = Signal(str)  # the hub id
    _told = Signal(int, object)

    def __init__(self, tokens: Tokens, downloads: Downloads, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._tokens, self._downloads = tokens, downloads
        self._search = 0
        self.model = ""
        self.searching = False
        self.found: tuple[FoundDrafter, ...] = ()
        self.problem = self.hint = ""
        self.finished: set[str] = set()
        self._told.connect(self._take, Qt.ConnectionType.QueuedConnection)
        downloads.progressed.connect(self._on_download)

    @property
    def host(self) -> str:
        """Who is asked."""
        try:
            return find_endpoint().host
        except InvalidSettingError:
            return "the hub"

    def page(self, repository: str) -> str:
        """Return the address of a repository's page; empty where `HF_ENDPOINT` is no address."""
        try:
            return find_endpoint().page(repository)
        except InvalidSettingError:
            return ""

    def download(self, repository: str) -> None:
        """Fetch what was found, or go on with it; `changed` follows."""
        models = {found.repository for found in self.found if found.kind is PublishedKind.MODEL}
        try:
            self._downloads.start(repository, is_model=repository in models)
        except RdchatError as error:
            self.problem, self.hint = error.message, error.hint
            self.changed.emit()

    def download_of(self, repository: str) -> DownloadProgress | None:
        """Return where the last download of a repository stands; None where there was none."""
        mine = [each for each in self._downloads.progress() if each.repository == repository]
        return mine[-1] if mine else None

    def search(self, model: WantedModel) -> None:
        """Ask the hub; `changed` follows as things are found."""
        self._search += 1
        number = self._search
        self.model, self.searching, self.found, self.problem, self.hint = model.name, True, (), "", ""
        threading.Thread(target=self._ask, args=(number, model), name="hub drafters", daemon=True).start()
        self.changed.emit()

    def forget(self) -> None:
        """Stop, and forget what was found: it was for another model."""
        self._search += 1
        self.model, self.searching, self.found, self.problem, self.hint = "", False, (), "", ""
        self.changed.emit()

    def close(self) -> None:
        """Stop; a request that is under way is let go."""
        self._search += 1

    def _ask(self, number: int, model: WantedModel) -> None:
        try:
            api = HubApi(self._tokens.access(find_endpoint()))
            for found in find_published(api, model, lambda: self._search == number):
                self._tell(number, found)
        except RdchatError as error:
            self._tell(number, error)
        except Exception as error:
            _LOG.exception("Looking for drafters on the hub failed")
            self._tell(number, RdchatError(f"The search failed: {type(error).__name__}.", "The log says more."))
        else:
            self._tell(number, None)

    def _tell(self, number: int, what: object) -> None:
        with suppress(RuntimeError):  # the app has ended meanwhile
            self._told.emit(number, what)

    @Slot(DownloadProgress)
    def _on_download(self, progress: DownloadProgress) -> None:
        if any(each.repository == progress.repository for each in self.found):
            if progress.state is DownloadState.FINISHED and progress.repository not in self.finished:
                self.finished.add(progress.repository)
                self.downloaded.emit(progress.repository)
            self.changed.emit()

    @Slot(int, object)
    def _take(self, number: int, what: tuple[FoundDrafter, ...] | RdchatError | None) -> None:
        if number != self._search:
            return
        if isinstance(what, RdchatError):
            self.searching, self.problem, self.hint = False, what.message, what.hint
        elif what is None:
            self.searching = False
        else:
            self.found = what
        self.changed.emit()
