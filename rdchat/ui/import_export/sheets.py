"""The sheets of exports, imports and backups: questions, progress, reports and errors."""

from collections.abc import Callable, Sequence
from datetime import datetime

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QCheckBox, QDialog, QFormLayout, QPushButton, QRadioButton, QWidget

from rdchat.chat.transfer.backups import BackupFacts
from rdchat.chat.transfer.reports import ImportReport, Progress
from rdchat.ui.style.buttons import Action, dialog_buttons, push_button
from rdchat.ui.style.formatting import counted, file_size
from rdchat.ui.style.labels import ElidedLabel, ThemedLabel, cut
from rdchat.ui.style.layouts import Part, column, form_layout, row, show_share, text_field, thin_bar
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, Theme

type Answer = tuple[str, Action]

_WIDTH = 440 + 2 * LARGE
# Shorter work shows no progress.
_WAIT_MS = 400
_SOURCES = (
    ("ChatGPT", "conversations.json, or the zip file it comes in"),
    ("LM Studio", "The folder .lmstudio/conversations in your home folder, or files from it"),
    ("Jan", "The folder threads in Jan's data folder, or one thread from it"),
    ("rdchat", "A JSON export, or a database of chats"),
)
_LONGEST_TITLE = 40
_MAX_LISTED = 1000
_LIST_LINES = 10


def nothing() -> None:
    """Do nothing: the action of a button that only closes its sheet."""


class Sheet(QDialog):
    """A title, a text, widgets, and buttons that close the sheet. Escape presses the first button, Return the last.

    Args:
        window: The sheet stands in front of it.
        theme: The appearance to follow.
        title: The subject, or a question.
        text: Shown below the title.
        answers: The buttons.
        parts: Shown below the text.
        left: A button at the left end of the row.
    """

    def __init__(
        self,
        window: QWidget,
        theme: Theme,
        title: str,
        text: str,
        answers: Sequence[Answer],
        *,
        parts: Sequence[Part] = (),
        left: Answer | None = None,
    ) -> None:
        super().__init__(window, Qt.WindowType.Sheet)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.setAccessibleName(title)
        self.setAccessibleDescription(text)
        self.text, self._escape = text, answers[0][1]
        head: list[Part] = [ThemedLabel(theme, title, points_more=2, bold=True, wraps=True)]
        if text:
            head.append(ThemedLabel(theme, text, "muted", wraps=True, selectable=True))
        self.buttons = [self._button(answer) for answer in answers]
        by_role = dict(zip(("reject", "accept"), self.buttons, strict=False))
        line = dialog_buttons(**({"action": self._button(left)} if left else {}), **by_role)
        self.buttons[-1].setDefault(True)
        layout = column(*head, *parts, MEDIUM, line, within=self, margins=LARGE)
        self.setFixedSize(_WIDTH, layout.totalHeightForWidth(_WIDTH))

    def _button(self, answer: Answer) -> QPushButton:
        return push_button(answer[0], "", lambda: self.answer(answer[1]))

    def answer(self, act: Action) -> None:
        """Close the sheet and act."""
        self.done(0)
        act()

    def reject(self) -> None:
        self.answer(self._escape)


class ProgressSheet(Sheet):
    """Shows the progress of work, which can be cancelled; it opens only if the work takes a moment."""

    def __init__(self, window: QWidget, theme: Theme, title: str, cancel: Action) -> None:
        self.detail = ElidedLabel(theme, "Starting…", "muted")
        self.bar = thin_bar(title)
        super().__init__(window, theme, title, "", [("Cancel", cancel)], parts=[self.bar, self.detail])
        self.buttons[0].setDefault(False)
        show_share(self.bar, None)
        QTimer.singleShot(_WAIT_MS, self, self.open)

    def show_progress(self, progress: Progress) -> None:
        """Show how far the work is."""
        if self.buttons[0].isEnabled():
            self.detail.setText(f"{progress.text}…")
            show_share(self.bar, progress.fraction)

    def answer(self, act: Action) -> None:
        """Cancel the work; the sheet stays until that is done."""
        self.buttons[0].setEnabled(False)
        show_share(self.bar, None)
        self.detail.setText("Cancelling…")
        act()


def export_sheet(window: QWidget, theme: Theme, title: str | None, go_on: Callable[[str, bool], object]) -> Sheet:
    """Ask for the format of an export.

    Args:
        window: The sheet stands in front of it.
        theme: The appearance to follow.
        title: The chat's title; None for all chats.
        go_on: Takes the kind (`json`, `markdown` or `folder`), and whether to include details.
    """
    folder = "Markdown: a folder with one file per chat"
    markdown = QRadioButton(folder if title is None else "Markdown: for reading")
    details = QCheckBox("Include settings and statistics")
    json = QRadioButton("JSON: complete, and rdchat can import it")
    markdown.setChecked(True)
    markdown.toggled.connect(details.setEnabled)

    def choose() -> None:
        kind = "json" if json.isChecked() else "folder" if title is None else "markdown"
        go_on(kind, details.isChecked() and kind != "json")

    heading = "Export all chats" if title is None else f"Export “{cut(title, _LONGEST_TITLE)}”"
    parts = (SMALL, markdown, row(MEDIUM + SMALL, details, spacing=0), json)
    return Sheet(window, theme, heading, "", [("Cancel", nothing), ("Export…", choose)], parts=parts)


def import_sheet(window: QWidget, theme: Theme, choose_files: Action, choose_folder: Action) -> Sheet:
    """List the programs whose chats can be imported, and ask for files or a folder."""
    form = form_layout(spacing=(MEDIUM, SMALL), align=Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
    form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
    for name, text in _SOURCES:
        form.addRow(ThemedLabel(theme, name, bold=True), ThemedLabel(theme, text, wraps=True))
    text = "Imported chats are added to yours. You can undo this."
    answers, folder = [("Cancel", nothing), ("Choose Files…", choose_files)], ("Choose Folder…", choose_folder)
    return Sheet(window, theme, "Import Chats", text, answers, parts=(SMALL, form), left=folder)


def report_sheet(window: QWidget, theme: Theme, report: ImportReport, undo: Action) -> Sheet:
    """Report an import, and offer to undo it."""
    lines = [f"{each.title}\n{each.reason}" for each in report.not_taken]
    lines += [f"{each.title}\nWithout {each.parts}" for each in report.without]
    more = [f"and {len(lines) - _MAX_LISTED:,} more"] if len(lines) > _MAX_LISTED else []
    listed = text_field(max(min(3 * len(lines) - 1, _LIST_LINES), 1), "")
    listed.setReadOnly(True)
    listed.setAccessibleName("Not imported")
    listed.setPlainText("\n\n".join([*lines[:_MAX_LISTED], *more]))
    title, parts = _import_title(report), (SMALL, listed) if lines else ()
    left = ("Undo Import", undo) if report.chats else None
    return Sheet(window, theme, title, import_text(report), [("Done", nothing)], parts=parts, left=left)


def restore_sheet(window: QWidget, theme: Theme, facts: BackupFacts, restore: Action, cancel: Action) -> Sheet:
    """Ask whether a backup replaces the present chats."""
    what = "all chats and settings" if facts.settings else "all chats"
    after = f"This replaces {what} you have now. They are kept in rdchat's folder, so you can undo this."
    answers, parts = [("Cancel", cancel), ("Restore", restore)], [ThemedLabel(theme, after, "muted", wraps=True)]
    return Sheet(window, theme, "Restore this backup?", backup_text(facts), answers, parts=parts)


def _import_title(report: ImportReport) -> str:
    """Return the result of an import in a few words."""
    if report.chats:
        return f"{counted(len(report.chats), 'chat')} imported"
    return "Nothing was imported" if not report.already_here else "Nothing new to import"


def import_text(report: ImportReport) -> str:
    """Return the result of an import in sentences."""
    *others, last = dict.fromkeys(file.source for file in report.files if file.chats) or [""]
    sources = f"{', '.join(others)} and {last}" if others else last
    parts = []
    if report.chats:
        parts.append(f"{counted(report.messages, 'message')} from {sources}.")
    if report.already_here:
        were = "was" if report.already_here == 1 else "were"
        parts.append(f"{counted(report.already_here, 'chat')} {were} already here.")
    if report.not_taken:
        parts.append(f"{counted(len(report.not_taken), 'chat or file', 'chats or files')} could not be imported.")
    if report.without:
        parts.append(f"{counted(len(report.without), 'chat')} imported without some parts.")
    if report.cancelled:
        parts.append("You cancelled the import; chats from the unfinished file were removed.")
    return " ".join(parts)


def backup_text(facts: BackupFacts) -> str:
    """Return `12 chats with 340 messages and the settings, from 3 November 2026 at 14:05 (1.20 MB)`."""
    has = f"{counted(facts.chats, 'chat')} with {counted(facts.messages, 'message')}"
    if facts.settings:
        has += " and the settings"
    if facts.made_at is not None:
        date = datetime.fromtimestamp(facts.made_at)
        has += f", from {date.day} {date:%B %Y} at {date:%H:%M}"
    return f"{has} ({file_size(facts.bytes)})"
