"""The pages of the sheet: export, import, the report of an import, restore, and messages."""

from collections.abc import Callable
from datetime import datetime
from html import escape

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QGridLayout, QRadioButton, QWidget

from rdchat.chat.backup.backup_file import BackupFacts
from rdchat.chat.transfer.reports import ImportReport
from rdchat.ui.import_export.sheet import Page
from rdchat.ui.look.formatting import counted, file_size
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import row
from rdchat.ui.look.plain_text import OfflineBrowser
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme

_SOURCES = (
    ("ChatGPT", "The file conversations.json, or the zip archive it comes in"),
    ("LM Studio", "The folder .lmstudio/conversations in your home folder, or files of it"),
    ("Jan", "The folder threads in Jan's data folder, or one thread in it"),
    ("rdchat", "A JSON file that was exported here, or a database of chats"),
)
_MOST_LISTED = 1000
_LIST_HEIGHT = 180


class ExportPage(Page):
    """Asks for the format of an export.

    Args:
        theme: The appearance to follow.
        title: The chat's title; None for all chats.
        go_on: Takes the kind (`json`, `markdown` or `folder`), and whether to include details.
        cancel: Closes the page.
    """

    def __init__(
        self, theme: Theme, title: str | None, go_on: Callable[[str, bool], object], cancel: Callable[[], object]
    ) -> None:
        short = title if title is None or len(title) <= 40 else f"{title[:39]}…"
        super().__init__(theme, "Export all chats" if short is None else f"Export “{short}”", escape=cancel)
        self._go_on, self._all = go_on, title is None
        words = "Markdown, a folder with one file for each chat" if self._all else "Markdown, for reading"
        self.markdown = QRadioButton(words)
        self.details = QCheckBox("With settings and statistics")
        self.json = QRadioButton("JSON, complete: rdchat can import it again")
        self.markdown.setChecked(True)
        self.markdown.toggled.connect(self.details.setEnabled)
        self.add(self.markdown, gap=SMALL)
        inset = QWidget()
        row(self.details, within=inset, margins=(MEDIUM + SMALL, 0, 0, 0))
        self.add(inset)
        self.add(self.json)
        self.add_button("Cancel", cancel)
        self.add_button("Export…", self._choose, default=True)

    def _choose(self) -> None:
        kind = "json" if self.json.isChecked() else "folder" if self._all else "markdown"
        self._go_on(kind, self.details.isChecked() and kind != "json")


class ImportPage(Page):
    """Lists what can be imported, and asks for files or a folder."""

    def __init__(
        self,
        theme: Theme,
        choose_files: Callable[[], object],
        choose_folder: Callable[[], object],
        cancel: Callable[[], object],
    ) -> None:
        words = "They are added to your chats, and one click undoes it."
        super().__init__(theme, "Import chats", words, escape=cancel)
        table = QWidget()
        grid = QGridLayout(table)
        grid.setContentsMargins(0, SMALL, 0, 0)
        grid.setHorizontalSpacing(MEDIUM)
        grid.setVerticalSpacing(SMALL)
        grid.setColumnStretch(1, 1)
        for line, (name, about) in enumerate(_SOURCES):
            grid.addWidget(ThemedLabel(theme, name, bold=True), line, 0, Qt.AlignmentFlag.AlignTop)
            grid.addWidget(ThemedLabel(theme, about, wraps=True), line, 1)
        self.add(table)
        self.add_button("Choose folder…", choose_folder, left=True)
        self.add_button("Cancel", cancel)
        self.add_button("Choose files…", choose_files, default=True)


class ReportPage(Page):
    """Reports an import, and offers to undo it."""

    def __init__(
        self, theme: Theme, report: ImportReport, undo: Callable[[], object], done: Callable[[], object]
    ) -> None:
        super().__init__(theme, import_title(report), import_words(report), escape=done)
        self._theme = theme
        if report.not_taken or report.without:
            self.add(self._list(report), gap=SMALL)
        if report.chats:
            self.add_button("Undo import", undo, left=True)
        self.add_button("Done", done, default=True)

    def _list(self, report: ImportReport) -> OfflineBrowser:
        lines = [(each.title, each.reason) for each in report.not_taken]
        lines += [(each.title, f"Without {each.parts}") for each in report.without]
        muted = self._theme.colors.muted.name()
        parts = [
            f'<p style="margin: 0 0 6px 0"><b>{escape(title)}</b><br>'
            f'<span style="color: {muted}">{escape(words)}</span></p>'
            for title, words in lines[:_MOST_LISTED]
        ]
        if len(lines) > _MOST_LISTED:
            parts.append(f"<p>and {len(lines) - _MOST_LISTED:,} more</p>")
        listed = OfflineBrowser()
        listed.setAccessibleName("What was not taken")
        listed.setOpenLinks(False)
        listed.setTabChangesFocus(True)
        listed.document().setDocumentMargin(SMALL)
        listed.setHtml("".join(parts))
        listed.document().setTextWidth(self.width())
        listed.setFixedHeight(min(_LIST_HEIGHT, round(listed.document().size().height()) + 2))
        return listed


class MessagePage(Page):
    """Says that something failed."""

    def __init__(self, theme: Theme, title: str, text: str, done: Callable[[], object]) -> None:
        super().__init__(theme, title.rstrip("."), text, escape=done)
        self.add_button("OK", done, default=True)


class RestorePage(Page):
    """Asks whether a backup replaces the present chats."""

    def __init__(
        self, theme: Theme, facts: BackupFacts, restore: Callable[[], object], cancel: Callable[[], object]
    ) -> None:
        super().__init__(theme, "Restore this backup?", backup_words(facts), escape=cancel)
        what = "all chats and settings" if facts.settings else "all chats"
        after = f"It replaces {what} you have now. These are kept in rdchat's folder, and you can undo this."
        self.add(ThemedLabel(theme, after, "muted", wraps=True))
        self.add_button("Cancel", cancel)
        self.add_button("Restore", restore, default=True)


def import_title(report: ImportReport) -> str:
    """Return the result of an import in a few words."""
    if report.chats:
        return f"{counted(len(report.chats), 'chat')} imported"
    return "Nothing was imported" if not report.already_here else "Nothing new to import"


def import_words(report: ImportReport) -> str:
    """Return the result of an import in sentences."""
    *others, last = dict.fromkeys(file.source for file in report.files if file.chats) or [""]
    sources = f"{', '.join(others)} and {last}" if others else last
    parts = []
    if report.chats:
        parts.append(f"{counted(report.messages, 'message')} from {sources}.")
    if report.already_here:
        are = "is" if report.already_here == 1 else "are"
        parts.append(f"{counted(report.already_here, 'chat')} {are} here already.")
    if report.not_taken:
        parts.append(f"{counted(len(report.not_taken), 'chat or file', 'chats or files')} could not be taken.")
    if report.without:
        parts.append(f"{counted(len(report.without), 'chat')} came without some parts.")
    if report.cancelled:
        parts.append("You stopped it; the chats of the unfinished file were removed.")
    return " ".join(parts)


def backup_words(facts: BackupFacts) -> str:
    """Return `It has 12 chats with 340 messages and the settings, of 3 November 2026 at 14:05 (1.2 MB).`."""
    has = f"{counted(facts.chats, 'chat')} with {counted(facts.messages, 'message')}"
    if facts.settings:
        has += " and the settings"
    if facts.made_at is not None:
        date = datetime.fromtimestamp(facts.made_at)
        has += f", of {date.day} {date:%B %Y} at {date:%H:%M}"
    return f"It has {has} ({file_size(facts.bytes)})."
