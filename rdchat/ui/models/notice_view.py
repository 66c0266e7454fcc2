"""What is shown in the place of a list or a model: the state, or what went wrong and what to do about it."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.services.models.discover.hub_trouble import HubTrouble
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import open_page
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import LARGE, SMALL, Theme

_ICON = 36


class NoticeView(QWidget):
    """A sentence or two in the middle, with buttons.

    Args:
        theme: The appearance to follow.
        icon: Drawn over the words; empty for none.
    """

    retry_requested = Signal()
    token_requested = Signal()
    action_requested = Signal()

    def __init__(self, theme: Theme, icon: str = "") -> None:
        super().__init__()
        self._theme, self._icon, self._page = theme, icon, ""
        self._picture = PlainLabel()
        self._picture.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._picture.setVisible(bool(icon))
        self.title = ThemedLabel(theme, bold=True, wraps=True)
        self.words = ThemedLabel(theme, "", "muted", wraps=True, selectable=True)
        for label in (self.title, self.words):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.page, self.token = push_button("Open its page", ""), push_button("Enter a token…", "")
        self.retry, self.action = push_button("Try again", ""), push_button("", "")
        self.page.clicked.connect(lambda: open_page(self._page))
        self.token.clicked.connect(self.token_requested)
        self.retry.clicked.connect(self.retry_requested)
        self.action.clicked.connect(self.action_requested)
        self._buttons = (self.page, self.token, self.retry, self.action)
        buttons = column(*(row(None, button, None, spacing=-1) for button in self._buttons))
        words = (self._picture, self.title, self.words, SMALL)
        layout = column(None, *words, buttons, None, within=self, margins=LARGE)
        layout.setStretch(0, 2)
        layout.setStretch(layout.count() - 1, 3)
        theme.changed.connect(self._draw)
        self._draw()

    def show_words(self, title: str, more: str = "", action: str = "") -> None:
        """Show a state; with an action there is a button that emits `action_requested`."""
        self.title.setText(title)
        self.words.say(more)
        for button in self._buttons:
            button.hide()
        self.action.setText(action)
        self.action.setVisible(bool(action))

    def show_trouble(self, trouble: HubTrouble, wait_s: int = 0) -> None:
        """Show what went wrong, with buttons for what may help.

        Args:
            trouble: What went wrong.
            wait_s: Seconds until the hub is asked again; 0 where it is not.
        """
        self.show_words(trouble.message, f"Asking again in {wait_s} s." if wait_s else trouble.hint)
        self._page = trouble.page
        self.page.setVisible(bool(trouble.page))
        self.token.setVisible(trouble.wants_token)
        self.retry.setVisible(True)
        self.retry.setText("Try now" if wait_s else "Try again")

    def _draw(self) -> None:
        if self._icon:
            ratio = self.devicePixelRatioF()
            self._picture.setPixmap(line_pixmap(self._icon, self._theme.colors.muted, _ICON, ratio))
