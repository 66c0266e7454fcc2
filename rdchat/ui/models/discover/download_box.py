"""The download of the shown model: a button, then its progress, then a button that loads it."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from rdchat.errors import RdchatError
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.models.downloads.downloads import Downloads
from rdchat.ui.look import formatting
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import TIGHT, Theme
from rdchat.ui.models.downloads.words import state_words
from rdchat.ui.models.link_button import LinkButton
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.thin_bar import BusyBar


class DownloadBox(QWidget):
    """One repository's download.

    Args:
        downloads: Downloads it.
        slot: Loads it; None for a drafter, which is no model by itself.
        links: Lead to the downloads.
        theme: The appearance to follow.
    """

    def __init__(self, downloads: Downloads, slot: ModelSlot | None, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._downloads, self._slot = downloads, slot
        self._repository, self._gguf, self._size = "", "", 0
        self._here = self._older_here = False
        self._loads = ""
        self.button = push_button("Download", "")
        self.load = push_button("Load", "Answer with this model from now on")
        self.more = LinkButton("Show downloads", theme)
        self.bar = BusyBar("Progress of the download", 6)
        self.words = ThemedLabel(theme, "", "muted", -1, tabular=True, wraps=True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignVCenter)
        row_layout = row(self.button, self.load, (self.words, 1), self.more)
        column(row_layout, self.bar, within=self, spacing=TIGHT)
        self.button.clicked.connect(self._start)
        self.load.clicked.connect(self._load)
        self.more.clicked.connect(links.downloads_requested)
        downloads.progressed.connect(self._on_progress)
        downloads.removed.connect(self._refresh)
        if slot is not None:
            for changed in (slot.load_started, slot.loaded, slot.failed):
                changed.connect(self._refresh)

    def show_model(
        self, repository: str, gguf: str, size: int, *, here: bool, older_here: bool = False, loads: str = ""
    ) -> None:
        """Show a model's download.

        Args:
            repository: The hub id.
            gguf: The GGUF file of it; empty for all that is known.
            size: Bytes of it; 0 where that is not known.
            here: Whether all of it is on this machine.
            older_here: Whether another version of it is.
            loads: What the model slot takes for it; empty for the hub id.
        """
        self._repository, self._gguf, self._size = repository, gguf, size
        self._here, self._older_here, self._loads = here, older_here, loads
        self.setEnabled(True)
        self._refresh()

    def _refresh(self) -> None:
        progress = self._downloads.find(self._repository, gguf=self._gguf)
        if progress is not None and progress.state is DownloadState.FINISHED:
            progress = None  # whether it is still here the disk says
        going = progress is not None and not progress.state.has_ended and not self._here
        size = f" {formatting.file_size(self._size)}" if self._size else ""
        newer = " the newer version," if self._older_here else ""
        self.button.setText(
            f"Download{newer}{size}" if not (progress and progress.state is DownloadState.PAUSED) else "Resume"
        )
        self.button.setVisible(not self._here and not going)
        loaded = self._slot is not None and self._slot.chosen == self._model and not self._slot.failure
        self.load.setVisible(self._here and self._slot is not None and not loaded)
        self.bar.setVisible(going)
        self.more.setVisible(progress is not None and not self._here)
        if self._here:
            loading = self._slot is not None and self._slot.loading
            self._say(
                "Loading…" if loaded and loading else "This model answers now." if loaded else "On this machine.",
                "success",
            )
        elif progress is None:
            self._say("")
        else:
            self._show_progress(progress)

    @property
    def _model(self) -> str:
        """The name that loads it."""
        return self._loads or self._repository

    def _show_progress(self, progress: Download) -> None:
        if progress.state is DownloadState.FAILED:
            self._say(f"{progress.problem} {progress.hint}".strip(), "danger")
            return
        self.bar.show_download(progress)
        if progress.notes:
            self._say(progress.notes[0], "warning")
        else:
            self._say(state_words(progress))

    def _say(self, text: str, color: str = "muted") -> None:
        self.words.set_color(color)
        self.words.setText(text)

    def _on_progress(self, progress: Download) -> None:
        if progress.repository == self._repository:
            if progress.state is DownloadState.FINISHED and progress.gguf == self._gguf and progress.revision == "main":
                self._here = True  # until the disk was looked at
            self._refresh()

    def _start(self) -> None:
        try:
            self._downloads.start(self._repository, gguf=self._gguf, is_model=self._slot is not None)
        except RdchatError as error:
            self._say(str(error), "danger")
            return
        self._refresh()
        self.more.setFocus()  # the button that was pressed is hidden

    def _load(self) -> None:
        if self._slot is not None:
            self._slot.load(self._model)
            self._refresh()
