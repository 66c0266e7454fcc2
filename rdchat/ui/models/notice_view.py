"""Messages: a line with a link, or a notice in place of a list or a model with buttons for what may help."""

from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.hub.hub_errors import HubError
from rdchat.inference.api.model_card import ModelCard
from rdchat.ui.look.buttons import TextButton, push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import open_page
from rdchat.ui.look.theme import LARGE, SMALL, Theme


class PageLinks(QObject):
    """Requests of a page of the models window: to show another page, or the dialog for the hub's token."""

    downloads_requested = Signal()
    discover_requested = Signal()
    token_requested = Signal()
    drafters_requested = Signal(ModelCard)  # a model: show its drafters, and ask the hub for others
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

    def show_words(self, title: str, more: str = "", action: str = "") -> None:
        """Show a state; with an action there is a button that emits `action_requested`."""
        self.title.setText(title)
        self.words.say(more)
        for button in self._buttons:
            button.hide()
        self.action.setText(action)
        self.action.setVisible(bool(action))

    def show_trouble(self, trouble: HubError) -> None:
        """Show an error, with buttons for what may help."""
        self.show_words(trouble.message, trouble.hint)
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
        self.say("")

    def say(self, words: str, color: str = "muted", link: str = "", act: Callable[[], object] = lambda: None) -> None:
        """Show a text in a colour of `Colors`, and a link that calls `act`."""
        self.words.say(words, color)
        self.link.setText(link)
        self.link.setVisible(bool(link))
        self._act = act
