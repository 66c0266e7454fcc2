"""Looks at the hub for drafters of a model, and for what it lacks of its original."""

from pathlib import Path

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError
from rdchat.hub.downloads.download import Download
from rdchat.hub.downloads.download_record import begin_drafter
from rdchat.hub.endpoint import Tokens
from rdchat.hub.hub_model import HubModel
from rdchat.hub.known_files import RepositoryFiles
from rdchat.hub.published_drafters import find_published
from rdchat.inference.api.model_facts import ModelCard, Part
from rdchat.services.models.downloads import Downloads
from rdchat.services.models.service_base import Find, ModelService
from rdchat.work.job import Job


class HubDrafters(ModelService):
    """Searches for one model at a time; asks nothing before `search_hub`.

    Attributes:
        model: The model that was searched for last; empty before that.
        searching: Whether the hub is being asked.
        results: The drafters found so far.
        problem: Why the hub could not be asked, and what to do about it.
    """

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(tokens, parent)
        self._set()

    def search_hub(self, model: str, folder: Path) -> None:
        """Ask the hub; `changed` follows as things are found."""
        self._work.replace(
            lambda job: self._ask(job, model, folder),
            lambda _: self._set(self.model, self.results),
            failed=lambda error: self._set(self.model, self.results, problem=str(error)),
            on_progress=lambda results: self._set(model, results, searching=True),
        )
        self._set(model, searching=True)

    def forget_results(self) -> None:
        """Stop, and forget the results: they were for another model."""
        self._work.drop_jobs()
        self._set()

    def _ask(self, job: Job[None], model: str, folder: Path) -> None:
        """Ask the hub; not on the main thread."""
        for results in find_published(self._hub(), model, folder):
            job.report_progress(results)

    def _set(
        self, model: str = "", results: tuple[HubModel, ...] = (), *, searching: bool = False, problem: str = ""
    ) -> None:
        self.model = model
        self.results = results
        self.searching = searching
        self.problem = problem
        self.changed.emit()


class PartSearch(ModelService):
    """Looks for one model at a time; asks nothing before `ask_hub`.

    Args:
        tokens: The person's tokens.
        find: Finds what a model lacks; called on a thread.
        downloads: Starts the download.
        parent: The Qt parent.

    Attributes:
        searching: Whether the hub is being asked.
        plan: What was found; None until then.
        problem: Why nothing was found, or the download of the plan cannot begin; None where the original is unknown,
            and the person must name it.
        started: Emitted when the plan's download was started.
    """

    started = Signal()

    def __init__(self, tokens: Tokens, find: Find, downloads: Downloads, parent: QObject | None = None) -> None:
        super().__init__(tokens, parent)
        self._find = find
        self._downloads = downloads
        self._set()

    def ask_hub(self, model: ModelCard, original: str = "", part: Part = Part.MTP) -> None:
        """Ask the hub; `changed` follows.

        Args:
            model: The model that lacks the part.
            original: The hub id of its original; empty to find it.
            part: The part.
        """
        self._set(searching=True)
        find = self._find
        self._work.replace(
            lambda _job: find(self._hub(), model, original, part), self._set, lambda error: self._set(None, error)
        )

    def forget_results(self) -> None:
        """Stop, and forget what was found."""
        self._work.drop_jobs()
        self._set()

    def start_download(self) -> None:
        """Start the download of what was found; `started` or `changed` follows."""
        if (plan := self.plan) is not None:
            self._work.replace(lambda _job: begin_drafter(plan), self._start, lambda error: self._set(plan, error))

    def _start(self, download: Download) -> None:
        self._downloads.start_download(download)
        self.started.emit()

    def _set(
        self, plan: RepositoryFiles | None = None, problem: RdchatError | None = None, *, searching: bool = False
    ) -> None:
        self.plan = plan
        self.problem = problem
        self.searching = searching
        self.changed.emit()
