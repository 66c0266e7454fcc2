"""Parts of pages: a notice with buttons, a line with a link, a download in place, a list of files, rows of widgets."""

from collections.abc import Callable, Mapping, Sequence

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.errors import RdchatError
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState
from rdchat.hub.hub_errors import HubError
from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.models.downloads.words import file_text, share, state_text
from rdchat.ui.style.buttons import TextButton, push_button
from rdchat.ui.style.formatting import counted, file_size
from rdchat.ui.style.labels import ThemedLabel
from rdchat.ui.style.layouts import column, row, show_share, thin_bar
from rdchat.ui.style.opening import open_page
from rdchat.ui.style.theme import LARGE, SMALL, TIGHT, Theme


class PageLinks(QObject):
    """Requests of a page of the models window: to show another page, or the dialog for the hub's token."""

    downloads_requested = Signal()
    discover_requested = Signal()
    token_requested = Signal()
    drafters_requested = Signal(ModelCard)  # a model: show its drafters, and ask the hub for others
    layers_requested = Signal(ModelCard)
    training_requested = Signal(ModelCard)


class NoticeView(QWidget):
    """Shows a sentence or two in the middle, with buttons below."""

    retry_requested = Signal()
    action_requested = Signal()

    def __init__(self, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._page = ""
        self.title = ThemedLabel(theme, bold=True, wraps=True)
        self.words = ThemedLabel(theme, "", "muted", wraps=True, selectable=True)
        for label in (self.title, self.words):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.page = push_button("Open Web Page", "", lambda: open_page(self._page))
        self.token = push_button("Enter Token…", "", links.token_requested.emit)
        self.retry = push_button("Try Again", "", self.retry_requested.emit)
        self.action = push_button("", "", self.action_requested.emit)
        self._buttons = (self.page, self.token, self.retry, self.action)
        buttons = column(*(row(None, button, None, spacing=-1) for button in self._buttons))
        layout = column(None, self.title, self.words, SMALL, buttons, None, within=self, margins=LARGE)
        layout.setStretch(0, 2)
        layout.setStretch(layout.count() - 1, 3)

    def show_text(self, title: str, more: str = "", action: str = "") -> None:
        """Show a state; with an action there is a button that emits `action_requested`."""
        self.title.setText(title)
        self.words.show_text(more)
        for button in self._buttons:
            button.hide()
        self.action.setText(action)
        self.action.setVisible(bool(action))

    def show_trouble(self, trouble: HubError) -> None:
        """Show an error, with buttons for what may help."""
        self.show_text(trouble.message, trouble.hint)
        self._page = trouble.page
        self.page.setVisible(bool(trouble.page))
        self.token.setVisible(trouble.wants_token)
        self.retry.setVisible(True)


class StatusLine(QWidget):
    """A line of text with a link; both are hidden while they are empty."""

    def __init__(self, theme: Theme, points_more: float = 0) -> None:
        super().__init__()
        self._act: Callable[[], object] = lambda: None
        self.words = ThemedLabel(theme, "", "muted", points_more, tabular=True, wraps=True)
        self.link = TextButton("", theme, lambda: self._act())  # noqa: PLW0108  another one with each text
        row((self.words, 1), self.link, within=self)
        self.show_text("")

    def show_text(
        self, words: str, color: str = "muted", link: str = "", act: Callable[[], object] = lambda: None
    ) -> None:
        """Show a text in a colour of `Colors`, and a link that calls `act`."""
        self.words.show_text(words, color)
        self.link.setText(link)
        self.link.setVisible(bool(link))
        self._act = act


_MAX_LISTED = 300


class FileList(ThemedLabel):
    """Lists each file with its size or its progress, one on each line.

    Attributes:
        fold: The button that folds and unfolds the list; the owner places it.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "", "muted", -1, tabular=True, wraps=True, selectable=True)
        self._files: Sequence[DownloadFile] = ()
        self._more = self._note = ""
        self._open = False
        self.fold = TextButton("", theme, self._turn)
        self.show_files(())

    def show_files(self, files: Sequence[DownloadFile], more: str = "", note: str = "") -> None:
        """Show these files.

        Args:
            files: The files.
            more: Follows the number of files on the button.
            note: Shown below the list.
        """
        self._files, self._more, self._note = files, more, note
        self.fold.setVisible(bool(files))
        self._show()

    def _turn(self) -> None:
        self._open = not self._open
        self._show()

    def _show(self) -> None:
        self.fold.setText(f"{'Hide' if self._open else 'Show'} {counted(len(self._files), 'file')}{self._more}")
        listed = self._files[:_MAX_LISTED] if self._open else ()
        lines = [f"{file.name}: {file.note or file_text(file)}" for file in listed]
        more = len(self._files) - _MAX_LISTED
        self.show_text("\n".join([*lines, *([f"and {more:,} more"] if more > 0 else []), self._note]) if lines else "")


class DownloadBox(QWidget):
    """Downloads a repository and loads it.

    Args:
        desk: The window's services.
        links: Lead to the downloads.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._downloads, self._slot, self._links = desk.downloads, desk.slot, links
        self._repository = self._gguf = self._size = self._loads = ""
        self._here = self._older_here = self._is_model = False
        self.button = push_button("Download", "", self._start)
        self.load = push_button("Load", "Use this model from now on", lambda: self._slot.load(self._loads))
        self.bar = thin_bar("Progress of the download")
        self.line = StatusLine(theme, -1)
        column(row(self.button, self.load, (self.line, 1)), self.bar, within=self, spacing=TIGHT)
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
            download = None  # it may have been deleted since: the disk says whether it is here
        running = download is not None and not download.state.has_ended
        paused = download is not None and download.state is DownloadState.PAUSED
        newer = " Newer Version," if self._older_here else ""
        self.button.setText("Resume" if paused else f"Download{newer}{self._size}")
        self.button.setVisible(not self._here and not running)
        chosen = bool(self._loads) and self._slot.chosen == self._loads and not self._slot.failure
        self.load.setVisible(self._here and bool(self._loads) and not chosen)
        self.bar.setVisible(running)
        if self._here:
            state = "Loading…" if self._slot.loading else "In use now."
            self.line.show_text(state if chosen else "Installed.", "success")
        elif download is None:
            self.line.show_text("")
        else:
            show_share(self.bar, share(download))
            self._show_state(download)

    def _show_state(self, download: Download) -> None:
        text, color = state_text(download), "muted"
        if download.state is DownloadState.FAILED:
            text, color = f"{download.problem} {download.hint}".strip(), "danger"
        elif download.notes:
            text, color = download.notes[0], "warning"
        self.line.show_text(text, color, "Show Downloads", self._links.downloads_requested.emit)

    def _on_progress(self, download: Download) -> None:
        if download.repository == self._repository:
            if download.state is DownloadState.FINISHED and (download.gguf, download.revision) == (self._gguf, "main"):
                self._here = True  # known before the disk is read
            self._refresh()

    def _start(self) -> None:
        try:
            self._downloads.start(self._repository, gguf=self._gguf, is_model=self._is_model)
        except RdchatError as error:
            self.line.show_text(str(error), "danger")
            return
        self._refresh()
        self.line.link.setFocus()  # the pressed button is hidden


class RowList[Item, Row: QWidget](QWidget):
    """Shows a row for each item. A row stays as long as its item is listed, so that it keeps the focus.

    Args:
        make: Makes an empty row.
        update: Has a row show its item.
    """

    def __init__(self, make: Callable[[], Row], update: Callable[[Row, Item], None]) -> None:
        super().__init__()
        self._make, self._update = make, update
        self._column = column(None, within=self, spacing=0)
        self.rows: dict[str, Row] = {}

    def show_items(self, items: Mapping[str, Item]) -> None:
        """Show these items, each under a key that stays the same."""
        for key in self.rows.keys() - items.keys():
            row = self.rows.pop(key)
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        for place, (key, item) in enumerate(items.items()):
            if key not in self.rows:
                self.rows[key] = self._make()
            if self._column.indexOf(self.rows[key]) != place:
                self._column.insertWidget(place, self.rows[key])
            self._update(self.rows[key], item)
        self.setVisible(bool(items))
