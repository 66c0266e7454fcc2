"""What stands in a list's or a card's place: what goes on, or what went wrong and what to do about it."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from rdchat.services.models.discover.hub_trouble import HubTrouble
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import row
from rdchat.ui.look.opening import open_page
from rdchat.ui.look.theme import LARGE, SMALL, Theme


class NoticeView(QWidget):
    """A sentence or two in the middle, with what can be pressed."""

    retry_requested = Signal()
    token_requested = Signal()
    clear_requested = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._page = ""
        self.title = ThemedLabel(theme, bold=True)
        self.words = ThemedLabel(theme, "", "muted")
        for label in (self.title, self.words):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            label.setWordWrap(True)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.page = QPushButton("Open its page")
        self.token = QPushButton("Enter a token…")
        self.retry = QPushButton("Try again")
        self.clear = QPushButton("Clear the filters")
        self.page.clicked.connect(lambda: open_page(self._page))
        self.token.clicked.connect(self.token_requested)
        self.retry.clicked.connect(self.retry_requested)
        self.clear.clicked.connect(self.clear_requested)
        buttons = QVBoxLayout()
        buttons.setSpacing(SMALL)
        for button in (self.page, self.token, self.retry, self.clear):
            button.setAutoDefault(False)
            row_layout = row(None, button, None, spacing=-1)
            buttons.addLayout(row_layout)
        column = QVBoxLayout(self)
        column.setContentsMargins(LARGE, LARGE, LARGE, LARGE)
        column.setSpacing(SMALL)
        column.addStretch(2)
        column.addWidget(self.title)
        column.addWidget(self.words)
        column.addSpacing(SMALL)
        column.addLayout(buttons)
        column.addStretch(3)

    def show_words(self, title: str, more: str = "", *, can_clear: bool = False) -> None:
        """Say what goes on."""
        self._show(title, more)
        self.clear.setVisible(can_clear)

    def show_trouble(self, trouble: HubTrouble, wait_s: int = 0) -> None:
        """Say what went wrong, and offer what may help.

        Args:
            trouble: What.
            wait_s: Seconds until it is tried again by itself; 0 where it is not.
        """
        hint = f"Asking again in {wait_s} s." if wait_s else trouble.hint
        self._show(trouble.message, hint)
        self._page = trouble.page
        self.page.setVisible(bool(trouble.page))
        self.token.setVisible(trouble.wants_token)
        self.retry.setVisible(True)
        self.retry.setText("Try now" if wait_s else "Try again")

    def _show(self, title: str, more: str) -> None:
        self.title.setText(title)
        self.words.say(more)
        for button in (self.page, self.token, self.retry, self.clear):
            button.hide()
