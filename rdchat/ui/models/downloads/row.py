"""The row of one download: its progress, its problem, and its buttons."""

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QGridLayout, QPushButton, QWidget

from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.models.downloads.downloads import Downloads
from rdchat.ui.look.buttons import IconButton, push_button
from rdchat.ui.look.formatting import counted, file_size
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SHOW_FOLDER, open_page, show_folder
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, TIGHT, Theme
from rdchat.ui.models.downloads import words
from rdchat.ui.models.file_list import FileList
from rdchat.ui.models.link_button import LinkButton
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.thin_bar import ThinBar

_ICON = 18
_ICONS = {
    DownloadState.WAITING: ("waiting", "muted"),
    DownloadState.PAUSED: ("pause", "muted"),
    DownloadState.FAILED: ("warning", "danger"),
    DownloadState.FINISHED: ("check", "success"),
}


class DownloadRow(QWidget):
    """Shows a download, with buttons.

    Args:
        progress: The download.
        downloads: Pauses, resumes and removes it.
        slot: Loads it once it is finished.
        links: Lead to the token.
        theme: The appearance to follow.
    """

    def __init__(
        self, progress: Download, downloads: Downloads, slot: ModelSlot, links: PageLinks, theme: Theme
    ) -> None:
        super().__init__()
        self._progress, self._downloads, self._slot, self._theme = progress, downloads, slot, theme
        self._unfolded = False
        self._cancelled = False  # it stops, and what is here is asked about once it has
        self._picture = PlainLabel()
        self._picture.setFixedWidth(_ICON)
        self.name = ElidedLabel(theme, words.title(progress), bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.bar = ThinBar(theme)
        self.bar.setAccessibleName(f"Downloaded of {words.title(progress)}")
        self.state = ThemedLabel(theme, "", "muted", -1, tabular=True)
        self.note = ThemedLabel(theme, "", "warning", -1, tabular=True, wraps=True, selectable=True)
        self.problem = ThemedLabel(theme, "", "danger", -1, wraps=True, selectable=True)
        self.hint = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self.files = FileList(theme)
        self.files.hide()
        self._build_buttons(links)
        self._build_question()
        self._lay_out()
        for happened in (slot.load_started, slot.loaded, slot.failed):
            happened.connect(self._show_load)
        theme.changed.connect(self._draw)
        self.show_progress(progress)

    def _build_buttons(self, links: PageLinks) -> None:
        name = words.title(self._progress)
        self.main, self.other = push_button("", ""), push_button("", "")
        self.main.clicked.connect(self._press_main)
        self.other.clicked.connect(self._press_other)
        self.clear = IconButton("close", f"Take {name} off this list", self._theme)
        self.clear.clicked.connect(lambda: self._downloads.clear(self.id))
        self.unfold = LinkButton("", self._theme)
        self.unfold.clicked.connect(self._fold)
        self.page, self.token = push_button("Open its page", ""), push_button("Give a token…", "")
        self.page.clicked.connect(lambda: open_page(self._progress.page))
        self.token.clicked.connect(links.token_requested)

    def _build_question(self) -> None:
        self.question = QWidget()
        self.asked = ThemedLabel(self._theme, "", wraps=True)
        self.keep = QPushButton("Keep")
        self.remove = QPushButton("Remove")
        row_layout = row((self.asked, 1), within=self.question, margins=(0, TIGHT, 0, 0))
        for button in (self.keep, self.remove):
            button.setAutoDefault(True)  # the Return key
            row_layout.addWidget(button)
        self.keep.clicked.connect(self._keep)
        self.remove.clicked.connect(self._discard)
        self.question.hide()

    def _lay_out(self) -> None:
        top = row((self.name, 1), self.main, self.other, self.clear)
        below = row((self.state, 1), self.unfold)
        helps = row(self.page, self.token, None)
        column_layout = column(
            self.bar, below, self.note, self.problem, self.hint, helps, self.question, self.files, spacing=TIGHT
        )
        grid = QGridLayout(self)
        grid.setContentsMargins(LARGE, MEDIUM, LARGE, MEDIUM)
        grid.setHorizontalSpacing(MEDIUM)
        grid.setVerticalSpacing(TIGHT)
        grid.addWidget(self._picture, 0, 0)
        grid.addLayout(top, 0, 1)
        grid.addLayout(column_layout, 1, 1)
        grid.setColumnStretch(1, 1)

    @property
    def id(self) -> str:
        return self._progress.id

    def show_progress(self, progress: Download) -> None:
        """Show the download's state."""
        going, finished = not progress.state.has_ended, progress.state is DownloadState.FINISHED
        if going and self._progress.state.has_ended:
            self._cancelled = False  # it goes on
        self._progress = progress
        color = {DownloadState.PAUSED: "muted", DownloadState.FAILED: "danger"}.get(progress.state, "accent")
        self.bar.show_part(progress.done_bytes / progress.total_bytes if progress.total_bytes else 0.0, color)
        self.bar.setVisible(going or (not finished and progress.done_bytes > 0))
        self.state.setText(words.state_words(progress))
        self.note.say(words.note_words(progress) if going else "")
        problem, hint = words.problem_words(progress) if progress.state is DownloadState.FAILED else ("", "")
        self.problem.say(problem)
        self.hint.say(hint)
        self.page.setVisible(bool(hint and progress.page))
        self.token.setVisible(bool(hint and progress.lack))
        self._show_buttons()
        self._show_question()
        self.unfold.setVisible(bool(progress.files))
        self._show_files()
        self._draw()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and not self.question.isHidden():
            self._keep()
            return
        super().keyPressEvent(event)

    def _show_buttons(self) -> None:
        state, name = self._progress.state, words.title(self._progress)
        finished, stopped = state is DownloadState.FINISHED, state in (DownloadState.PAUSED, DownloadState.FAILED)
        main = {DownloadState.PAUSED: "Resume", DownloadState.FAILED: "Try again"}.get(state, "Pause")
        self.main.setText("Load" if finished else main)
        self.other.setText(SHOW_FOLDER if finished else "Remove" if stopped else "Cancel")
        self.main.setVisible(not finished or self._progress.is_model)
        self.clear.setVisible(finished)
        for button in (self.main, self.other):
            button.setAccessibleName(f"{button.text()}: {name}")
        self.other.setEnabled(True)  # also where removing it failed
        self._show_load()

    def _show_load(self) -> None:
        """Say on the button whether the model is loaded."""
        finished = self._progress.state is DownloadState.FINISHED
        slot = self._slot
        chosen = finished and slot.failure is None and slot.chosen == self._progress.model_name
        if finished:
            self.main.setText("Loading…" if chosen and slot.loading else "Loaded" if chosen else "Load")
        self.main.setEnabled(not chosen)

    def _fold(self) -> None:
        self._unfolded = not self._unfolded
        self._show_files()

    def _show_files(self) -> None:
        shown = self._unfolded
        number = counted(len(self._progress.files), "file")
        self.unfold.show_text(f"Hide {number}" if shown else number)
        self.unfold.setAccessibleName(f"{self.unfold.text()}: {words.title(self._progress)}")
        if shown:
            self.files.show_files(self._progress.files)
        self.files.setVisible(shown and bool(self._progress.files))

    def _show_question(self) -> None:
        """After a cancelled download has stopped, ask whether to keep its files, if there are any."""
        if not self._cancelled or not self._progress.state.has_ended:
            self.question.hide()
            return
        if self._progress.state is DownloadState.FINISHED:  # it was faster
            self._cancelled = False
            self.question.hide()
        elif not self._progress.done_bytes:
            self._discard()
        elif self.question.isHidden():
            size = file_size(self._progress.done_bytes)
            self.asked.setText(f"{size} of it is here. Keep that, to go on another time?")
            self.remove.setText(f"Remove {size}")
            self.question.show()
            self.keep.setFocus()

    def _press_main(self) -> None:
        state = self._progress.state
        if state is DownloadState.FINISHED:
            self._slot.load(self._progress.model_name)
        elif state.has_ended:
            self._cancelled = False
            self._downloads.resume(self.id)
        else:
            self._downloads.pause(self.id)

    def _press_other(self) -> None:
        if self._progress.state is DownloadState.FINISHED:
            show_folder(Path(self._progress.folder))
            return
        self._cancelled = True
        if self._progress.state.has_ended:
            self._show_question()
        else:
            self._downloads.pause(self.id)

    def _keep(self) -> None:
        self._cancelled = False
        self.question.hide()
        self.main.setFocus()

    def _discard(self) -> None:
        self._cancelled = False
        self.question.hide()
        for button in (self.main, self.other):
            button.setEnabled(False)
        self._downloads.discard(self.id)

    def _draw(self) -> None:
        icon, color = _ICONS.get(self._progress.state, ("download", "accent"))
        picture = line_pixmap(icon, getattr(self._theme.colors, color), _ICON, self.devicePixelRatioF())
        self._picture.setPixmap(picture)

    def paintEvent(self, event: QPaintEvent) -> None:
        line = self.rect().adjusted(LARGE, self.height() - 1, 0, 0)
        QPainter(self).fillRect(line, self._theme.colors.border)
