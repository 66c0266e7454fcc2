"""The Downloads page: a row for each download, and the free space of the disk."""

from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

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
from rdchat.ui.models.row_list import RowList

_EMPTY = "Models that you download appear here. They go on while you chat, and after a restart."
_QUITTING = "They go on while you chat, also with this window closed. Quitting pauses them until the next start."


class DownloadsPage(QWidget):
    """Shows the downloads, their sum, and the disk that they are stored on.

    Args:
        desk: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._downloads = downloads = desk.downloads
        self.empty = NoticeView(theme)
        self.empty.show_words("No downloads", _EMPTY, "Find a model")
        self.empty.action_requested.connect(links.discover_requested)
        self.list = RowList[Download, DownloadRow](lambda: DownloadRow(desk, links, theme), DownloadRow.show_download)
        ground = Ground(theme, "surface")
        column(self.list, None, within=ground, spacing=0)
        self.pages = QStackedWidget()
        self.pages.addWidget(self.empty)
        self.pages.addWidget(scrolled(ground))
        self.totals = ThemedLabel(theme, "", tabular=True)
        self.disk = ThemedLabel(theme, "", "muted", -1, tabular=True, wraps=True)
        tip = "Take finished downloads off this list; the models stay"
        self.clear = push_button("Clear finished", tip, downloads.clear_finished)
        tip = "The Hugging Face token that is in use, for gated and private models"
        self.token = push_button("Token…", tip, links.token_requested.emit)
        sums = column(self.totals, self.disk, spacing=TIGHT)
        footer = row((sums, 1), self.clear, self.token, margins=(LARGE, MEDIUM, LARGE, MEDIUM))
        column((self.pages, 1), Separator(theme), footer, within=self, spacing=0)
        self._throttle = Throttle(self)
        self._throttle.due.connect(self._refresh)
        downloads.progressed.connect(self._throttle.note)
        downloads.removed.connect(self._refresh)
        downloads.disk_looked.connect(self._refresh)

    @property
    def rows(self) -> tuple[DownloadRow, ...]:
        """The rows, in the order in which the downloads were begun."""
        return tuple(self.list.rows.values())

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._downloads.watch_disk(True)
        self._refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._downloads.watch_disk(False)

    def _refresh(self) -> None:
        if not self.isVisible():
            return
        downloads = self._downloads
        self.list.show_items({download.id: download for download in downloads.all()})
        self.pages.setCurrentIndex(1 if downloads.all() else 0)
        sums, free = totals_words(downloads.totals()), downloads.free_bytes
        self.totals.say(sums)
        disk = f"{file_size(free)} free on the disk that takes models." if free is not None else ""
        if lacking := downloads.lacking_bytes:
            disk = f"{disk} {file_size(lacking)} more are needed for what is being downloaded."
        elif sums:
            disk = f"{disk} {_QUITTING}".strip()
        self.disk.setText(disk)
        self.disk.set_color("danger" if lacking else "muted")
        self.clear.setVisible(any(download.state is DownloadState.FINISHED for download in downloads.all()))
