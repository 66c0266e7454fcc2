"""The sheets of the File menu's exports, imports, backups and restores: questions, progress, reports and errors.

`Transfers` does the work, in a child process; `ImportExport` asks, starts one task at a time, and shows how it ends.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QCheckBox, QFormLayout, QRadioButton, QWidget

from rdchat.chat.conversation import Conversation
from rdchat.chat.settings import Consents
from rdchat.chat.transfer.backups import BackupFacts, Restored
from rdchat.chat.transfer.chat_import import ExportReport, ImportReport
from rdchat.chat.transfer.exporting import file_name
from rdchat.chat.transfer.transfer_process import OnEnd, OnProgress
from rdchat.errors import RdchatError, StorageError
from rdchat.inference.api import LoadProgress
from rdchat.services.window.chat_controller import NOT_KEPT, ChatController
from rdchat.services.window.transfers import Transfers
from rdchat.ui.style import (
    MEDIUM,
    SMALL,
    WIDTH,
    Action,
    Answer,
    CodeField,
    ElidedLabel,
    FileMode,
    Sheet,
    Theme,
    ThemedLabel,
    ThinBar,
    ask_to_open,
    ask_to_save,
    cut,
    form_layout,
    listed,
    nothing,
    row,
    show_folder,
    show_share,
    single_shot,
)
from rdchat.ui.transcript.message_parts import PromptField
from rdchat.ui.window.main_window import MainWindow
from rdchat.wording import counted, size_text
from rdchat.work import CancelledError

# Shorter work shows no progress.
_WAIT_MS = 400
# Programs whose chats can be imported, and what to choose.
_SOURCES = (
    (
        "ChatGPT, Claude, DeepSeek",
        "conversations.json, or the zip file it comes in; Claude's projects and memories, too",
    ),
    ("Open WebUI", "The JSON file that its export of all chats writes"),
    ("LibreChat", "The JSON file that its export of a chat writes"),
    ("LM Studio", "The folder .lmstudio/conversations in your home folder, or files from it"),
    ("Jan", "The folder threads in Jan's data folder, or one thread from it"),
    ("rdchat", "A JSON export, or a database of chats"),
)
_LONGEST_TITLE = 40
_MAX_LISTED = 1000
_LIST_LINES = 10
# The banners of the last result, and of what came in off with a backup.
_KEY = "transfer"
_OFF = "Permissions of the backup"
_OFF_NOTE = "They start programs, connect to computers or allow something. Turn them on only if the backup is your own."
# How the sheet shows an entry of `Consents`.
OFF_TEXTS = {
    "tool_servers": "• Tools of {0.name}: {0.source_text}",
    "tool_approvals": "• Tool that runs without a question: {0.tool}",
    "remote_servers": "• Models of {0.name}: {0.address} {0.fingerprint}",
    "hosts": "• Mac that runs models with this one: {0.ssh}, {0.ips}",
    "server_hosts": "• Name by which programs call this computer: {0}",
    "server_at_start": "• The server starts with rdchat",
    "server_on_network": "• Other computers can reach the server",
    "server_loads_models": "• Programs can load other models",
    "looks_for_updates": "• Look for new versions once a day",
    "notes_everywhere": "• All chats outside of projects have notes",
    "quick_shortcut": "• Shortcut over other programs: {0}",
    "wired_memory": "• macOS may not page out the weights of models",
}
# A longer list, in characters, is too long to be read and agreed to.
_MAX_OFF = 100_000
_CHAT_FILES = ("Chats (*.json *.jsonl *.zip *.db)", "All files (*)")
# The ending of the file and the name filters, by the kind of an export.
_EXPORTS: dict[str, tuple[str, list[str]]] = {
    "json": (".json", ["JSON (*.json)"]),
    "markdown": (".md", ["Markdown (*.md)"]),
    "folder": ("", []),
}


class ProgressSheet(Sheet):
    """Shows the progress of work, which can be cancelled; it opens only if the work takes longer than `_WAIT_MS`.

    Args:
        window: The sheet stands in front of it.
        theme: The appearance to follow.
        title: What is done.
        cancel: Asks the work to stop.
        runs: Returns whether the work runs; without work the sheet does not open, and Cancel closes it.
    """

    def __init__(self, window: QWidget, theme: Theme, title: str, cancel: Action, runs: Callable[[], bool]) -> None:
        self._runs = runs
        self.detail = ElidedLabel(theme, "Starting…", "muted")
        self.bar = ThinBar(title)
        super().__init__(window, theme, title, "", [("Cancel", cancel)], parts=[self.bar, self.detail])
        self.buttons[0].setDefault(False)
        show_share(self.bar, None)
        self._wait = single_shot(self, _WAIT_MS, self.open)
        self._wait.start()

    def open(self) -> None:
        """Open the sheet if its work runs."""
        if self._runs():
            super().open()
        # The work may end while the sheet opens.
        if not self._runs():
            self.done(0)

    def done(self, result: int) -> None:
        """Close the sheet for good, also one that did not open yet."""
        self._wait.stop()
        super().done(result)

    def show_progress(self, progress: LoadProgress) -> None:
        """Show how far the work is, unless it is being cancelled: `answer` disables the button then."""
        if self.buttons[0].isEnabled():
            self.detail.setText(f"{progress.stage}…")
            show_share(self.bar, progress.fraction)

    def answer(self, act: Action) -> None:
        """Cancel the work; the sheet stays until that is done."""
        if not self._runs():
            self.done(0)
            return
        self.buttons[0].setEnabled(False)
        show_share(self.bar, None)
        self.detail.setText("Cancelling…")
        act()


def export_sheet(
    window: QWidget,
    theme: Theme,
    title: str | None,
    go_on: Callable[[str, bool, bool], object],
    *,
    in_project: bool = False,
) -> Sheet:
    """Ask for the format of an export.

    Args:
        window: The sheet stands in front of it.
        theme: The appearance to follow.
        title: The chat's title; None for all chats.
        go_on: Takes the kind (`json`, `markdown` or `folder`), and whether to include details, and a project's files.
        in_project: Whether the chat is in a project.
    """
    folder = "Markdown: a folder with one file per chat"
    markdown = QRadioButton(folder if title is None else "Markdown: for reading")
    details = QCheckBox("Include settings and statistics")
    json = QRadioButton("JSON: complete, and rdchat can import it")
    markdown.setChecked(True)
    markdown.toggled.connect(details.setEnabled)

    shares = QCheckBox("Include the project's files and notes: otherwise, files are only named")

    def choose() -> None:
        kind = "json" if json.isChecked() else "folder" if title is None else "markdown"
        go_on(kind, details.isChecked() and kind != "json", shares.isChecked())

    heading = "Export All Chats" if title is None else f"Export “{cut(title, _LONGEST_TITLE)}”"
    parts = (SMALL, markdown, row(MEDIUM + SMALL, details, spacing=0), json, *((SMALL, shares) if in_project else ()))
    return Sheet(window, theme, heading, "", [("Cancel", nothing), ("Export…", choose)], parts=parts)


def report_sheet(window: QWidget, theme: Theme, report: ImportReport, undo: Action) -> Sheet:
    """Report an import, and offer to undo it."""
    lines = [each.gain for each in report.folders]
    lines += [f"{each.title}\n{each.reason}" for each in report.not_taken]
    lines += [f"{each.title}\nWithout {each.parts}" for each in report.without]
    field = PromptField(theme, "Details", (1, _LIST_LINES))
    field.setReadOnly(True)
    field.setPlainText(listed(lines, _MAX_LISTED, "\n\n"))
    title = _import_title(report)
    parts = (SMALL, field) if lines else ()
    left = ("Undo Import", undo) if report.chats or report.folders or report.notes else None
    sheet = Sheet(window, theme, title, import_text(report), [("Done", nothing)], parts=parts, left=left)
    # So that Return presses it: in the list of what was left out, the key would do nothing.
    sheet.buttons[-1].setFocus()
    # Its text is laid out once it is shown.
    field.height_changed.connect(sheet.fit)
    return sheet


def _import_title(report: ImportReport) -> str:
    """Return the result of an import in a few words."""
    # Without a chat, only projects make folders.
    counts = {"chat": len(report.chats), "project": len(report.folders), "note": len(report.notes)}
    for name, number in counts.items():
        if number:
            return f"{counted(number, name)} imported"
    return "Nothing was imported" if not report.already_here else "Nothing new to import"


def import_text(report: ImportReport) -> str:
    """Return the result of an import in sentences."""
    *others, last = dict.fromkeys(file.source for file in report.files if file.chats) or [""]
    sources = f"{', '.join(others)} and {last}" if others else last
    already = f"{counted(report.already_here, 'chat')} {'was' if report.already_here == 1 else 'were'} already here."
    sentences = (
        (report.chats, f"{counted(report.messages, 'message')} from {sources}.{report.archived_text}"),
        (report.notes, f"{counted(len(report.notes), 'note')}, not used until you keep them in Settings > Chats."),
        (report.already_here, already),
        (report.not_taken, f"{counted(len(report.not_taken), 'item')} could not be imported."),
        (report.without, "Some parts were left out."),
        (report.cancelled, "You cancelled the import; chats from the unfinished file were removed."),
    )
    return " ".join(sentence for applies, sentence in sentences if applies)


def backup_text(facts: BackupFacts) -> str:
    """Return `12 chats with 340 messages and the settings, from 3 November 2026 at 14:05 (1.20 MB)`."""
    has = f"{counted(facts.chats, 'chat')} with {counted(facts.messages, 'message')}"
    if facts.settings:
        has += " and the settings"
    if facts.made_at is not None:
        date = datetime.fromtimestamp(facts.made_at)
        has += f", from {date.day} {date:%B %Y} at {date:%H:%M}"
    return f"{has} ({size_text(facts.bytes)})"


class ImportExport(QObject):
    """Asks in sheets, shows the progress of a task in a sheet, and its result in a banner.

    Args:
        window: Has the actions, and shows the sheets and the banners.
        controller: The conversations.
        transfers: Does the work.
        theme: The appearance to follow.
    """

    def __init__(self, window: MainWindow, controller: ChatController, transfers: Transfers, theme: Theme) -> None:
        super().__init__(window)
        self._window = window
        self._controller = controller
        self._transfers = transfers
        self._theme = theme
        actions = window.actions_
        actions.export_chat.triggered.connect(self._ask_export)
        window.sidebar.row_actions.export = self._show_export
        actions.export_all.triggered.connect(lambda: self._show_export(None))
        actions.import_chats.triggered.connect(self._ask_import)
        actions.back_up.triggered.connect(self._ask_backup)
        actions.restore.triggered.connect(self._ask_restore)
        # The result is shown until the person sends a message.
        controller.chat.message_added.connect(lambda _message: window.conversation.banners.close_banner(_KEY))
        self._offer_off()

    # Questions

    def _ask_export(self) -> None:
        chat = self._controller.chat.stored_conversation
        if chat is None:
            self._controller.chat_notice_raised.emit(NOT_KEPT)
        else:
            self._show_export(chat)

    def _show_export(self, chat: Conversation | None) -> None:
        """Ask how to export a chat, or all."""
        title = chat.title if chat else None
        chats = [chat.id] if chat else None
        in_project = chat is not None and self._controller.replies.order.project_folder(chat) is not None

        def choose(kind: str, details: bool, shares: bool) -> None:
            ending, filters = _EXPORTS[kind]
            name = f"rdchat chats {_today()}{ending}" if title is None else file_name(title, ending)
            ask_to_save(self._window, "Export", name, filters, partial(write, kind, details, shares), accept="Export")

        def write(kind: str, details: bool, shares: bool, path: str) -> None:
            start = partial(self._transfers.export, chats, Path(path), kind, details=details, shares=shares)
            self._begin("Exporting", start, self._report_export)

        export_sheet(self._window, self._theme, title, choose, in_project=in_project).open()

    def _ask_import(self) -> None:
        """List the programs whose chats can be imported, and ask for files or a folder."""
        form = form_layout(spacing=(MEDIUM, SMALL), align=Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        for name, text in _SOURCES:
            form.addRow(ThemedLabel(self._theme, name, bold=True), ThemedLabel(self._theme, text, wraps=True))
        files = partial(self._choose_import, FileMode.ExistingFiles, _CHAT_FILES)
        left = "Choose Folder…", partial(self._choose_import, FileMode.Directory, ())
        text = "Imported chats are added to yours. You can undo this."
        answers: list[Answer] = [("Cancel", nothing), ("Choose Files…", files)]
        Sheet(self._window, self._theme, "Import Chats", text, answers, parts=(SMALL, form), left=left).open()

    def _choose_import(self, mode: FileMode, filters: Sequence[str]) -> None:
        def read(names: list[str]) -> None:
            start = partial(self._transfers.import_files, [Path(name) for name in names])
            self._begin("Importing chats", start, self._report_import)

        ask_to_open(self._window, "Import Chats", mode, read, filters, accept="Import")

    def _ask_backup(self) -> None:
        def write(path: str) -> None:
            self._begin("Backing up", partial(self._transfers.back_up, Path(path)), self._report_backup)

        name = f"rdchat backup {_today()}.zip"
        ask_to_save(self._window, "Back Up", name, ["Backups (*.zip)"], write, accept="Back Up")

    def _ask_restore(self) -> None:
        def check(paths: list[str]) -> None:
            start = partial(self._transfers.prepare_restore, Path(paths[0]), None)
            self._begin("Checking the backup", start, self._confirm_restore)

        filters = ["Backups (*.zip *.db)", "All files (*)"]
        ask_to_open(self._window, "Restore a Backup", FileMode.ExistingFile, check, filters)

    def _confirm_restore(self, facts: BackupFacts) -> None:
        """Ask whether a backup replaces the present chats."""
        restore = partial(self._restore, "The backup was restored", "Your earlier chats are kept as", can_undo=True)
        what = "all chats and settings" if facts.settings else "all chats"
        after = f"This replaces {what} you have now. They are kept in rdchat's folder, so you can undo this."
        if facts.unconfirmed:
            after += f" {_OFF} that are off until you confirm them: {facts.unconfirmed}."
        parts = [ThemedLabel(self._theme, after, "muted", wraps=True)]
        answers: list[Answer] = [("Cancel", self._transfers.forget_restore), ("Restore", restore)]
        title = "Restore this backup?"
        text = backup_text(facts)
        Sheet(self._window, self._theme, title, text, answers, parts=parts).open()

    # Tasks

    def _begin(self, title: str, start: Callable[[OnProgress, OnEnd], object], report: Callable[[Any], object]) -> None:
        """Start a task and show its progress; `report` takes its result. While another task runs, nothing happens."""
        if self._transfers.busy:
            return
        self._window.conversation.banners.close_banner(_KEY)
        runs = lambda: self._transfers.busy  # noqa: E731
        progress = ProgressSheet(self._window, self._theme, title, self._transfers.cancel_task, runs)

        def end(outcome: Any) -> None:
            progress.done(0)
            if not isinstance(outcome, RdchatError):
                report(outcome)
            elif not isinstance(outcome, CancelledError):
                self._fail(outcome)

        start(progress.show_progress, end)

    def _restore(self, title: str, introduction: str, *, can_undo: bool) -> None:
        """Replace the store by the prepared backup.

        Args:
            title: The result, in the banner.
            introduction: Comes before the path of the chats so far.
            can_undo: Whether the banner has a button that undoes it.
        """
        try:
            restored = self._transfers.restore_backup()
        except StorageError as error:
            self._fail(error)
            return
        text = f"{introduction} {restored.database}" if restored.database else ""
        undo: list[Answer] = [("Undo", partial(self._undo_restore, restored))] if can_undo and text else []
        self._show(title, text, *undo)
        self._offer_off()

    def _offer_off(self) -> None:
        """Say that something came in off with a backup, also at each start until the person has decided."""
        self._window.conversation.banners.close_banner(_OFF)
        if count := len(self._controller.settings.values.unconfirmed.entries):
            title = f"{_OFF} that are off until you confirm them: {count}"
            self._window.conversation.notices.show_banner(_OFF, title, actions=[("Review…", self._review_off)])

    def _review_off(self) -> None:
        """Show what came in off with a backup, and switch all of it on if the person agrees."""
        settings = self._controller.settings
        text = "\n\n".join(OFF_TEXTS[name].format(item) for name, item in settings.values.unconfirmed.entries)
        field = CodeField(self._theme, _OFF, _LIST_LINES)
        field.show_code(text[:_MAX_OFF])
        field.fit(WIDTH)
        keep = partial(settings.change_values, unconfirmed=Consents())
        confirm = lambda: settings.change(settings.values.with_consent())  # noqa: E731
        answers = ("Keep Off", keep), ("Turn All On", confirm)
        sheet = Sheet(self._window, self._theme, _OFF, _OFF_NOTE, answers, parts=[field])
        sheet.buttons[0].setDefault(True)
        sheet.buttons[-1].setEnabled(len(text) <= _MAX_OFF)
        sheet.open()

    def _fail(self, error: RdchatError) -> None:
        """Show an error; a backup that was prepared, if any, is deleted."""
        self._transfers.forget_restore()
        title = error.message.rstrip(".")
        Sheet(self._window, self._theme, title, error.hint, [("OK", nothing)]).open()

    # Results

    def _report_export(self, report: ExportReport) -> None:
        path = Path(report.path)
        show = partial(show_folder, path.parent)
        self._show(f"Exported {counted(report.chats, 'chat')}", f"To {path}", ("Show", show))

    def _report_import(self, report: ImportReport) -> None:
        report_sheet(self._window, self._theme, report, partial(self._undo_import, report)).open()

    def _undo_import(self, report: ImportReport) -> None:
        start = partial(self._transfers.undo_import, report)
        self._begin("Undoing the import", start, lambda _done: self._show("The import was undone", ""))

    def _report_backup(self, facts: BackupFacts) -> None:
        path = Path(facts.path)
        what = f"{counted(facts.chats, 'chat')}, {size_text(facts.bytes)}: {path}"
        self._show("Backed up", what, ("Show", partial(show_folder, path.parent)))

    def _undo_restore(self, restored: Restored) -> None:
        """Prepare the chats from before the restore as a backup is prepared, then put them in place by `_restore`."""
        undo = partial(self._restore, "The restore was undone", "The backup's chats are kept as", can_undo=False)
        start = partial(self._transfers.undo_restore, restored)
        self._begin("Undoing the restore", start, lambda _facts: undo())

    def _show(self, title: str, text: str, *actions: Answer) -> None:
        self._window.conversation.notices.show_banner(_KEY, title, text, "check", "success", actions=actions)


def _today() -> str:
    return f"{datetime.now().astimezone():%Y-%m-%d}"
