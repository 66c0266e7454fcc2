"""Deletes models and drafters into the Trash, restores them, empties rdchat's own trash, and verifies models.

Only models in the hub's cache and in rdchat's own folders are deleted; other programs' folders are left alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QFile, QObject, Signal, SignalInstance

from rdchat import paths
from rdchat.errors import ModelError, RdchatError
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.deleting import DeletionPlan, all_trashed, delete, plan_deletion
from rdchat.hub.downloads.download_record import discard
from rdchat.hub.endpoint import Tokens, find_endpoint
from rdchat.hub.known_files import is_repository
from rdchat.hub.trash import TrashedModel, delete_for_good, move_to_trash, restore
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.models.model_places import CHOSEN, NOT_DELETED, NOT_VERIFIED, hub_name
from rdchat.services.models.model_service import ModelService

if TYPE_CHECKING:
    from rdchat.hub.verifying import Verdict


@dataclass(frozen=True, slots=True)
class RemovalQuestion:
    """The effects of deleting a model, for the question before it."""

    model: ModelCard  # an unfinished download is deleted for good, anything else goes to the Trash
    freed_bytes: int
    plan: DeletionPlan | None = None  # of a whole model in the hub's cache; None for anything else
    sharing: tuple[str, ...] = ()  # other revisions that share files with it; those files stay
    with_unfinished: bool = False  # whether an unfinished download of another version is deleted with it, for good


@dataclass(frozen=True, slots=True)
class Removed:
    """A model that was deleted."""

    model: ModelCard
    trashed: TrashedModel | None  # restores it; None if it was deleted for good
    with_unfinished: bool  # whether unfinished downloads of its repository were deleted for good


def reason_not_to_delete(model: ModelCard) -> str:
    """Say why rdchat does not delete a model, a sentence; empty where it does."""
    if model.repository or model.path.parent in (paths.models_dir(), paths.drafters_dir()):
        return ""
    return NOT_DELETED.get(model.place, NOT_DELETED[CHOSEN])


class Removal(ModelService):
    """Deletes and restores, one step at a time. Closing waits: a deletion that is cut short can be undone.

    Attributes:
        trash: The deleted models that can be restored, the latest first.
    """

    removed = Signal(Removed)
    restored = Signal(TrashedModel)
    trash_changed = Signal()
    failed = Signal(RdchatError)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent=parent)
        self.trash: tuple[TrashedModel, ...] = ()

    def ask(self, model: ModelCard, then: Callable[[RemovalQuestion], object]) -> None:
        """Find out what deleting a model would do, and call `then` with it; or `failed` follows."""
        self._do(lambda: removal_question(model), then)

    def remove(self, question: RemovalQuestion) -> None:
        """Delete a model; `removed` or `failed` follows."""
        self._do(lambda: remove_model(question), lambda trashed: self._on_removed(question, trashed))

    def look(self) -> None:
        """Read the trash; emits `trash_changed` if it differs."""
        self._do(all_trashed, self._show)

    def restore(self, trashed: TrashedModel) -> None:
        """Put a model back; `restored` or `failed` follows."""
        self._do(lambda: restore(trashed), lambda _none: self.restored.emit(trashed))
        self.look()

    def delete_for_good(self, trashed: TrashedModel) -> None:
        """Delete a model of rdchat's own trash for good; emits `trash_changed` or `failed`."""
        self._do(lambda: delete_for_good(trashed), lambda _none: self.look())

    def _do[T](self, work: Callable[[], T], then: Callable[[T], object]) -> None:
        self._work.do(work, lambda done: self.failed.emit(done) if isinstance(done, RdchatError) else then(done))

    def _on_removed(self, question: RemovalQuestion, trashed: TrashedModel | None) -> None:
        model = question.model
        self.removed.emit(Removed(model, trashed, question.with_unfinished or model.is_unfinished))
        self.look()

    def _show(self, trash: tuple[TrashedModel, ...]) -> None:
        if trash != self.trash:
            self.trash = trash
            self.trash_changed.emit()


def removal_question(model: ModelCard) -> RemovalQuestion:
    """Return what deleting a model would do; reads the disk.

    Raises:
        ModelError: If rdchat does not delete it.
    """
    if reason := reason_not_to_delete(model):
        raise ModelError(reason)
    if not model.repository or model.is_unfinished:
        return RemovalQuestion(model, model.disk_bytes)
    plan = plan_deletion(repository_of(model.repository), model.revision, model.gguf)
    return RemovalQuestion(model, plan.freed_bytes, plan, plan.sharing, plan.unfinished)


def remove_model(question: RemovalQuestion) -> TrashedModel | None:
    """Delete a model; return its entry in the trash, None if it was deleted for good."""
    model = question.model
    if question.plan is not None:
        return delete(question.plan, _move_to_system_trash)
    if model.is_unfinished:
        repository = repository_of(model.repository)
        with repository.locked():
            discard(repository)
        return None
    return move_to_trash(model.name, model.path.parent, [model.path], _move_to_system_trash)


def _move_to_system_trash(folder: Path) -> Path | None:
    """Move a folder to the Trash of its disk; return its place there, None where that is not possible."""
    file = QFile(str(folder))
    moved = file.moveToTrash()
    place = Path(file.fileName())
    return place if moved and place != folder and file.fileName() else None


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
