"""The Downloads page: a row for each download, and the free space of the disk."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.models.downloads import words
from rdchat.ui.models.page_parts import FileList, NoticeView, PageLinks, RowList
from rdchat.ui.style.buttons import IconButton, push_button
from rdchat.ui.style.formatting import file_size
from rdchat.ui.style.labels import ElidedLabel, Ground, Separator, ThemedLabel
from rdchat.ui.style.layouts import column, row, scrolled, show_share, thin_bar
from rdchat.ui.style.opening import SHOW_FOLDER, ask, open_page, show_folder
from rdchat.ui.style.theme import LARGE, MEDIUM, TIGHT, Theme

_EMPTY = "Your downloads appear here. They continue while you chat and after a restart."
_QUITTING = "Downloads continue while you chat, even with this window closed. Quitting pauses them."
_COLORS = {DownloadState.FAILED: "danger", DownloadState.FINISHED: "success"}


class DownloadRow(QWidget):
    """Shows a download.

    Args:
        desk: Pauses, resumes and removes it, and loads the model.
        links: Opens the token's dialog.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._downloads, self._slot = desk.downloads, desk.slot
        self._download = Download("")
        self._cancelled = False  # ask whether to remove the files once the download has stopped
        self.name = ElidedLabel(theme, "", bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.bar = thin_bar("Downloaded")
        self.state = ThemedLabel(theme, "", "muted", -1, tabular=True)
        self.problem, self.hint = (
            ThemedLabel(theme, "", "muted", -1, tabular=True, wraps=True, selectable=True) for _ in range(2)
        )
        self.files = FileList(theme)
        self.main, self.other = (push_button("", "", partial(self._press, place)) for place in range(2))
        self.clear = IconButton("close", "", theme, act=lambda: self._downloads.clear(self._download.id))
        self.page = push_button("Open Web Page", "", lambda: open_page(self._download.page))
        self.token = push_button("Enter Token…", "", links.token_requested.emit)
        head = row((self.name, 1), self.main, self.other, self.clear)
        below = row((self.state, 1), self.files.fold)
        texts = (self.problem, self.hint, row(self.page, self.token, None))
        margins = (LARGE, MEDIUM, LARGE, MEDIUM)
        parts = column(head, self.bar, below, *texts, self.files, spacing=TIGHT, margins=margins)
        column(parts, Separator(theme), within=self, spacing=0)
        for happened in (self._slot.load_started, self._slot.loaded, self._slot.failed):
            happened.connect(self._show_buttons)

    def show_download(self, download: Download) -> None:
        """Show a download's state."""
        if download is self._download:
            return
        self._download, state = download, download.state
        running, failed = not state.has_ended, state is DownloadState.FAILED
        self.name.setText(words.title(download))
        show_share(self.bar, words.share(download))
        self.bar.setVisible(running or (state is not DownloadState.FINISHED and download.done_bytes > 0))
        self.state.show_text(words.state_text(download), _COLORS.get(state, "muted"))
        problem, hint = words.problem_text(download) if failed else (words.note_text(download) if running else "", "")
        self.problem.show_text(problem, "danger" if failed else "warning")
        self.hint.show_text(hint)
        self.page.setVisible(bool(hint and download.page))
        self.token.setVisible(bool(hint and download.lack))
        self.files.show_files(download.files)
        self.files.fold.setAccessibleName(f"{self.files.fold.text()}: {words.title(download)}")
        self._show_buttons()
        if self._cancelled and not running:
            self._ask_to_remove()

    def _actions(self) -> tuple[tuple[str, Callable[[], object]], ...]:
        """Return the texts of the two buttons, and what they do."""
        download, slot = self._download, self._slot
        if download.state is DownloadState.FINISHED:
            load = "Load" if not self._is_chosen else "Loading…" if slot.loading else "Loaded"
            folder = Path(download.folder)
            return (load, lambda: slot.load(download.model_name)), (SHOW_FOLDER, lambda: show_folder(folder))
        if download.state.has_ended:
            resume = "Try Again" if download.state is DownloadState.FAILED else "Resume"
            return (resume, lambda: self._downloads.resume(download.id)), ("Remove", self._ask_to_remove)
        return ("Pause", lambda: self._downloads.pause(download.id)), ("Cancel", self._cancel)

    @property
    def _is_chosen(self) -> bool:
        """Whether its model is loaded, or being loaded."""
        finished, slot = self._download.state is DownloadState.FINISHED, self._slot
        return finished and slot.failure is None and slot.chosen == self._download.model_name

    def _show_buttons(self) -> None:
        download, name = self._download, words.title(self._download)
        finished = download.state is DownloadState.FINISHED
        for button, (text, _) in zip((self.main, self.other), self._actions(), strict=True):
            button.setText(text)
            button.setAccessibleName(f"{text}: {name}")
            button.setEnabled(True)  # `_remove` disabled it, and may have failed
        self.main.setEnabled(not self._is_chosen)
        self.main.setVisible(not finished or download.is_model)
        self.clear.setVisible(finished)
        self.clear.show_as("close", f"Remove {name} from this list")

    def _press(self, place: int) -> None:
        self._cancelled = False
        self._actions()[place][1]()

    def _cancel(self) -> None:
        self._cancelled = True
        self._downloads.pause(self._download.id)

    def _ask_to_remove(self) -> None:
        """Ask whether to keep the files, if there are any."""
        self._cancelled = False
        if self._download.state is DownloadState.FINISHED:  # it ended before it could be stopped
            return
        if not self._download.done_bytes:
            self._remove()
            return
        size = file_size(self._download.done_bytes)
        question = f"Keep the {size} so you can resume later?"
        ask(self, question, words.title(self._download), f"Remove {size}", self._remove, leave="Keep", removes=True)

    def _remove(self) -> None:
        for button in (self.main, self.other):
            button.setEnabled(False)
        self._downloads.discard(self._download.id)


class DownloadsPage(QWidget):
    """Shows the downloads, their total, and the free space of their disk.

    Args:
        desk: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._downloads = downloads = desk.downloads
        self.empty = NoticeView(links, theme)
        self.empty.show_text("No downloads", _EMPTY, "Find a Model")
        self.empty.action_requested.connect(links.discover_requested)
        self.list = RowList[Download, DownloadRow](lambda: DownloadRow(desk, links, theme), DownloadRow.show_download)
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
    def rows(self) -> tuple[DownloadRow, ...]:
        """The rows, oldest download first."""
        return tuple(self.list.rows.values())

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def _refresh(self) -> None:
        if not self.isVisible():
            return
        downloads = self._downloads
        self.list.show_items({download.id: download for download in downloads.all()})
        self.pages.setCurrentIndex(1 if downloads.all() else 0)
        sums, (free, lacking) = words.totals_text(downloads.totals()), downloads.disk_room()
        self.totals.show_text(sums)
        disk = f"{file_size(free)} free on the disk for models." if free is not None else ""
        if lacking:
            disk = f"{disk} The downloads need {file_size(lacking)} more."
        elif sums:
            disk = f"{disk} {_QUITTING}".strip()
        self.disk.setText(disk)
        self.disk.set_color("danger" if lacking else "muted")
        self.clear.setVisible(any(download.state is DownloadState.FINISHED for download in downloads.all()))
