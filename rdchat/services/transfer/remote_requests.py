"""Carries out requests of `rdchat chats` from a terminal in the open app."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Notice
from rdchat.chat.transfer.backup_file import BackupFacts
from rdchat.chat.transfer.reports import ImportReport, Progress
from rdchat.chat.transfer.restore import Restored
from rdchat.services.app.instance_channel import InstanceRequest
from rdchat.services.transfer.transfer_desk import TransferDesk


class RemoteRequests(QObject):
    """Takes requests to import and to restore, one at a time, and tells the window the results too.

    Args:
        desk: Does it.
        parent: The Qt parent.
    """

    imported = Signal(ImportReport)
    restored = Signal(Restored)

    def __init__(self, desk: TransferDesk, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._desk = desk
        self._request: InstanceRequest | None = None
        desk.progressed.connect(self._on_progress)
        desk.imported.connect(self._on_imported)
        desk.restore_prepared.connect(self._on_prepared)
        desk.restored.connect(self._on_restored)
        desk.failed.connect(self._on_failed)
        desk.cancelled.connect(self._on_cancelled)

    @Slot(object)
    def take(self, request: InstanceRequest) -> None:
        """Carry a request out, or say why not."""
        paths = request.asked.get("paths")
        is_right = isinstance(paths, list) and paths and all(isinstance(path, str) for path in paths)
        if request.asked.get("do") not in ("import", "restore") or not is_right:
            request.end(_failed(Notice("The open rdchat does not know this request", "Quit it, then try again.")))
            return
        if self._desk.busy or self._request is not None:
            request.end(_failed(Notice("The open rdchat is busy with another import, export or backup")))
            return
        self._request = request
        request.left.connect(self._desk.cancel)
        request.tell({"taken": True})
        assert isinstance(paths, list)
        if request.asked["do"] == "import":
            self._desk.import_files([Path(path) for path in paths])
        else:
            self._desk.prepare_restore(Path(paths[0]))

    @Slot(Progress)
    def _on_progress(self, progress: Progress) -> None:
        if self._request is not None:
            self._request.tell({"progress": asdict(progress)})

    @Slot(ImportReport)
    def _on_imported(self, report: ImportReport) -> None:
        if self._end({"done": report.to_json()}):
            self.imported.emit(report)

    @Slot(BackupFacts)
    def _on_prepared(self, facts: BackupFacts) -> None:
        if self._request is not None:
            self._request.tell({"prepared": asdict(facts)})
            self._desk.restore()

    @Slot(Restored)
    def _on_restored(self, kept: Restored) -> None:
        if self._end({"done": asdict(kept)}):
            self.restored.emit(kept)

    @Slot(Notice)
    def _on_failed(self, notice: Notice) -> None:
        if self._end(_failed(notice)):
            self._desk.forget_restore()

    @Slot()
    def _on_cancelled(self) -> None:
        self._end({"cancelled": True})

    def _end(self, outcome: dict[str, Any]) -> bool:
        """Answer the request under way; False where there is none."""
        if self._request is None:
            return False
        request, self._request = self._request, None
        request.end(outcome)
        return True


def _failed(notice: Notice) -> dict[str, Any]:
    message = notice.title if notice.title.endswith(".") else f"{notice.title}."
    return {"failed": {"message": message, "hint": notice.detail}}
