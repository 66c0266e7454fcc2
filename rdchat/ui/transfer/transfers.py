"""What the File menu's entries for exports, imports and backups do, from the question to what came of it."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QFileDialog

from rdchat.chat.backup.backup_file import BackupFacts
from rdchat.chat.backup.restore import Restored
from rdchat.chat.conversation import Notice
from rdchat.chat.transfer.reports import ExportReport, ImportReport, Progress
from rdchat.services.chat.chat_controller import ChatController
from rdchat.services.transfer.remote_requests import RemoteRequests
from rdchat.services.transfer.transfer_desk import TransferDesk
from rdchat.ui.conversation.banner import Banner
from rdchat.ui.look.formatting import counted, file_size
from rdchat.ui.look.opening import show_folder
from rdchat.ui.look.theme import Theme
from rdchat.ui.transfer.dialogs import backup_dialog, export_dialog, import_dialog, restore_dialog
from rdchat.ui.transfer.pages import (
    ExportPage,
    ImportPage,
    MessagePage,
    ReportPage,
    RestorePage,
    import_title,
)
from rdchat.ui.transfer.sheet import Page, ProgressPage, Sheet
from rdchat.ui.window.main_window import MainWindow

_KEY = "transfer"  # of the banner


class Transfers(QObject):
    """Follows what the person has begun; what the terminal has asked for is told in a banner.

    Args:
        window: Has the actions, and shows the sheet and banners.
        controller: Whose chats they are.
        desk: Does it.
        requests: Of the terminal.
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
        self._own = False  # whether what is under way was begun here
        self._undoing = False  # whether a restore is being undone, which asks nothing
        self.sheet = Sheet(window)
        self.sheet.escaped.connect(self._on_escape)
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
        desk.cancelled.connect(self._on_cancelled)
        requests.imported.connect(self._tell_imported)
        requests.restored.connect(self._tell_restored)
        controller.chat.opened.connect(self._show_state)
        controller.chats.conversations_changed.connect(self._show_state)
        self._show_state()

    def offer_set_aside(self) -> None:
        """Say that chats can be read which an older version has put aside, and offer to bring them back."""
        if not (paths := self._desk.set_aside()):
            return
        banner = Banner(
            self._theme,
            "Chats that an older version put aside can be read again",
            "They come beside the chats you have.",
        )
        banner.add_action("Bring back", lambda: self._bring_back(paths))
        banner.dismissed.connect(lambda: self._desk.leave_aside(paths))
        self._window.conversation.banners.show_banner(banner, "set aside")

    def _bring_back(self, paths: list[Path]) -> None:
        self._begin("Bringing chats back", lambda: self._desk.bring_back(paths))

    @Slot()
    def _show_state(self) -> None:
        self._window.actions_.export_chat.setEnabled(self._controller.chat.conversation is not None)

    # Asking

    def _ask_export(self) -> None:
        chat = self._controller.chat.conversation
        if chat is None or self._is_busy():
            return
        identity, title = chat.id, chat.title

        def export(path: Path, kind: str, *, details: bool) -> None:
            self._desk.export_chat(identity, path, kind, details=details)

        self._show_export(title, export)

    def _ask_export_all(self) -> None:
        if not self._is_busy():
            self._show_export(None, self._desk.export_all)

    def _show_export(self, title: str | None, export: Callable[..., None]) -> None:
        def choose(kind: str, details: bool) -> None:
            def write(name: str) -> None:
                self._begin("Exporting", lambda: export(Path(name), kind, details=details))

            self.sheet.finish()
            self._open(export_dialog(self._window, title, kind), write)

        self.sheet.show_page(ExportPage(self._theme, title, choose, self.sheet.finish))

    def _ask_import(self) -> None:
        if self._is_busy():
            return
        page = ImportPage(
            self._theme,
            lambda: self._choose_import(folder=False),
            lambda: self._choose_import(folder=True),
            self.sheet.finish,
        )
        self.sheet.show_page(page)

    def _choose_import(self, *, folder: bool) -> None:
        self.sheet.finish()
        dialog = import_dialog(self._window, folder=folder)
        dialog.filesSelected.connect(self._import)
        dialog.open()

    @Slot(list)
    def _import(self, names: list[str]) -> None:
        paths = [Path(name) for name in names]
        self._begin("Importing chats", lambda: self._desk.import_files(paths))

    def _ask_backup(self) -> None:
        if not self._is_busy():
            dialog = backup_dialog(self._window)
            self._open(dialog, lambda name: self._begin("Backing up", lambda: self._desk.back_up(Path(name))))

    def _ask_restore(self) -> None:
        if not self._is_busy():
            dialog = restore_dialog(self._window)
            check = "Checking the backup"
            self._open(dialog, lambda name: self._begin(check, lambda: self._desk.prepare_restore(Path(name))))

    @staticmethod
    def _open(dialog: QFileDialog, chosen: Callable[[str], None]) -> None:
        dialog.fileSelected.connect(chosen)
        dialog.open()

    def _is_busy(self) -> bool:
        """Tell whether something is under way, and say so."""
        if self._desk.busy and not self._own:
            self._say("rdchat is busy", "Something is imported, exported or backed up for the terminal at present.")
        return self._desk.busy

    def _begin(self, title: str, start: Callable[[], None]) -> None:
        if self._is_busy():
            return
        self._own = True
        self._window.conversation.banners.close_banner(_KEY)
        self.sheet.show_page(ProgressPage(self._theme, title, self._cancel), later=True)
        start()

    # What came of it

    def _on_escape(self) -> None:
        """Do what Cancel does on a page that has one, and close the others."""
        if isinstance(self.sheet.page, ProgressPage):
            self._cancel()
            return
        if isinstance(self.sheet.page, RestorePage):
            self._desk.forget_restore()
            self._end()
        self.sheet.finish()

    def _cancel(self) -> None:
        if isinstance(self.sheet.page, ProgressPage):
            self.sheet.page.show_cancelling()
        self._desk.cancel()

    @Slot(Progress)
    def _on_progress(self, progress: Progress) -> None:
        if self._own and isinstance(self.sheet.page, ProgressPage):
            self.sheet.page.show_progress(progress)

    @Slot(ExportReport)
    def _on_exported(self, report: ExportReport) -> None:
        self._end()
        path = Path(report.path)
        self._banner(
            f"Exported {counted(report.chats, 'chat')}", f"To {path}", "Show", lambda: show_folder(path.parent)
        )

    @Slot(ImportReport)
    def _on_imported(self, report: ImportReport) -> None:
        if not self._own:
            return
        self._own = False
        self.sheet.show_page(ReportPage(self._theme, report, lambda: self._undo_import(report), self.sheet.finish))

    def _undo_import(self, report: ImportReport) -> None:
        self._begin("Undoing the import", lambda: self._desk.undo_import(report))

    @Slot(int)
    def _on_import_undone(self, chats: int) -> None:
        self._end()
        self._banner("The import was undone", f"{counted(chats, 'chat')} taken away again.")

    @Slot(BackupFacts)
    def _on_backed_up(self, facts: BackupFacts) -> None:
        self._end()
        path = Path(facts.path)
        what = f"{counted(facts.chats, 'chat')}, {file_size(facts.bytes)}: {path}"
        self._banner("Backed up", what, "Show", lambda: show_folder(path.parent))

    @Slot(BackupFacts)
    def _on_prepared(self, facts: BackupFacts) -> None:
        if not self._own:
            return
        if self._undoing:
            self._desk.restore()
            return
        self.sheet.show_page(RestorePage(self._theme, facts, self._desk.restore, self._on_escape))

    @Slot(Restored)
    def _on_restored(self, kept: Restored) -> None:
        if not self._own:
            return
        undone = self._undoing
        self._end()
        if undone:
            self._banner("The restore was undone", f"The backup's chats are kept as {kept.database}")
        else:
            self._tell_restored(kept)

    def _undo_restore(self, kept: Restored) -> None:
        def undo() -> None:
            self._undoing = True
            self._desk.undo_restore(kept)

        self._begin("Undoing the restore", undo)

    @Slot(Notice)
    def _on_failed(self, notice: Notice) -> None:
        if self._own:
            self._end()
            self._desk.forget_restore()
            self._say(notice.title, notice.detail)

    @Slot()
    def _on_cancelled(self) -> None:
        self._end()

    @Slot(ImportReport)
    def _tell_imported(self, report: ImportReport) -> None:
        """Say what the terminal has imported."""
        if report.chats:
            self._banner(f"{import_title(report)} from the terminal", "", "Undo", lambda: self._undo_import(report))

    @Slot(Restored)
    def _tell_restored(self, kept: Restored) -> None:
        if kept.database:
            words = f"What was here before is kept as {kept.database}"
            self._banner("The backup was restored", words, "Undo", lambda: self._undo_restore(kept))
        else:
            self._banner("The backup was restored")

    def _end(self) -> None:
        if self._own:
            self._own = self._undoing = False
            self.sheet.finish()

    def _say(self, title: str, text: str) -> None:
        page: Page = MessagePage(self._theme, title, text, self.sheet.finish)
        self.sheet.show_page(page)

    def _banner(self, title: str, text: str = "", action: str = "", act: Callable[[], object] | None = None) -> None:
        banner = Banner(self._theme, title, text, "check", "success")
        if act is not None:
            banner.add_action(action, act)
        self._window.conversation.banners.show_banner(banner, _KEY)
