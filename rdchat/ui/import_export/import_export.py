"""Carries out the File menu's exports, imports and backups: asks, shows progress, reports."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject

from rdchat.chat.transfer.backups import BackupFacts, Restored
from rdchat.chat.transfer.child import OnEnd, OnProgress
from rdchat.chat.transfer.exporting import file_name
from rdchat.chat.transfer.reports import ExportReport, ImportReport
from rdchat.errors import RdchatError, StorageError
from rdchat.services.chat_controller import ChatController
from rdchat.services.transfers import Transfers
from rdchat.ui.conversation.banner import Banner
from rdchat.ui.import_export import sheets
from rdchat.ui.style.formatting import counted, file_size
from rdchat.ui.style.opening import FileMode, ask_to_open, ask_to_save, show_folder
from rdchat.ui.style.theme import Theme
from rdchat.ui.window.main_window import MainWindow
from rdchat.work.job import CancelledError

_KEY = "transfer"
_CHAT_FILES = ("Chats (*.json *.jsonl *.zip *.db)", "All files (*)")
_EXPORTS: dict[str, tuple[str, list[str]]] = {
    "json": (".json", ["JSON (*.json)"]),
    "markdown": (".md", ["Markdown (*.md)"]),
    "folder": ("", []),
}


class ImportExport(QObject):
    """Asks in sheets, shows the progress of a task in a sheet, and its result in a banner.

    Args:
        window: Has the actions, and shows the sheets and the banners.
        controller: The conversations.
        transfers: Does the work.
        theme: The appearance to follow.

    Attributes:
        sheet: The sheet that is open; None without one.
    """

    def __init__(self, window: MainWindow, controller: ChatController, transfers: Transfers, theme: Theme) -> None:
        super().__init__(window)
        self._window, self._controller, self._transfers, self._theme = window, controller, transfers, theme
        self.sheet: sheets.Sheet | None = None
        actions = window.actions_
        actions.export_chat.triggered.connect(self._ask_export)
        actions.export_all.triggered.connect(lambda: self._show_export(None, None))
        actions.import_chats.triggered.connect(self._ask_import)
        actions.back_up.triggered.connect(self._ask_backup)
        actions.restore.triggered.connect(self._ask_restore)
        # The result is shown until the person sends a message.
        controller.chat.message_added.connect(lambda _message: window.conversation.banners.close_banner(_KEY))

    # Questions

    def _ask_export(self) -> None:
        if (chat := self._controller.chat.stored_conversation) is not None:
            self._show_export(chat.title, [chat.id])

    def _show_export(self, title: str | None, chats: list[int] | None) -> None:
        def choose(kind: str, details: bool) -> None:
            ending, filters = _EXPORTS[kind]
            name = f"rdchat chats {_today()}{ending}" if title is None else file_name(title, ending)
            ask_to_save(self._window, "Export", name, filters, partial(write, kind, details), accept="Export")

        def write(kind: str, details: bool, path: str) -> None:
            start = partial(self._transfers.export, chats, Path(path), kind, details=details)
            self._begin("Exporting", start, self._report_export)

        if not self._transfers.busy:
            self._open(sheets.export_sheet(self._window, self._theme, title, choose))

    def _ask_import(self) -> None:
        if not self._transfers.busy:
            files = partial(self._choose_import, FileMode.ExistingFiles, _CHAT_FILES)
            folder = partial(self._choose_import, FileMode.Directory, ())
            self._open(sheets.import_sheet(self._window, self._theme, files, folder))

    def _choose_import(self, mode: FileMode, filters: Sequence[str]) -> None:
        def read(names: list[str]) -> None:
            start = partial(self._transfers.import_files, [Path(name) for name in names])
            self._begin("Importing chats", start, self._report_import)

        ask_to_open(self._window, "Import Chats", mode, read, filters, accept="Import")

    def _ask_backup(self) -> None:
        def write(path: str) -> None:
            self._begin("Backing up", partial(self._transfers.back_up, Path(path)), self._report_backup)

        if not self._transfers.busy:
            name = f"rdchat backup {_today()}.zip"
            ask_to_save(self._window, "Back Up", name, ["Backups (*.zip)"], write, accept="Back Up")

    def _ask_restore(self) -> None:
        def check(paths: list[str]) -> None:
            start = partial(self._transfers.prepare_restore, Path(paths[0]), None)
            self._begin("Checking the backup", start, self._confirm_restore)

        if not self._transfers.busy:
            filters = ["Backups (*.zip *.db)", "All files (*)"]
            ask_to_open(self._window, "Restore a Backup", FileMode.ExistingFile, check, filters)

    def _confirm_restore(self, facts: BackupFacts) -> None:
        restore = partial(self._restore, self._report_restore)
        self._open(sheets.restore_sheet(self._window, self._theme, facts, restore, self._transfers.forget_restore))

    # Tasks

    def _begin(self, title: str, start: Callable[[OnProgress, OnEnd], object], report: Callable[[Any], object]) -> None:
        """Start a task of the desk and show its progress; `report` takes its result."""
        if self._transfers.busy:
            return
        self._window.conversation.banners.close_banner(_KEY)
        progress = sheets.ProgressSheet(self._window, self._theme, title, self._transfers.cancel)
        self._follow(progress)

        def end(outcome: Any) -> None:
            progress.done(0)
            if isinstance(outcome, RdchatError):
                if not isinstance(outcome, CancelledError):
                    self._fail(outcome)
            else:
                report(outcome)

        start(progress.show_progress, end)

    def _restore(self, report: Callable[[Restored], object]) -> None:
        try:
            restored = self._transfers.restore()
        except StorageError as error:
            self._fail(error)
        else:
            report(restored)

    def _fail(self, error: RdchatError) -> None:
        self._transfers.forget_restore()
        title = error.message.rstrip(".")
        self._open(sheets.Sheet(self._window, self._theme, title, error.hint, [("OK", sheets.nothing)]))

    # Results

    def _report_export(self, report: ExportReport) -> None:
        path = Path(report.path)
        show = partial(show_folder, path.parent)
        self._banner(f"Exported {counted(report.chats, 'chat')}", f"To {path}", "Show", show)

    def _report_import(self, report: ImportReport) -> None:
        self._open(sheets.report_sheet(self._window, self._theme, report, partial(self._undo_import, report)))

    def _undo_import(self, report: ImportReport) -> None:
        text = f"{counted(len(report.chats), 'chat')} removed."
        start = partial(self._transfers.undo_import, report)
        self._begin("Undoing the import", start, lambda _done: self._banner("The import was undone", text))

    def _report_backup(self, facts: BackupFacts) -> None:
        path = Path(facts.path)
        what = f"{counted(facts.chats, 'chat')}, {file_size(facts.bytes)}: {path}"
        self._banner("Backed up", what, "Show", partial(show_folder, path.parent))

    def _report_restore(self, restored: Restored) -> None:
        text = f"Your earlier chats are kept as {restored.database}" if restored.database else ""
        self._banner("The backup was restored", text, "Undo" if text else "", partial(self._undo_restore, restored))

    def _undo_restore(self, restored: Restored) -> None:
        def report(undone: Restored) -> None:
            self._banner("The restore was undone", f"The backup's chats are kept as {undone.database}")

        start = partial(self._transfers.undo_restore, restored)
        self._begin("Undoing the restore", start, lambda _facts: self._restore(report))

    def _open(self, sheet: sheets.Sheet) -> None:
        self._follow(sheet)
        sheet.open()

    def _follow(self, sheet: sheets.Sheet) -> None:
        """Remember an open sheet until it is closed."""
        if self.sheet is not None:
            self.sheet.done(0)
        self.sheet = sheet
        sheet.finished.connect(self._forget_sheet)

    def _forget_sheet(self) -> None:
        self.sheet = None

    def _banner(self, title: str, text: str, action: str = "", act: Callable[[], object] = sheets.nothing) -> None:
        banner = Banner(self._theme, title, text, "check", "success")
        if action:
            banner.add_action(action, act)
        self._window.conversation.banners.show_banner(banner, _KEY)


def _today() -> str:
    return f"{datetime.now().astimezone():%Y-%m-%d}"
