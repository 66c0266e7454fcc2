"""The download of one model or drafter in place: a button, then its progress, then a button that loads it."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from rdchat.errors import RdchatError
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import TextButton, push_button
from rdchat.ui.look.formatting import file_size
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import TIGHT, Theme
from rdchat.ui.models.downloads.words import state_words
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.progress_line import ProgressLine


class DownloadBox(QWidget):
    """Downloads a repository and loads it.

    Args:
        desk: The window's services.
        links: Lead to the downloads.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._downloads, self._slot = desk.downloads, desk.slot
        self._repository = self._gguf = self._size = self._loads = ""
        self._here = self._older_here = self._is_model = False
        self.button = push_button("Download", "", self._start)
        self.load = push_button("Load", "Answer with this model from now on", lambda: self._slot.load(self._loads))
        self.more = TextButton("Show downloads", theme)
        self.more.clicked.connect(links.downloads_requested)
        self.bar = ProgressLine("Progress of the download")
        self.words = ThemedLabel(theme, "", "muted", -1, tabular=True, wraps=True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignVCenter)
        column(row(self.button, self.load, (self.words, 1), self.more), self.bar, within=self, spacing=TIGHT)
        self._downloads.progressed.connect(self._on_progress)
        self._downloads.removed.connect(self._refresh)
        for changed in (self._slot.load_started, self._slot.loaded, self._slot.failed):
            changed.connect(self._refresh)

    def show_model(
        self,
        repository: str,
        gguf: str = "",
        size: int = 0,
        *,
        here: bool,
        older_here: bool = False,
        loads: str = "",
        is_model: bool = True,
    ) -> None:
        """Show the download of a model or a drafter.

        Args:
            repository: The hub id.
            gguf: The GGUF file; empty for all known files.
            size: In bytes; 0 if it is unknown.
            here: Whether all of it is on this machine.
            older_here: Whether another version is.
            loads: The name that loads it; empty for a drafter, or until that is known.
            is_model: Whether it answers by itself.
        """
        self._repository, self._gguf, self._size = repository, gguf, f" {file_size(size)}" if size else ""
        self._here, self._older_here, self._loads, self._is_model = here, older_here, loads, is_model
        self._refresh()

    def _refresh(self) -> None:
        download = self._downloads.find(self._repository, gguf=self._gguf)
        if self._here or (download is not None and download.state is DownloadState.FINISHED):
            download = None  # whether it is still here is read from the disk
        running = download is not None and not download.state.has_ended
        paused = download is not None and download.state is DownloadState.PAUSED
        newer = " the newer version," if self._older_here else ""
        self.button.setText("Resume" if paused else f"Download{newer}{self._size}")
        self.button.setVisible(not self._here and not running)
        chosen = bool(self._loads) and self._slot.chosen == self._loads and not self._slot.failure
        self.load.setVisible(self._here and bool(self._loads) and not chosen)
        self.bar.setVisible(running)
        self.more.setVisible(download is not None)
        if self._here:
            state = "Loading…" if self._slot.loading else "This model answers now."
            self._say(state if chosen else "On this machine.", "success")
        elif download is None:
            self._say("")
        elif download.state is DownloadState.FAILED:
            self._say(f"{download.problem} {download.hint}".strip(), "danger")
        else:
            self.bar.show_download(download)
            self._say(*((download.notes[0], "warning") if download.notes else (state_words(download),)))

    def _say(self, text: str, color: str = "muted") -> None:
        self.words.set_color(color)
        self.words.setText(text)

    def _on_progress(self, download: Download) -> None:
        if download.repository == self._repository:
            if download.state is DownloadState.FINISHED and (download.gguf, download.revision) == (self._gguf, "main"):
                self._here = True  # until the disk is read
            self._refresh()

    def _start(self) -> None:
        try:
            self._downloads.start(self._repository, gguf=self._gguf, is_model=self._is_model)
        except RdchatError as error:
            self._say(str(error), "danger")
            return
        self._refresh()
        self.more.setFocus()  # the pressed button is hidden
