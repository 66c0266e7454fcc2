"""Deletes models and drafters into the Trash, restores them, and empties rdchat's own trash.

Only models in the hub's cache and in rdchat's own folders are deleted; other programs' folders are left alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QFile, QObject, Signal

from rdchat import paths
from rdchat.errors import ModelError, RdchatError
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.deleting import DeletionPlan, all_trashed, delete, plan_deletion
from rdchat.hub.downloads.download_record import discard
from rdchat.hub.trash import TrashedModel, delete_for_good, move_to_trash, restore
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.models.model_places import CHOSEN, NOT_DELETED
from rdchat.services.models.model_service import ModelService


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
