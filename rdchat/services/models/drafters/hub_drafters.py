"""What the hub has to draft for a model, asked when a person wants to know."""

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.hub.downloads.download_progress import DownloadProgress, DownloadState
from rdchat.hub.drafters.published_drafters import FoundDrafter, PublishedKind, WantedModel, find_published
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.hub_api import HubApi
from rdchat.hub.tokens import Tokens
from rdchat.services.background.latest_task import LatestTask, Tell
from rdchat.services.models.downloading.downloads import Downloads

_END_S = 0.5  # in which a question under way may end: a hub may take its time


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
        downloads: Fetch what is wanted.
        problem, hint: Why the hub could not be asked, or nothing be downloaded.
    """

    changed = Signal()
    downloaded = Signal(str)  # the hub id

    def __init__(self, tokens: Tokens, downloads: Downloads, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._tokens, self.downloads = tokens, downloads
        self._task = LatestTask("hub drafters", self)
        self.model = ""
        self.searching = False
        self.found: tuple[FoundDrafter, ...] = ()
        self.problem = self.hint = ""
        self.finished: set[str] = set()
        self._task.told.connect(self._take)
        self._task.done.connect(self._on_done)
        self._task.failed.connect(self._on_failed)
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
            self.downloads.start(repository, is_model=repository in models)
        except RdchatError as error:
            self.problem, self.hint = error.message, error.hint
            self.changed.emit()

    def search(self, model: WantedModel) -> None:
        """Ask the hub; `changed` follows as things are found."""
        self.model, self.searching, self.found, self.problem, self.hint = model.name, True, (), "", ""
        self._task.start(lambda tell: self._ask(model, tell))
        self.changed.emit()

    def forget(self) -> None:
        """Stop, and forget what was found: it was for another model."""
        self._task.stop()
        self.model, self.searching, self.found, self.problem, self.hint = "", False, (), "", ""
        self.changed.emit()

    def forget_download(self, repository: str) -> None:
        """Forget that something was downloaded: it is deleted."""
        self.finished.discard(repository)
        self.changed.emit()

    def close(self) -> None:
        """Stop; a request that is under way is let go."""
        self._task.close(_END_S)

    def _ask(self, model: WantedModel, tell: Tell) -> None:
        """Ask the hub; not on the main thread."""
        api = HubApi(self._tokens.access(find_endpoint()))
        for found in find_published(api, model):
            tell(found)

    @Slot(DownloadProgress)
    def _on_download(self, progress: DownloadProgress) -> None:
        if any(each.repository == progress.repository for each in self.found):
            if progress.state is DownloadState.FINISHED and progress.repository not in self.finished:
                self.finished.add(progress.repository)
                self.downloaded.emit(progress.repository)
            self.changed.emit()

    @Slot(object)
    def _take(self, found: tuple[FoundDrafter, ...]) -> None:
        self.found = found
        self.changed.emit()

    @Slot()
    def _on_done(self) -> None:
        self.searching = False
        self.changed.emit()

    @Slot(RdchatError)
    def _on_failed(self, error: RdchatError) -> None:
        self.searching, self.problem, self.hint = False, error.message, error.hint
        self.changed.emit()
