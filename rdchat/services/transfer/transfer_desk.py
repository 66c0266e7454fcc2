"""Exports, imports and backups as the window commands them, one at a time."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.chat.backup.backup_file import BackupFacts
from rdchat.chat.backup.restore import Restored, carry_out, decide, discard, withdraw
from rdchat.chat.conversation import Notice
from rdchat.chat.plain_data import from_plain
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.child import TAKE_BACK_S, failure, submit
from rdchat.chat.transfer.reports import ExportReport, ImportReport, Progress
from rdchat.chat.transfer.stored_chats import leave_aside, readable_again
from rdchat.chat.transfer.tasks import Task, backup_task, export_task, hide_task, import_task, prepare_task
from rdchat.errors import RdchatError, StorageError
from rdchat.services.background.background_work import MainThread
from rdchat.services.chat.chat_controller import ChatController
from rdchat.work.child_process import ChildProcess
from rdchat.work.job import CancelledError, Job

_IDLE_S = 10.0
_LOG = logging.getLogger(__name__)
_UNREADABLE = Notice("What the process did cannot be told", "Look at the chats.")
_BUSY = Notice("rdchat is busy with another import, export or backup", "Wait for its end, or cancel it.")


class TransferDesk(QObject):
    """Has long work done by a child process and tells what came of it; the store stays usable meanwhile.

    A restore is prepared first, which changes nothing, and then carried out at once, with no reply under way.

    Args:
        controller: Whose chats they are.
        store: The conversations.
        settings: The settings' file.
        parent: The Qt parent.
    """

    progressed = Signal(Progress)
    exported = Signal(ExportReport)
    imported = Signal(ImportReport)
    import_undone = Signal(int)  # number of chats
    backed_up = Signal(BackupFacts)
    restore_prepared = Signal(BackupFacts)
    restored = Signal(Restored)
    failed = Signal(Notice)
    cancelled = Signal()

    def __init__(
        self, controller: ChatController, store: ConversationStore, settings: Path, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._controller, self._store, self._settings = controller, store, settings
        self._child, self._main = ChildProcess("transfer", idle_s=_IDLE_S), MainThread(self)
        self._job: Job[Any] | None = None
        self._prepared = False  # a backup waits for the person's word
        self._then: Callable[[dict[str, Any]], None] = lambda _result: None

    @property
    def busy(self) -> bool:
        """Whether something is under way, or a backup waits to be restored."""
        return self._job is not None or self._prepared

    @property
    def database(self) -> Path:
        return self._store.path

    def export_chat(self, conversation_id: int, path: Path, kind: str, *, details: bool) -> None:
        """Export one chat, as `json` or `markdown`; `exported` follows."""
        self._export(path, kind, [conversation_id], details=details)

    def export_all(self, path: Path, kind: str, *, details: bool) -> None:
        """Export all chats, into a file of `json` or a `folder` of Markdown; `exported` follows."""
        self._export(path, kind, None, details=details)

    def _export(self, path: Path, kind: str, chats: list[int] | None, *, details: bool) -> None:
        settings = self._controller.preferences.settings
        task = export_task(
            self.database, path, kind, chats,
            details=details, system_prompt=settings.system_prompt, sampling=settings.sampling,
        )  # fmt: skip
        self._begin(task, lambda result: self.exported.emit(from_plain(ExportReport("", 0), result)[0]))

    def import_files(self, paths: Sequence[Path]) -> None:
        """Import files, and those of chats in folders; `imported` follows."""
        self._begin(import_task(self.database, list(paths), considerate=True), self._on_imported)

    def set_aside(self) -> list[Path]:
        """Return files of chats that an older version has put aside and this one can read."""
        return readable_again(self.database)

    def bring_back(self, paths: Sequence[Path]) -> None:
        """Import files of `set_aside`, those that could be read are no more among them; `imported` follows."""

        def tell(result: dict[str, Any]) -> None:
            report = ImportReport.from_json(result)
            self.leave_aside([path for path, file in zip(paths, report.files, strict=False) if not file.problem])
            self._on_imported(result)

        self._begin(import_task(self.database, list(paths), considerate=True), tell)

    def leave_aside(self, paths: Sequence[Path]) -> None:
        """Keep files of `set_aside` where they are, and name them no more."""
        for path in paths:
            with suppress(StorageError):  # it is offered again
                leave_aside(self.database, path)

    def undo_import(self, report: ImportReport) -> None:
        """Delete the chats that an import has brought; `import_undone` follows."""
        chats = list(report.chats)

        def tell(_result: dict[str, Any]) -> None:
            self._controller.chats.drop(chats, self._controller.unsaved.chats_being_written)
            self.import_undone.emit(len(chats))

        self._begin(hide_task(self.database, chats), tell)

    def back_up(self, path: Path) -> None:
        """Write the whole store into a file; `backed_up` follows."""
        task = backup_task(self.database, self._settings, path)
        self._begin(task, lambda result: self.backed_up.emit(from_plain(BackupFacts(), result)[0]))

    def prepare_restore(self, source: Path, settings: Path | None = None) -> None:
        """Check a backup and make it ready; `restore_prepared` follows, and nothing of the store is changed yet.

        Args:
            source: A backup, or a database that a restore has kept.
            settings: The settings that go with such a database.
        """
        task = prepare_task(source, self.database.parent, settings)

        def tell(result: dict[str, Any]) -> None:
            self._prepared = True
            self.restore_prepared.emit(from_plain(BackupFacts(), result)[0])

        self._begin(task, tell)

    def restore(self) -> None:
        """Put what is prepared in the place of the store; `restored` follows, or `failed`."""
        if reason := self._reason_not_to_restore():
            self.failed.emit(reason)
            return
        folder = self.database.parent
        kept: Restored | None = None

        def replace() -> None:
            nonlocal kept
            decide(folder)
            try:
                kept = carry_out(folder, self.database, self._settings)
            except StorageError:
                withdraw(folder, self.database)
                raise

        self._controller.traces.settle()
        self._prepared = False
        try:
            self._store.replace(replace)
        except StorageError as error:
            self.failed.emit(Notice(error.message, error.hint))
            return
        self._controller.preferences.read_again()
        self._controller.editor.close()  # what it goes on to erase has ids of the store that was
        self._controller.chats.begin_anew()
        self.restored.emit(kept or Restored())

    def _reason_not_to_restore(self) -> Notice | None:
        if self._job is not None:
            return _BUSY
        if self._controller.unsaved.chats_being_written:
            return Notice("A reply is being written", "Stop it or wait for its end, then restore again.")
        if not self._controller.unsaved.save():
            return Notice("A reply is not saved yet", "Mend what keeps it from being saved, then restore again.")
        return None

    def forget_restore(self) -> None:
        """Take away what was prepared: the person does not want it."""
        if self._job is None:
            self._prepared = False
            discard(self.database.parent)

    def undo_restore(self, kept: Restored) -> None:
        """Prepare to have back what a restore put aside; `restore_prepared` follows."""
        self.prepare_restore(Path(kept.database), Path(kept.settings) if kept.settings else None)

    def cancel(self) -> None:
        """Stop what is under way; `cancelled` follows, or `imported` where files were imported before."""
        if self._job is not None:
            self._job.cancel()

    def close(self) -> None:
        """Stop what is under way, for the app ends."""
        self._main.close()
        self._child.close(TAKE_BACK_S)  # what it wrote is hidden, and thrown away at the next start
        self._job = None

    def _begin(self, task: Task, then: Callable[[dict[str, Any]], None]) -> None:
        if self.busy:
            self.failed.emit(_BUSY)
            return
        self._then = then
        self._store.share(True)
        ended = self._main.bring(self._on_ended, once=True)
        self._job = submit(self._child, task, self._main.bring(self.progressed.emit), ended)

    def _on_ended(self, outcome: dict[str, Any] | RdchatError) -> None:
        self._job = None
        self._store.share(False)
        match outcome:
            case CancelledError():
                self.cancelled.emit()
            case RdchatError():
                error = failure(outcome)
                self.failed.emit(Notice(error.message, error.hint))
            case _:
                self._take(outcome)

    def _take(self, result: dict[str, Any]) -> None:
        try:
            self._then(result)
        except (LookupError, TypeError, ValueError):
            _LOG.exception("The process gave a result that makes no sense")
            self.failed.emit(_UNREADABLE)

    def _on_imported(self, result: dict[str, Any]) -> None:
        self._controller.chats.refresh()
        self.imported.emit(ImportReport.from_json(result))
