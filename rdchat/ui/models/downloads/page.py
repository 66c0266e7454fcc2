"""The Downloads page: a row for each download, and the free space of the disk."""

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from rdchat.hub.downloads.download import DownloadState
from rdchat.services.models.model import Model
from rdchat.services.models.models import Models
from rdchat.ui.models.model_row import ModelRow, RowList
from rdchat.ui.models.page_parts import NoticeView, PageLinks
from rdchat.ui.models.texts import totals_text
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.formatting import file_size
from rdchat.ui.style.labels import Ground, Separator, ThemedLabel
from rdchat.ui.style.layouts import column, row, scrolled
from rdchat.ui.style.theme import LARGE, MEDIUM, TIGHT, Theme

_EMPTY = "Your downloads appear here. They continue while you chat and after a restart."
_QUITTING = "Downloads continue while you chat, even with this window closed. Quitting pauses them."


class DownloadsPage(QWidget):
    """Shows the downloads, their total, and the free space of their disk.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._downloads = downloads = models.downloads
        self.empty = NoticeView(links, theme)
        self.empty.show_text("No downloads", _EMPTY, "Find a Model")
        self.empty.action_requested.connect(links.discover_requested)
        self.list = RowList(lambda: ModelRow(models, links, theme, LARGE))
        ground = Ground(theme, "surface")
        column(self.list, None, within=ground, spacing=0)
        self.pages = QStackedWidget()
        self.pages.addWidget(self.empty)
        self.pages.addWidget(scrolled(ground))
        self.totals = ThemedLabel(theme, "", tabular=True)
        self.disk = ThemedLabel(theme, "", "muted", -1, tabular=True, wraps=True)
        tip = "Remove finished downloads from this list. The models stay."
        self.clear = push_button("Clear Finished", tip, downloads.clear_finished)
        tip = "Your Hugging Face token, for gated and private models"
        self.token = push_button("Hugging Face Token…", tip, links.token_requested.emit)
        sums = column(self.totals, self.disk, spacing=TIGHT)
        footer = row((sums, 1), self.clear, self.token, margins=(LARGE, MEDIUM, LARGE, MEDIUM))
        column((self.pages, 1), Separator(theme), footer, within=self, spacing=0)
        for changed in (downloads.progressed, downloads.removed):
            changed.connect(self._refresh)

    @property
    def rows(self) -> tuple[ModelRow, ...]:
        """The rows, oldest download first."""
        return tuple(self.list.rows.values())

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def _refresh(self) -> None:
        if not self.isVisible():
            return
        downloads = self._downloads
        self.list.show_models([Model.downloaded(download) for download in downloads.all()])
        self.pages.setCurrentIndex(1 if downloads.all() else 0)
        sums, (free, lacking) = totals_text(downloads.totals()), downloads.disk_room()
        self.totals.show_text(sums)
        disk = f"{file_size(free)} free on the disk for models." if free is not None else ""
        if lacking:
            disk = f"{disk} The downloads need {file_size(lacking)} more."
        elif sums:
            disk = f"{disk} {_QUITTING}".strip()
        self.disk.setText(disk)
        self.disk.set_color("danger" if lacking else "muted")
        self.clear.setVisible(any(download.state is DownloadState.FINISHED for download in downloads.all()))
