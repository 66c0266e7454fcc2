"""Compares a model's files with the hub's checksums, on a thread."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, SignalInstance

from rdchat.errors import ModelError, RdchatError
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.endpoint import Tokens, find_endpoint
from rdchat.hub.known_files import is_repository
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.models.model_places import CHOSEN, NOT_VERIFIED, hub_name
from rdchat.services.models.model_service import ModelService

if TYPE_CHECKING:
    from rdchat.hub.verifying import Verdict


class Verification(ModelService):
    """Verifies one model at a time; starting another stops it.

    Attributes:
        model: The model whose files are being read; None for none.
        done_bytes: Bytes of it that were read.
    """

    finished = Signal(ModelCard, object)  # with its `Verdict`
    failed = Signal(ModelCard, RdchatError)

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(tokens, parent)
        self.model: ModelCard | None = None
        self.done_bytes = 0

    def start(self, model: ModelCard) -> None:
        """Start to read a model's files."""
        self.model, self.done_bytes = model, 0
        self._work.replace(
            lambda job: verify_model(model, self._tokens, job.report_progress),
            lambda verdict: self._end(self.finished, model, verdict),
            failed=lambda error: self._end(self.failed, model, error),
            told=self._on_bytes,
        )
        self.changed.emit()

    def stop(self) -> None:
        """Stop the verification."""
        self._work.forget()
        self.model = None
        self.changed.emit()

    def _on_bytes(self, count: int) -> None:
        self.done_bytes += count
        self.changed.emit()

    def _end(self, signal: SignalInstance, model: ModelCard, outcome: object) -> None:
        self.model = None
        signal.emit(model, outcome)


def reason_not_to_verify(model: ModelCard) -> str:
    """Say why the hub has no checksums of a model, a sentence; empty where it may have."""
    if model.is_unfinished:
        return "Finish the download first. rdchat then checks the files."
    if model.repository or is_repository(hub_name(model)):
        return ""
    return NOT_VERIFIED.get(model.place, NOT_VERIFIED[CHOSEN])


def verify_model(model: ModelCard, tokens: Tokens, on_bytes: Callable[[int], None]) -> "Verdict":
    """Compare a model's files with the hub's checksums.

    Args:
        model: The model.
        tokens: Where the person's tokens are found.
        on_bytes: Called with the number of bytes read since the last call; may raise to stop.

    Raises:
        ModelError: If the hub has no checksums of it.
        NetworkError: If the hub cannot be asked, and the files cannot be checked without it.
    """
    from rdchat.hub.hub_api import HubApi  # noqa: PLC0415  slow to import
    from rdchat.hub.verifying import verify_cached, verify_folder  # noqa: PLC0415

    if reason := reason_not_to_verify(model):
        raise ModelError(reason)
    api = HubApi(tokens.access(find_endpoint()))
    if model.repository:
        repository = repository_of(model.repository)
        return verify_cached(repository, repository.commit_of(model.revision), api, on_bytes)
    return verify_folder(hub_name(model), model.folder, api, on_bytes)
