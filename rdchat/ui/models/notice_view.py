"""A message in place of a list or a model: a state, or an error with buttons for what may help."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.services.models.discover.hub_trouble import HubTrouble
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import open_page
from rdchat.ui.look.theme import LARGE, SMALL, Theme


class NoticeView(QWidget):
    """Shows a sentence or two in the middle, with buttons below."""

    retry_requested = Signal()
    token_requested = Signal()
    action_requested = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._page = ""
        self.title = ThemedLabel(theme, bold=True, wraps=True)
        self.words = ThemedLabel(theme, "", "muted", wraps=True, selectable=True)
        for label in (self.title, self.words):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.page = push_button("Open its page", "", lambda: open_page(self._page))
        self.token = push_button("Enter a token…", "", self.token_requested.emit)
        self.retry = push_button("Try again", "", self.retry_requested.emit)
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

    def show_trouble(self, trouble: HubTrouble, wait_s: int = 0) -> None:
        """Show an error, with buttons for what may help.

        Args:
            trouble: The error.
            wait_s: Seconds until the hub is asked again; 0 if it is not.
        """
        self.show_words(trouble.message, f"Asking again in {wait_s} s." if wait_s else trouble.hint)
        self._page = trouble.page
        self.page.setVisible(bool(trouble.page))
        self.token.setVisible(trouble.wants_token)
        self.retry.setVisible(True)
        self.retry.setText("Try now" if wait_s else "Try again")
