"""What is being downloaded, and what was left unfinished."""

from PySide6.QtCore import Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QScrollArea, QStackedWidget, QVBoxLayout, QWidget

from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.formatting import file_size
from rdchat.ui.look.labels import Ground, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.scrolling import scrolled
from rdchat.ui.look.theme import LARGE, MEDIUM, TIGHT, Theme
from rdchat.ui.look.throttle import Throttle
from rdchat.ui.models.downloads.empty_view import EmptyView
from rdchat.ui.models.downloads.row import DownloadRow
from rdchat.ui.models.downloads.words import totals_words
from rdchat.ui.models.token_dialog import TokenDialog

_ROWS_AT_ONCE = 5  # are built, before anything else has its turn: each takes some milliseconds
_QUITTING = "They go on while you chat, also with this window closed. Quitting pauses them until the next start."


class DownloadsPage(QWidget):
    """A row for each download, and the disk that takes them below.

    Args:
        desk: What the window works with.
        theme: The appearance to follow.
    """

    discover_requested = Signal()

    def __init__(self, desk: ModelsDesk, theme: Theme) -> None:
        super().__init__()
        self._desk, self._theme = desk, theme
        self._rows: dict[str, DownloadRow] = {}
        self._stale: dict[str, Download] = {}
        self._dialog: TokenDialog | None = None
        self.empty = EmptyView(theme)
        self.empty.discover_requested.connect(self.discover_requested)
        self._list, self._column = self._build_list()
        self.pages = QStackedWidget()
        self.pages.addWidget(self.empty)
        self.pages.addWidget(self._list)
        column((self.pages, 1), Separator(theme), self._build_footer(), within=self, spacing=0)
        self._throttle = Throttle(self)
        self._throttle.due.connect(self._refresh)
        downloads = desk.downloads
        downloads.progressed.connect(self._note)
        downloads.removed.connect(self._remove)
        downloads.disk_looked.connect(self._show_totals)
        self._stale = {progress.id: progress for progress in downloads.all()}

    @property
    def rows(self) -> tuple[DownloadRow, ...]:
        """The downloads that are shown, in the order in which they were begun."""
        return tuple(self._rows.values())

    def ask_for_token(self) -> None:
        """Show the token in use, and let another one be given."""
        if self._dialog is None:
            self._dialog = TokenDialog(self._desk.account, self._theme, self)
        self._dialog.open()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._desk.downloads.watch_disk(True)
        self._refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._desk.downloads.watch_disk(False)

    def _build_list(self) -> tuple[QScrollArea, QVBoxLayout]:
        ground = Ground(self._theme, "surface")
        column_layout = column(None, within=ground, spacing=0)
        return scrolled(ground), column_layout

    def _build_footer(self) -> QHBoxLayout:
        self.totals = ThemedLabel(self._theme, "", tabular=True)
        self.disk = ThemedLabel(self._theme, "", "muted", -1, tabular=True, wraps=True)
        self.token = QPushButton("Token…")
        set_tip(self.token, "The Hugging Face token that is in use, for gated and private models")
        self.token.setAutoDefault(False)
        self.token.clicked.connect(self.ask_for_token)
        self.clear = QPushButton("Clear finished")
        set_tip(self.clear, "Take finished downloads off this list; the models stay")
        self.clear.setAutoDefault(False)
        self.clear.clicked.connect(self._desk.downloads.clear_finished)
        said = column(self.totals, self.disk, spacing=TIGHT)
        return row((said, 1), self.clear, self.token, margins=(LARGE, MEDIUM, LARGE, MEDIUM))

    def _note(self, progress: Download) -> None:
        self._stale[progress.id] = progress
        if self.isVisible():
            self._throttle.note()

    def _refresh(self) -> None:
        stale, self._stale = self._stale, {}
        most = len(self._rows) + _ROWS_AT_ONCE
        for progress in stale.values():
            if (row := self._rows.get(progress.id)) is not None:
                row.show_progress(progress)
            elif len(self._rows) < most:
                self._add(progress)
            else:
                self._stale[progress.id] = progress
        self._show_totals()
        if self._stale:
            self._throttle.note()

    def _add(self, progress: Download) -> None:
        row = DownloadRow(progress, self._desk.downloads, self._desk.slot, self._theme)
        row.token_requested.connect(self.ask_for_token)
        self._rows[progress.id] = row
        self._column.insertWidget(self._column.count() - 1, row)  # before the stretch

    def _remove(self, download: str) -> None:
        self._stale.pop(download, None)
        row = self._rows.pop(download, None)
        if row is not None:
            focused = row.isAncestorOf(self.focusWidget()) if self.focusWidget() else False
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
            if focused:
                (self.rows[0].other if self._rows else self.empty.discover).setFocus()
        self._show_totals()

    def _show_totals(self) -> None:
        downloads = self._desk.downloads
        totals, free = downloads.totals(), downloads.free_bytes
        self.pages.setCurrentWidget(self._list if self._rows else self.empty)
        said = totals_words(totals)
        self.totals.say(said)
        disk = f"{file_size(free)} free on the disk that takes models." if free is not None else ""
        if lacking := downloads.lacking_bytes:
            disk = f"{disk} {file_size(lacking)} more are needed for what is being downloaded."
        elif said:
            disk = f"{disk} {_QUITTING}".strip()
        self.disk.setText(disk)
        self.disk.set_color("danger" if lacking else "muted")
        states = {progress.state for progress in downloads.all()}
        self.clear.setVisible(DownloadState.FINISHED in states)
