"""Carries out the File menu's exports, imports and backups: asks, shows progress, reports."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Slot

from rdchat.chat.conversation import Notice
from rdchat.chat.transfer.backup_file import BackupFacts
from rdchat.chat.transfer.exporting import file_name
from rdchat.chat.transfer.reports import ExportReport, ImportReport, Progress
from rdchat.chat.transfer.restore import Restored
from rdchat.services.chat_controller import ChatController
from rdchat.services.transfer.remote_requests import RemoteRequests
from rdchat.services.transfer.transfer_desk import TransferDesk
from rdchat.ui.conversation.banner import Banner
from rdchat.ui.import_export.pages import ExportPage, ImportPage, MessagePage, ReportPage, RestorePage, import_title
from rdchat.ui.import_export.sheet import ProgressPage, Sheet
from rdchat.ui.look.file_dialogs import FileMode, ask_to_open, ask_to_save
from rdchat.ui.look.formatting import counted, file_size
from rdchat.ui.look.opening import show_folder
from rdchat.ui.look.theme import Theme
from rdchat.ui.window.main_window import MainWindow

_KEY = "transfer"  # of the banner
_CHAT_FILES = ("Chats (*.json *.jsonl *.zip *.db)", "All files (*)")


class ImportExport(QObject):
    """Shows the work that was started in this window in a sheet, and the work of terminal commands in a banner.

    Args:
        window: Has the actions, and shows the sheet and the banners.
        controller: The conversations.
        desk: Does the work.
        requests: The requests of terminal commands.
        theme: The appearance to follow.
    """

    def __init__(
        self,
        window: MainWindow,
        controller: ChatController,
        desk: TransferDesk,
        requests: RemoteRequests,
        theme: Theme,
    ) -> None:
        super().__init__(window)
        self._window, self._controller, self._desk, self._theme = window, controller, desk, theme
        self._own = False  # whether the work was started in this window
        self._undoing = False  # whether the work undoes a restore, which needs no question
        self.sheet = Sheet(window)
        actions = window.actions_
        actions.export_chat.triggered.connect(self._ask_export)
        actions.export_all.triggered.connect(self._ask_export_all)
        actions.import_chats.triggered.connect(self._ask_import)
        actions.back_up.triggered.connect(self._ask_backup)
        actions.restore.triggered.connect(self._ask_restore)
        desk.progressed.connect(self._on_progress)
        desk.exported.connect(self._on_exported)
        desk.imported.connect(self._on_imported)
        desk.import_undone.connect(self._on_import_undone)
        desk.backed_up.connect(self._on_backed_up)
        desk.restore_prepared.connect(self._on_prepared)
        desk.restored.connect(self._on_restored)
        desk.failed.connect(self._on_failed)
        desk.cancelled.connect(self._end)
        requests.imported.connect(self._report_import)
        requests.restored.connect(self._report_restore)

    def offer_set_aside(self) -> None:
        """Offer to import chats that an older version could not read and put aside."""
        if not (paths := self._desk.set_aside()):
            return
        banner = Banner(
            self._theme,
            "Chats that an older version put aside can be read again",
            "They are added to your chats.",
        )
        banner.add_action(
            "Bring back", lambda: self._begin("Bringing chats back", lambda: self._desk.bring_back(paths))
        )
        banner.dismissed.connect(lambda: self._desk.leave_aside(paths))
        self._window.conversation.banners.show_banner(banner, "set aside")

    # Questions

    def _ask_export(self) -> None:
        chat = self._controller.chat.conversation
        if chat is not None and not self._is_busy():
            self._show_export(chat.title, partial(self._desk.export_chat, chat.id))

    def _ask_export_all(self) -> None:
        if not self._is_busy():
            self._show_export(None, self._desk.export_all)

    def _show_export(self, title: str | None, export: Callable[..., None]) -> None:
        def choose(kind: str, details: bool) -> None:
            ending, filters = {
                "json": (".json", ["JSON (*.json)"]),
                "markdown": (".md", ["Markdown (*.md)"]),
                "folder": ("", []),
            }[kind]
            name = f"rdchat chats {_today()}{ending}" if title is None else file_name(title, ending)
            self.sheet.finish()
            ask_to_save(self._window, "Export", name, filters, write(kind, details), accept="Export")

        def write(kind: str, details: bool) -> Callable[[str], None]:
            return lambda path: self._begin("Exporting", lambda: export(Path(path), kind, details=details))

        self.sheet.show_page(ExportPage(self._theme, title, choose, self.sheet.finish))

    def _ask_import(self) -> None:
        if not self._is_busy():
            files = partial(self._choose_import, FileMode.ExistingFiles)
            folder = partial(self._choose_import, FileMode.Directory)
            self.sheet.show_page(ImportPage(self._theme, files, folder, self.sheet.finish))

    def _choose_import(self, mode: FileMode) -> None:
        def read(names: list[str]) -> None:
            paths = [Path(name) for name in names]
            self._begin("Importing chats", lambda: self._desk.import_files(paths))

        self.sheet.finish()
        filters = _CHAT_FILES if mode is FileMode.ExistingFiles else ()
        ask_to_open(self._window, "Import chats", mode, read, filters, accept="Import")

    def _ask_backup(self) -> None:
        if not self._is_busy():
            name = f"rdchat backup {_today()}.zip"
            ask_to_save(self._window, "Back up", name, ["Backups (*.zip)"], self._back_up, accept="Back up")

    def _back_up(self, path: str) -> None:
        self._begin("Backing up", lambda: self._desk.back_up(Path(path)))

    def _ask_restore(self) -> None:
        if not self._is_busy():
            filters = ["Backups (*.zip *.db)", "All files (*)"]
            ask_to_open(self._window, "Restore a backup", FileMode.ExistingFile, self._check_backup, filters)

    def _check_backup(self, paths: list[str]) -> None:
        self._begin("Checking the backup", lambda: self._desk.prepare_restore(Path(paths[0])))

    def _is_busy(self) -> bool:
        """Tell whether other work is running, and say so if a terminal command started it."""
        if self._desk.busy and not self._own:
            self._say("rdchat is busy", "A terminal command is importing, exporting or backing up at present.")
        return self._desk.busy

    def _begin(self, title: str, start: Callable[[], None]) -> None:
        if self._is_busy():
            return
        self._own = True
        self._window.conversation.banners.close_banner(_KEY)
        self.sheet.show_page(ProgressPage(self._theme, title, self._desk.cancel), later=True)
        start()

    # Results

    @Slot(Progress)
    def _on_progress(self, progress: Progress) -> None:
        if self._own and isinstance(self.sheet.page, ProgressPage):
            self.sheet.page.show_progress(progress)

    @Slot(ExportReport)
    def _on_exported(self, report: ExportReport) -> None:
        self._end()
        path = Path(report.path)
        show = partial(show_folder, path.parent)
        self._banner(f"Exported {counted(report.chats, 'chat')}", f"To {path}", "Show", show)

    @Slot(ImportReport)
    def _on_imported(self, report: ImportReport) -> None:
        if self._own:
            self._own = False
            self.sheet.show_page(ReportPage(self._theme, report, partial(self._undo_import, report), self.sheet.finish))

    def _undo_import(self, report: ImportReport) -> None:
        self._begin("Undoing the import", lambda: self._desk.undo_import(report))

    @Slot(int)
    def _on_import_undone(self, chats: int) -> None:
        self._end()
        self._banner("The import was undone", f"{counted(chats, 'chat')} removed.")

    @Slot(BackupFacts)
    def _on_backed_up(self, facts: BackupFacts) -> None:
        self._end()
        path = Path(facts.path)
        what = f"{counted(facts.chats, 'chat')}, {file_size(facts.bytes)}: {path}"
        self._banner("Backed up", what, "Show", partial(show_folder, path.parent))

    @Slot(BackupFacts)
    def _on_prepared(self, facts: BackupFacts) -> None:
        if self._own and self._undoing:
            self._desk.restore()
        elif self._own:
            self.sheet.show_page(RestorePage(self._theme, facts, self._desk.restore, self._give_up_restore))

    def _give_up_restore(self) -> None:
        self._desk.forget_restore()
        self._end()

    @Slot(Restored)
    def _on_restored(self, kept: Restored) -> None:
        if not self._own:
            return
        undone = self._undoing
        self._end()
        if undone:
            self._banner("The restore was undone", f"The chats of the backup are kept as {kept.database}")
        else:
            self._report_restore(kept)

    def _undo_restore(self, kept: Restored) -> None:
        def undo() -> None:
            self._undoing = True
            self._desk.undo_restore(kept)

        self._begin("Undoing the restore", undo)

    @Slot(Notice)
    def _on_failed(self, notice: Notice) -> None:
        if self._own:
            self._give_up_restore()
            self._say(notice.title, notice.detail)

    @Slot(ImportReport)
    def _report_import(self, report: ImportReport) -> None:
        """Report an import of a terminal command."""
        if report.chats:
            undo = partial(self._undo_import, report)
            self._banner(f"{import_title(report)} from the terminal", "", "Undo", undo)

    @Slot(Restored)
    def _report_restore(self, kept: Restored) -> None:
        words = f"Your earlier chats are kept as {kept.database}" if kept.database else ""
        self._banner("The backup was restored", words, "Undo" if words else "", partial(self._undo_restore, kept))

    @Slot()
    def _end(self) -> None:
        if self._own:
            self._own = self._undoing = False
            self.sheet.finish()

    def _say(self, title: str, text: str) -> None:
        self.sheet.show_page(MessagePage(self._theme, title, text, self.sheet.finish))

    def _banner(self, title: str, text: str, action: str = "", act: Callable[[], object] = lambda: None) -> None:
        banner = Banner(self._theme, title, text, "check", "success")
        if action:
            banner.add_action(action, act)
        self._window.conversation.banners.show_banner(banner, _KEY)


def _today() -> str:
    return f"{datetime.now().astimezone():%Y-%m-%d}"
