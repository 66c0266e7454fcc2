"""Runs exports, imports, backups and restores in the open app, one at a time.

The window calls it on the main thread. The work is done in a child process, except for the moment in which a restore
replaces the files.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.backups import BackupFacts, Restored, carry_out, decide, discard, withdraw
from rdchat.chat.transfer.chat_import import ExportReport, ImportReport, take_back
from rdchat.chat.transfer.transfer_process import OnEnd, OnProgress, TransferProcess
from rdchat.errors import RdchatError, StorageError
from rdchat.services.background_work import MainThread
from rdchat.services.window.chat_controller import ChatController
from rdchat.work import Job

# The child process ends when it had nothing to do for so long.
_IDLE_S = 10.0


class Transfers:
    """Runs long tasks in a child process; the store stays usable meanwhile.

    A task calls `on_progress` with each `LoadProgress`, and `on_end` once with its result or an RdchatError; a
    CancelledError means that the person stopped it. A restore is prepared first, which changes nothing, and then
    carried out at once, with no reply under way.

    Args:
        controller: The open chat and its services.
        store: The conversations.
        settings: The settings' file.
    """

    def __init__(self, controller: ChatController, store: ConversationStore, settings: Path) -> None:
        self._controller = controller
        self._store = store
        self._settings = settings
        self._process = TransferProcess(_IDLE_S)
        self._main = MainThread()
        self._job: Job[Any] | None = None
        # Whether a backup is unpacked: from the end of `prepare_restore` to `restore_backup` or `forget_restore`.
        self._prepared = False

    @property
    def busy(self) -> bool:
        """Whether a task runs, or a backup waits to be restored."""
        return self._main.waits or self._prepared

    def export(
        self,
        chats: list[int] | None,
        path: Path,
        kind: str,
        on_progress: OnProgress,
        on_end: OnEnd,
        *,
        details: bool,
        shares: bool = False,
    ) -> None:
        """Export chats, or all of them, as `json`, `markdown` or a `folder` of Markdown; ends with an ExportReport."""
        order = self._controller.replies.order
        start = partial(
            self._process.run_task,
            "export_chats",
            ExportReport(),
            database=self._store.path,
            path=path,
            kind=kind,
            chats=chats,
            details=details,
            shares=shares,
            settings=asdict(order.settings),
            sampling=asdict(order.defaults.params),
            model=str(order.model or ""),
        )
        self._begin(start, on_progress, on_end)

    def import_files(self, paths: Sequence[Path], on_progress: OnProgress, on_end: OnEnd) -> None:
        """Import files, and those of chats in folders; ends with an ImportReport, also where it is cancelled."""

        def end(outcome: ImportReport | RdchatError) -> None:
            self._controller.chats.update_list()
            self._controller.notes.changed.emit()
            on_end(outcome)

        self._begin(partial(self._process.import_files, self._store, paths), on_progress, end)

    def undo_import(self, report: ImportReport, on_progress: OnProgress, on_end: OnEnd) -> None:
        """Delete the chats, folders and notes of an import for good."""

        def end(outcome: object) -> None:
            if not isinstance(outcome, RdchatError):
                ending = self._controller.replies.chats_being_written.intersection(report.chats)
                self._controller.chats.drop(report.chats)
                self._controller.notes.changed.emit()
                self._controller.replies.caches.tidy_soon()
                # A reply that is stopped now is stored once more: its chat is erased later, at the next start at last.
                if not ending:
                    self._store.organiser.erase()
            on_end(outcome)

        self._begin(lambda _progress, end: self._store.submit(partial(take_back, report), end), on_progress, end)

    def back_up(self, path: Path, on_progress: OnProgress, on_end: OnEnd) -> None:
        """Write the whole store into a file; ends with its BackupFacts."""
        start = partial(
            self._process.run_task,
            "back_up",
            BackupFacts(),
            database=self._store.path,
            settings=self._settings,
            path=path,
        )
        self._begin(start, on_progress, on_end)

    def prepare_restore(self, source: Path, settings: Path | None, on_progress: OnProgress, on_end: OnEnd) -> None:
        """Check and unpack a backup; ends with its BackupFacts. The store is not changed yet.

        Args:
            source: A backup, or a database that a restore has kept.
            settings: The settings to restore with a database.
            on_progress: See the class.
            on_end: See the class.
        """

        def end(outcome: BackupFacts | RdchatError) -> None:
            self._prepared = isinstance(outcome, BackupFacts)
            on_end(outcome)

        start = partial(
            self._process.run_task,
            "prepare",
            BackupFacts(),
            source=source,
            data=self._store.path.parent,
            settings=settings,
        )
        self._begin(start, on_progress, end)

    def undo_restore(self, restored: Restored, on_progress: OnProgress, on_end: OnEnd) -> None:
        """Prepare the files that a restore moved aside, to restore them."""
        settings = Path(restored.settings) if restored.settings else None
        self.prepare_restore(Path(restored.database), settings, on_progress, on_end)

    def restore_backup(self) -> Restored:
        """Replace the store by the prepared backup.

        Raises:
            StorageError: If a reply is being written or is not saved, or a file cannot be moved.
        """
        if self._main.waits:
            raise _busy()
        if self._controller.replies.chats_being_written:
            raise StorageError("A reply is being written.", "Stop it or wait for its end, then restore again.")
        if not self._controller.recorder.save_texts():
            raise StorageError(
                "A reply is not saved yet.", "Solve the problem that keeps it from being saved, then restore again."
            )
        folder = self._store.path.parent
        restored = Restored()

        def replace() -> None:
            """Move the prepared files to their places, while the store is closed, or give the restore up.

            `decide` makes sure that the next start finishes what a crash interrupts; `withdraw` takes that back.
            """
            nonlocal restored
            decide(folder)
            try:
                # It returns None if nothing was decided; `restored` then stays empty.
                restored = carry_out(folder, self._store.path, self._settings) or restored
            except StorageError:
                withdraw(folder, self._store.path)
                raise

        self._controller.traces.settle()
        self._controller.chat.unsent.hold_text(self._controller.chat.id)
        self._prepared = False
        self._store.replace(replace)
        self._controller.settings.read_again()
        self._controller.chats.begin_anew()
        return restored

    def forget_restore(self) -> None:
        """Delete the prepared backup: the person does not want it."""
        if not self._main.waits:
            self._prepared = False
            discard(self._store.path.parent)

    def cancel_task(self) -> None:
        """Stop the running task."""
        if self._job is not None:
            self._job.cancel()

    def end_transfers(self) -> None:
        """Stop the running task, because the app ends."""
        self._main.refuse_calls()
        # What the task has imported is hidden, and erased after the next start.
        self._process.close()

    def _begin(self, start: Callable[[OnProgress, OnEnd], Job[Any]], on_progress: OnProgress, on_end: OnEnd) -> None:
        """Start a task with callbacks for the main thread, unless another one runs or a backup waits to be restored."""
        if self.busy:
            on_end(_busy())
            return
        # The child reads their file.
        self._controller.settings.wait_until_saved()
        try:
            self._job = start(*self._main.bring_both(on_progress, on_end))
        except BaseException:
            self._main.drop_callbacks()
            raise


def _busy() -> StorageError:
    return StorageError("rdchat is busy with another import, export or backup.", "Wait for its end, or cancel it.")
