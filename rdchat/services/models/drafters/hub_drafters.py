"""Searches the hub for drafters of a model."""

from PySide6.QtCore import QObject

from rdchat.hub.endpoint import Tokens
from rdchat.hub.hub_model import HubModel
from rdchat.hub.published_drafters import LinkedModel, find_published
from rdchat.services.models.model_service import ModelService
from rdchat.work.job import Job


class HubDrafters(ModelService):
    """Searches for one model at a time; asks nothing before `search`.

    Attributes:
        model: The model that was searched for last; empty before that.
        searching: Whether the hub is being asked.
        found: The drafters found so far.
        problem: Why the hub could not be asked, and what to do about it.
    """

    close_s = 0.5

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(tokens, parent)
        self._set()

    def search(self, model: LinkedModel) -> None:
        """Ask the hub; `changed` follows as things are found."""
        self._work.replace(
            lambda job: self._ask(model, job),
            lambda _: self._set(self.model, self.results),
            failed=lambda error: self._set(self.model, self.results, problem=str(error)),
            on_progress=lambda results: self._set(model.name, results, searching=True),
        )
        self._set(model.name, searching=True)

    def forget(self) -> None:
        """Stop, and forget the results: they were for another model."""
        self._work.forget()
        self._set()

    def _ask(self, model: LinkedModel, job: Job[None]) -> None:
        """Ask the hub; not on the main thread."""
        for results in find_published(self._hub(), model):
            job.report_progress(results)

    def _set(
        self, model: str = "", results: tuple[HubModel, ...] = (), *, searching: bool = False, problem: str = ""
    ) -> None:
        self.model, self.results, self.searching, self.problem = model, results, searching, problem
        self.changed.emit()
