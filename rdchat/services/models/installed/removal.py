"""Deletes models and drafters into the Trash, puts them back, and empties rdchat's own: beside the window's own work.

Only what the hub's cache or rdchat's own folder holds is deleted here; other programs' folders are left to them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from rdchat import paths
from rdchat.errors import ModelError, RdchatError
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.trash import TrashedModel, delete_for_good, move_to_trash, restore
from rdchat.inference.api.model_card import ModelCard
from rdchat.inference.models.model_places import CHOSEN, NOT_DELETED
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.models.system_trash import move_to_system_trash

if TYPE_CHECKING:
    from rdchat.hub.deleting import DeletionPlan


@dataclass(frozen=True, slots=True)
class RemovalQuestion:
    """What deleting a model would do, to be asked before it is done.

    Attributes:
        model: Which.
        freed_bytes: Of the disk, once the Trash is emptied.
        sharing: Names of other revisions that share files with it; those stay.
        shared_cache: Whether other programs use the place as well.
        can_be_undone: Whether it goes to the trash; what is unfinished is deleted for good.
        with_unfinished: Whether an unfinished download of another version goes with it, for good.
    """

    model: ModelCard
    freed_bytes: int
    sharing: tuple[str, ...]
    shared_cache: bool
    can_be_undone: bool
    with_unfinished: bool = False
    plan: "DeletionPlan | None" = None


@dataclass(frozen=True, slots=True)
class Removed:
    """A model that was deleted.

    Attributes:
        model: Which.
        trashed: What can be put back; None where it went for good.
        with_unfinished: Whether unfinished downloads of its repository went for good.
    """

    model: ModelCard
    trashed: TrashedModel | None
    with_unfinished: bool


def reason_not_to_delete(model: ModelCard) -> str:
    """Say why rdchat does not delete a model, a sentence; empty where it does."""
    if model.repository or model.path.parent in (paths.models_dir(), paths.drafters_dir()):
        return ""
    return NOT_DELETED.get(model.place, NOT_DELETED[CHOSEN])


class Removal(QObject):
    """One step at a time, in order. Lives on the main thread.

    Attributes:
        trash: What can be put back, the last one first.
    """

    asked = Signal(RemovalQuestion)
    removed = Signal(Removed)
    restored = Signal(TrashedModel)
    trash_changed = Signal()
    failed = Signal(RdchatError)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.trash: tuple[TrashedModel, ...] = ()
        self._work = BackgroundWork("removal", self)

    def ask(self, model: ModelCard) -> None:
        """Look what deleting a model would do; `asked` or `failed` follows."""
        self._do(lambda: _question(model), self.asked.emit)

    def remove(self, question: RemovalQuestion) -> None:
        """Delete a model; `removed` or `failed` follows."""
        self._do(lambda: _remove(question), lambda trashed: self._on_removed(question, trashed))

    def look(self) -> None:
        """Look what the trash holds; `trash_changed` follows where that is something else."""
        self._do(_trashed, self._show)

    def restore(self, trashed: TrashedModel) -> None:
        """Put a model back; `restored` or `failed` follows."""
        self._do(lambda: restore(trashed), lambda _none: self.restored.emit(trashed))
        self.look()

    def delete_for_good(self, trashed: TrashedModel) -> None:
        """Delete what is in rdchat's own trash for good; `trash_changed` or `failed` follows."""
        self._do(lambda: delete_for_good(trashed), lambda _none: self.look())

    def close(self) -> None:
        """Wait for what goes on: a deletion that is cut short can be put back."""
        self._work.close()

    def _do[T](self, work: Callable[[], T], then: Callable[[T], object]) -> None:
        self._work.do(work, lambda told: self.failed.emit(told) if isinstance(told, RdchatError) else then(told))

    def _on_removed(self, question: RemovalQuestion, trashed: TrashedModel | None) -> None:
        model = question.model
        self.removed.emit(Removed(model, trashed, question.with_unfinished or model.is_unfinished))
        self.look()

    def _show(self, trash: tuple[TrashedModel, ...]) -> None:
        if trash != self.trash:
            self.trash = trash
            self.trash_changed.emit()


def _question(model: ModelCard) -> RemovalQuestion:
    if reason := reason_not_to_delete(model):
        raise ModelError(reason)
    if not model.repository:
        return RemovalQuestion(model, model.disk_bytes, (), shared_cache=False, can_be_undone=True)
    if model.is_unfinished:
        return RemovalQuestion(model, model.disk_bytes, (), shared_cache=True, can_be_undone=False)
    from rdchat.hub.deleting import plan_deletion  # noqa: PLC0415  slow to import

    plan = plan_deletion(repository_of(model.repository), model.revision, model.gguf)
    return RemovalQuestion(model, plan.freed_bytes, plan.sharing, True, True, plan.unfinished, plan)


def _remove(question: RemovalQuestion) -> TrashedModel | None:
    from rdchat.hub.deleting import delete  # noqa: PLC0415  slow to import
    from rdchat.hub.downloads.download_record import discard  # noqa: PLC0415
    from rdchat.hub.downloads.repository_lock import RepositoryLock  # noqa: PLC0415

    model = question.model
    if question.plan is not None:
        return delete(question.plan, move_to_system_trash)
    if model.is_unfinished:
        repository = repository_of(model.repository)
        with RepositoryLock(repository):
            discard(repository)
        return None
    return move_to_trash(model.name, model.path.parent, [model.path], move_to_system_trash)


def _trashed() -> tuple[TrashedModel, ...]:
    from rdchat.hub.deleting import all_trashed  # noqa: PLC0415  slow to import

    return all_trashed()
