"""Parts of pages: a notice with buttons, a line with a link, a list of files."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.hub.downloads.download import DownloadFile
from rdchat.hub.hub_errors import HubError
from rdchat.inference.api.model_facts import ModelCard
from rdchat.ui.models.texts import file_text
from rdchat.ui.style.buttons import TextButton, push_button
from rdchat.ui.style.formatting import counted
from rdchat.ui.style.labels import ThemedLabel
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.opening import open_page
from rdchat.ui.style.theme import LARGE, SMALL, Theme


class PageLinks(QObject):
    """Requests of a page of the models window: to show another page, or the dialog for the hub's token.

    Attributes:
        drafters_requested: Emitted with a model: show its drafters, and ask the hub for others.
    """

    downloads_requested = Signal()
    discover_requested = Signal()
    token_requested = Signal()
    drafters_requested = Signal(ModelCard)
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
        self.label = ThemedLabel(theme, "", "muted", wraps=True, selectable=True)
        for label in (self.title, self.label):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.page = push_button("Open Web Page", "", lambda: open_page(self._page))
        self.token = push_button("Enter Token…", "", links.token_requested.emit)
        self.retry = push_button("Try Again", "", self.retry_requested.emit)
        self.action = push_button("", "", self.action_requested.emit)
        self._buttons = (self.page, self.token, self.retry, self.action)
        buttons = column(*(row(None, button, None, spacing=-1) for button in self._buttons))
        layout = column(None, self.title, self.label, SMALL, buttons, None, within=self, margins=LARGE)
        layout.setStretch(0, 2)
        layout.setStretch(layout.count() - 1, 3)

    def show_text(self, title: str, more: str = "", action: str = "") -> None:
        """Show a state; with an action there is a button that emits `action_requested`."""
        self.title.setText(title)
        self.label.show_text(more)
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
        self.label = ThemedLabel(theme, "", "muted", points_more, tabular=True, wraps=True)
        self.link = TextButton("", theme, lambda: self._act())  # noqa: PLW0108  another one with each text
        row((self.label, 1), self.link, within=self)
        self.show_text("")

    def show_text(
        self, text: str, color: str = "muted", link: str = "", act: Callable[[], object] = lambda: None
    ) -> None:
        """Show a text in a colour of `Colors`, and a link that calls `act`."""
        self.label.show_text(text, color)
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
