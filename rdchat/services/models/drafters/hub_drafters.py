"""Searches the hub for drafters of a model."""

from PySide6.QtCore import QObject, Signal

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.hub.drafters.published_drafters import FoundDrafter, WantedModel, find_published
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.hub_api import HubApi
from rdchat.hub.tokens import Tokens
from rdchat.services.background.background_work import BackgroundWork
from rdchat.work.job import Job

_END_S = 0.5  # wait for a running request when the window closes


class HubDrafters(QObject):
    """Searches for one model at a time. Lives on the main thread; nothing is asked before `search`.

    Args:
        tokens: The person's tokens.
        parent: The Qt parent.

    Attributes:
        model: The model that was searched for last; empty before that.
        searching: Whether the hub is being asked.
        found: The drafters found so far.
        problem: Why the hub could not be asked, and what to do about it.
    """

    changed = Signal()

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._tokens = tokens
        self._task = BackgroundWork("hub drafters", self)
        self.model = ""
        self.searching = False
        self.found: tuple[FoundDrafter, ...] = ()
        self.problem = ""

    @property
    def host(self) -> str:
        """The name of the hub."""
        try:
            return find_endpoint().host
        except InvalidSettingError:
            return "the hub"

    def search(self, model: WantedModel) -> None:
        """Ask the hub; `changed` follows as things are found."""
        self.model, self.searching, self.found, self.problem = model.name, True, (), ""
        self._task.replace(
            lambda job: self._ask(model, job), lambda _: self._on_done(), failed=self._on_failed, told=self._take
        )
        self.changed.emit()

    def forget(self) -> None:
        """Stop, and forget the results: they were for another model."""
        self._task.forget()
        self.model, self.searching, self.found, self.problem = "", False, (), ""
        self.changed.emit()

    def close(self) -> None:
        """Stop; a request that is under way is let go."""
        self._task.close(_END_S)

    def _ask(self, model: WantedModel, job: Job[None]) -> None:
        """Ask the hub; not on the main thread."""
        api = HubApi(self._tokens.access(find_endpoint()))
        for found in find_published(api, model):
            job.tell(found)

    def _take(self, found: tuple[FoundDrafter, ...]) -> None:
        self.found = found
        self.changed.emit()

    def _on_done(self) -> None:
        self.searching = False
        self.changed.emit()

    def _on_failed(self, error: RdchatError) -> None:
        self.searching, self.problem = False, str(error)
        self.changed.emit()
