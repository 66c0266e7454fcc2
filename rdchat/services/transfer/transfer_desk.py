"""Runs the exports, imports, backups and restores of the window, one at a time."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import Notice
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.backup_file import BackupFacts
from rdchat.chat.transfer.child import TransferProcess
from rdchat.chat.transfer.reports import ExportReport, ImportReport, Progress
from rdchat.chat.transfer.restore import Restored, carry_out, decide, discard, withdraw
from rdchat.chat.transfer.stored_chats import leave_aside, readable_again
from rdchat.errors import RdchatError, StorageError
from rdchat.services.background.background_work import Callback, MainThread
from rdchat.services.chat_controller import ChatController
from rdchat.work.job import CancelledError, Job

_IDLE_S = 10.0
_BUSY = Notice("rdchat is busy with another import, export or backup", "Wait for its end, or cancel it.")


class TransferDesk(QObject):
    """Has a child process do the long work, and tells the results; the store stays usable meanwhile.

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
        self._process, self._main = TransferProcess(_IDLE_S), MainThread(self)
        self._job: Job[Any] | None = None
        self._prepared = False  # a backup waits for the person to confirm it

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
        self._run(
            "export_chats", ExportReport(), self.exported.emit, database=self.database, path=path, kind=kind,
            chats=chats, details=details, system_prompt=settings.system_prompt, sampling=asdict(settings.sampling),
        )  # fmt: skip

    def import_files(self, paths: Sequence[Path], then: Callable[[ImportReport], object] | None = None) -> None:
        """Import files, and those of chats in folders; `then` is called, and `imported` follows."""

        def take(report: ImportReport) -> None:
            if then is not None:
                then(report)
            self._controller.chats.refresh()
            self.imported.emit(report)

        self._begin(lambda told, end: self._process.import_files(self._store.database, paths, told, end), take)

    def set_aside(self) -> list[Path]:
        """Return files of chats that an older version has put aside and this one can read."""
        return readable_again(self.database)

    def bring_back(self, paths: Sequence[Path]) -> None:
        """Import files of `set_aside`, those that could be read are no more among them; `imported` follows."""

        def leave_aside(report: ImportReport) -> None:
            self.leave_aside([path for path, file in zip(paths, report.files, strict=False) if not file.problem])

        self.import_files(paths, leave_aside)

    def leave_aside(self, paths: Sequence[Path]) -> None:
        """Keep files of `set_aside` where they are, and name them no more."""
        for path in paths:
            with suppress(StorageError):  # it is offered again
                leave_aside(self.database, path)

    def undo_import(self, report: ImportReport) -> None:
        """Delete the chats that an import has brought; `import_undone` follows."""
        chats = list(report.chats)

        def take(_done: object) -> None:
            self._controller.chats.drop(chats, self._controller.unsaved.chats_being_written)
            self.import_undone.emit(len(chats))

        self._begin(lambda _told, end: self._store.delete_conversations(chats, end), take)

    def back_up(self, path: Path) -> None:
        """Write the whole store into a file; `backed_up` follows."""
        emit = self.backed_up.emit
        self._run("back_up", BackupFacts(), emit, database=self.database, settings=self._settings, path=path)

    def prepare_restore(self, source: Path, settings: Path | None = None) -> None:
        """Check a backup and make it ready; `restore_prepared` follows, and nothing of the store is changed yet.

        Args:
            source: A backup, or a database that a restore has kept.
            settings: The settings that go with such a database.
        """

        def take(facts: BackupFacts) -> None:
            self._prepared = True
            self.restore_prepared.emit(facts)

        self._run("prepare", BackupFacts(), take, source=source, data=self.database.parent, settings=settings)

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
            self._store.database.replace(replace)
        except StorageError as error:
            self.failed.emit(Notice(error.message, error.hint))
            return
        self._controller.preferences.read_again()
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
        self._process.close()  # what it brought is hidden, and erased after the next start
        self._job = None

    def _run(self, do: str, result: Any, then: Callback, **arguments: Any) -> None:
        self._begin(lambda told, end: self._process.run(do, result, told, end, **arguments), then)

    def _begin(self, start: Callable[[Callback, Callback], Job[Any]], then: Callback) -> None:
        """Start a task by its callbacks for progress and end; `then` gets its result."""
        if self.busy:
            self.failed.emit(_BUSY)
            return

        def end(outcome: Any) -> None:
            self._job = None
            match outcome:
                case CancelledError():
                    self.cancelled.emit()
                case RdchatError():
                    self.failed.emit(Notice(outcome.message, outcome.hint))
                case _:
                    then(outcome)

        self._job = start(self._main.bring(self.progressed.emit), self._main.bring(end, once=True))
