"""Looks at the hub for the MTP layers of a model, and begins their download."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QObject

from rdchat.errors import RdchatError
from rdchat.hub.downloads.download import Download
from rdchat.hub.endpoint import Tokens
from rdchat.hub.known_files import RepositoryFiles
from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.models.downloads.downloads import Downloads
from rdchat.services.models.model_service import ModelService

if TYPE_CHECKING:  # its client is slow to import
    from rdchat.hub.hub_api import HubApi


class MtpPlan(Protocol):
    """Layers to be fetched. `inference.models.mtp_source` makes plans; it reads model files, which services do not."""

    @property
    def files(self) -> RepositoryFiles:
        """The drafter's files."""

    @property
    def is_saved(self) -> bool:
        """Whether its record is on disk, from a download that was not finished."""

    @property
    def size(self) -> int:
        """Bytes to store."""

    def begin(self) -> Download:
        """Write the record, and return the download to start. Raises StorageError."""


type Find = Callable[[HubApi, ModelCard, str], MtpPlan | None]
"""Takes the hub, the model and its original's hub id, empty to find it; None if the original is unknown."""


class MtpSearch(ModelService):
    """Looks for one model at a time; asks nothing before `look`.

    Args:
        tokens: The person's tokens.
        find: Finds the layers of a model; called on a thread.
        downloads: Starts the download.
        parent: The Qt parent.

    Attributes:
        model: The model; None before the first search.
        searching: Whether the hub is being asked.
        plan: What was found; None until then.
        problem: Why nothing was found, or the download of the plan cannot begin; None where the original is unknown,
            and the person must name it.
        started: Whether the plan's download was started.
    """

    close_s = 0.5

    def __init__(self, tokens: Tokens, find: Find, downloads: Downloads, parent: QObject | None = None) -> None:
        super().__init__(tokens, parent)
        self._find, self._downloads = find, downloads
        self._set(None)

    def look(self, model: ModelCard, original: str = "") -> None:
        """Ask the hub; `changed` follows.

        Args:
            model: The model that lacks the layers.
            original: The hub id of its original; empty to find it.
        """
        self._set(model, searching=True)
        self._work.replace(
            lambda _job: self._find(self._hub(), model, original),
            lambda plan: self._set(model, plan),
            failed=lambda error: self._set(model, problem=error),
        )

    def forget(self) -> None:
        """Stop, and forget what was found."""
        self._work.forget()
        self._set(None)

    def begin(self) -> None:
        """Start the download of what was found; `changed` follows."""
        model, plan = self.model, self.plan
        if plan is not None:
            failed = lambda error: self._set(model, plan, problem=error)  # noqa: E731
            self._work.replace(lambda _job: plan.begin(), self._start, failed=failed)

    def _start(self, download: Download) -> None:
        self._downloads.start(download.repository, download.revision, is_model=False, drafter=download.drafter)
        self._set(self.model, self.plan, started=True)

    def _set(
        self,
        model: ModelCard | None,
        plan: MtpPlan | None = None,
        *,
        problem: RdchatError | None = None,
        searching: bool = False,
        started: bool = False,
    ) -> None:
        self.model, self.plan, self.problem, self.searching, self.started = model, plan, problem, searching, started
        self.changed.emit()
