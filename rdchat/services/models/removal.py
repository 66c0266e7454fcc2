"""Deletes models and drafters, restores them from the Trash, and verifies models, on threads.

The rules are in `deletion_and_verification`; here they run beside the window, and the outcome is a signal.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import QFile, Signal, SignalInstance

from rdchat.errors import RdchatError
from rdchat.hub.verifying_and_deleting import NoTrashError, TrashedFolder, put_back
from rdchat.inference.api import ModelCard
from rdchat.services.models.deletion_and_verification import RemovalQuestion, verdict_of
from rdchat.services.models.threaded_service import ModelService


class Removal(ModelService):
    """Deletes and restores, one step at a time. Closing waits for a deletion.

    Attributes:
        removed: Emitted with a question that was carried out, and the `TrashedFolder` that undoes it; None for none.
    """

    removed = Signal(RemovalQuestion, object)
    restored = Signal(TrashedFolder)
    failed = Signal(RdchatError)

    def ask_about(self, model: ModelCard, then: Callable[[RemovalQuestion], object]) -> None:
        """Find out what deleting a model would do, and call `then` with it; or `failed` follows."""
        self._work.do(lambda: RemovalQuestion.for_model(model), then, self.failed.emit)

    def delete_model(self, question: RemovalQuestion, ask_again: Callable[[RemovalQuestion], object]) -> None:
        """Delete a model; `removed` or `failed` follows.

        Args:
            question: Its answer was yes.
            ask_again: Called with another question if there is no Trash for the model.
        """

        def failed(error: RdchatError) -> None:
            if isinstance(error, NoTrashError):
                ask_again(replace(question, has_trash=False))
            else:
                self.failed.emit(error)

        self._work.do(lambda: question.delete_model(move_to_trash), partial(self.removed.emit, question), failed)

    def restore_model(self, trashed: TrashedFolder) -> None:
        """Put a model back; `restored` or `failed` follows."""
        self._work.do(lambda: put_back(trashed), lambda _none: self.restored.emit(trashed), self.failed.emit)


def move_to_trash(folder: Path) -> Path | None:
    """Move a folder to the Trash of its disk, and return its path there, None if unknown; see `MoveToTrash`."""
    # A `QFile` that was moved has its new path as name. Where Qt does not know it, the name is empty or the old one.
    file = QFile(str(folder))
    if not file.moveToTrash():
        raise OSError(file.errorString())
    trash_path = Path(file.fileName())
    return trash_path if file.fileName() and trash_path != folder else None


class Verification(ModelService):
    """Verifies one model at a time; starting another stops it.

    Attributes:
        model: The model whose files are being read; None for none.
        done_bytes: Bytes of it that were read.
        finished: Emitted with a model and its `Verdict`.
    """

    finished = Signal(ModelCard, object)
    failed = Signal(ModelCard, RdchatError)
    model: ModelCard | None = None
    done_bytes = 0

    def verify_model(self, model: ModelCard) -> None:
        """Start to read a model's files."""
        self.model = model
        self.done_bytes = 0
        self._work.replace(
            lambda job: verdict_of(model, self._tokens, job.report_progress),
            lambda verdict: self._end(self.finished, model, verdict),
            failed=lambda error: self._end(self.failed, model, error),
            on_progress=self._on_bytes,
        )
        self.changed.emit()

    def stop_verifying(self) -> None:
        """Stop the verification."""
        self._work.drop_jobs()
        self.model = None
        self.changed.emit()

    def _on_bytes(self, count: int) -> None:
        self.done_bytes += count
        self.changed.emit()

    def _end(self, signal: SignalInstance, model: ModelCard, outcome: object) -> None:
        self.model = None
        signal.emit(model, outcome)
