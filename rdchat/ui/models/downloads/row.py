"""The row of one download: its progress, its problem, and its buttons."""

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import IconButton, push_button
from rdchat.ui.look.formatting import file_size
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import ElidedLabel, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SHOW_FOLDER, ask, open_page, show_folder
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, TIGHT, Theme
from rdchat.ui.models.downloads import words
from rdchat.ui.models.file_list import FileList
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.progress_line import ProgressLine

_ICON = 18
_ICONS = {
    DownloadState.WAITING: ("waiting", "muted"),
    DownloadState.PAUSED: ("pause", "muted"),
    DownloadState.FAILED: ("warning", "danger"),
    DownloadState.FINISHED: ("check", "success"),
}
_MAIN = {DownloadState.PAUSED: "Resume", DownloadState.FAILED: "Try again"}


class DownloadRow(QWidget):
    """Shows a download.

    Args:
        desk: Pauses, resumes and removes it, and loads the model.
        links: Opens the token's dialog.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._downloads, self._slot, self._theme = desk.downloads, desk.slot, theme
        self._download = Download("")
        self._cancelled = False  # once it has stopped, ask whether to remove its files
        self._picture = PlainLabel()
        self._picture.setFixedWidth(_ICON)
        self._picture.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.name = ElidedLabel(theme, "", bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.bar = ProgressLine("Downloaded")
        self.state = ThemedLabel(theme, "", "muted", -1, tabular=True)
        self.note, self.problem, self.hint = (
            ThemedLabel(theme, "", color, -1, tabular=True, wraps=True, selectable=True)
            for color in ("warning", "danger", "muted")
        )
        self.files = FileList(theme)
        self.main, self.other = push_button("", "", self._press_main), push_button("", "", self._press_other)
        self.clear = IconButton("close", "", theme)
        self.clear.clicked.connect(lambda: self._downloads.clear(self._download.id))
        self.page = push_button("Open its page", "", lambda: open_page(self._download.page))
        self.token = push_button("Give a token…", "", links.token_requested.emit)
        head = row((self.name, 1), self.main, self.other, self.clear)
        below = row((self.state, 1), self.files.fold)
        texts = (self.note, self.problem, self.hint, row(self.page, self.token, None))
        parts = column(head, self.bar, below, *texts, self.files, spacing=TIGHT)
        line = row(self._picture, (parts, 1), spacing=MEDIUM, margins=(LARGE, MEDIUM, LARGE, MEDIUM))
        column(line, Separator(theme), within=self, spacing=0)
        for happened in (self._slot.load_started, self._slot.loaded, self._slot.failed):
            happened.connect(self._show_buttons)
        theme.changed.connect(self._draw_icon)

    def show_download(self, download: Download) -> None:
        """Show a download's state."""
        if download is self._download:
            return
        self._download, state = download, download.state
        running, failed = not state.has_ended, state is DownloadState.FAILED
        self.name.setText(words.title(download))
        self.bar.show_download(download)
        self.bar.setVisible(running or (state is not DownloadState.FINISHED and download.done_bytes > 0))
        self.state.setText(words.state_words(download))
        self.note.say(words.note_words(download) if running else "")
        problem, hint = words.problem_words(download) if failed else ("", "")
        self.problem.say(problem)
        self.hint.say(hint)
        self.page.setVisible(bool(hint and download.page))
        self.token.setVisible(bool(hint and download.lack))
        self.files.show_files(download.files)
        self.files.fold.setAccessibleName(f"{self.files.fold.text()}: {words.title(download)}")
        self._show_buttons()
        self._draw_icon()
        if self._cancelled and not running:
            self._ask_to_remove()

    def _show_buttons(self) -> None:
        download, slot = self._download, self._slot
        state, name = download.state, words.title(download)
        finished = state is DownloadState.FINISHED
        chosen = finished and slot.failure is None and slot.chosen == download.model_name
        load = "Loading…" if chosen and slot.loading else "Loaded" if chosen else "Load"
        self.main.setText(load if finished else _MAIN.get(state, "Pause"))
        self.main.setEnabled(not chosen)
        self.main.setVisible(not finished or download.is_model)
        self.other.setText(SHOW_FOLDER if finished else "Remove" if state.has_ended else "Cancel")
        self.other.setEnabled(True)  # also after removing it has failed
        for button in (self.main, self.other):
            button.setAccessibleName(f"{button.text()}: {name}")
        self.clear.setVisible(finished)
        self.clear.show_as("close", f"Take {name} off this list")

    def _press_main(self) -> None:
        self._cancelled = False
        if self._download.state is DownloadState.FINISHED:
            self._slot.load(self._download.model_name)
        elif self._download.state.has_ended:
            self._downloads.resume(self._download.id)
        else:
            self._downloads.pause(self._download.id)

    def _press_other(self) -> None:
        if self._download.state is DownloadState.FINISHED:
            show_folder(Path(self._download.folder))
        elif self._download.state.has_ended:
            self._ask_to_remove()
        else:
            self._cancelled = True
            self._downloads.pause(self._download.id)

    def _ask_to_remove(self) -> None:
        """Ask whether to keep the files, if there are any."""
        self._cancelled = False
        if self._download.state is DownloadState.FINISHED:  # it was faster than the click
            return
        if not self._download.done_bytes:
            self._remove()
            return
        size = file_size(self._download.done_bytes)
        question = f"{size} of it is here. Keep that, to go on another time?"
        ask(self, question, words.title(self._download), f"Remove {size}", self._remove, leave="Keep", removes=True)

    def _remove(self) -> None:
        for button in (self.main, self.other):
            button.setEnabled(False)
        self._downloads.discard(self._download.id)

    def _draw_icon(self) -> None:
        icon, color = _ICONS.get(self._download.state, ("download", "accent"))
        pixmap = line_pixmap(icon, getattr(self._theme.colors, color), _ICON, self.devicePixelRatioF())
        self._picture.setPixmap(pixmap)
