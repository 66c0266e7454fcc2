"""The Downloads page: a row for each download, and the free space of the disk."""

from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QStackedWidget, QVBoxLayout, QWidget

from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.formatting import file_size
from rdchat.ui.look.labels import Ground, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row, scrolled
from rdchat.ui.look.theme import LARGE, MEDIUM, TIGHT, Theme
from rdchat.ui.look.throttle import Throttle
from rdchat.ui.models.downloads.row import DownloadRow
from rdchat.ui.models.downloads.words import totals_words
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.notice_view import NoticeView

_EMPTY = "Models that you download appear here. They go on while you chat, and after a restart."
_ROWS_AT_ONCE = 5  # are built, before anything else has its turn: each takes some milliseconds
_QUITTING = "They go on while you chat, also with this window closed. Quitting pauses them until the next start."


class DownloadsPage(QWidget):
    """A row for each download, and the disk that takes them below.

    Args:
        desk: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._desk, self._links, self._theme = desk, links, theme
        self._rows: dict[str, DownloadRow] = {}
        self._stale: dict[str, Download] = {}
        self.empty = NoticeView(theme, "download")
        self.empty.show_words("No downloads", _EMPTY, "Find a model")
        self.empty.action_requested.connect(links.discover_requested)
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
        self.token = push_button("Token…", "The Hugging Face token that is in use, for gated and private models")
        self.token.clicked.connect(self._links.token_requested)
        self.clear = push_button("Clear finished", "Take finished downloads off this list; the models stay")
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
        row = DownloadRow(progress, self._desk.downloads, self._desk.slot, self._links, self._theme)
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
                (self.rows[0].other if self._rows else self.empty.action).setFocus()
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
