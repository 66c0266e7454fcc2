"""What a page of the Models window has beside its list: a column to read, and a notice in place of it."""

from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QScrollArea, QWidget

from rdchat.hub import HubError
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TEXT_WIDTH,
    TIGHT,
    Ground,
    Part,
    Theme,
    ThemedLabel,
    column,
    open_page,
    push_button,
    row,
    scrolled,
)


def reading_area(theme: Theme, *parts: Part) -> QScrollArea:
    """Return parts one below the other, no wider than a text that is easy to read."""
    content = QWidget()
    content.setMaximumWidth(TEXT_WIDTH)
    margins = (LARGE, LARGE - TIGHT, LARGE, LARGE)
    column(*parts, None, within=content, spacing=MEDIUM + TIGHT, margins=margins)
    ground = Ground(theme, "surface")
    row((content, 1000), None, within=ground, spacing=-1)
    return scrolled(ground)


class PageLinks(QObject):
    """Requests of a page of the models window: to show another page, or the dialog for the hub's token."""

    discover_requested = Signal()
    token_requested = Signal()


class NoticeView(QWidget):
    """Shows a state or an error in the middle, with buttons below.

    Args:
        links: Open the token's dialog.
        theme: The appearance to follow.
        retry: Tries again after an error.
        act: What the button of `show_text` does.
    """

    def __init__(
        self, links: PageLinks, theme: Theme, retry: Callable[[], object] | None, act: Callable[[], object] | None
    ) -> None:
        super().__init__()
        self._page = ""
        self.title = ThemedLabel(theme, bold=True, wraps=True)
        self.label = ThemedLabel(theme, "", "muted", wraps=True, selectable=True)
        for label in (self.title, self.label):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.page = push_button("Open Web Page", "", lambda: open_page(self._page))
        self.token = push_button("Enter Token…", "", links.token_requested.emit)
        self.retry = push_button("Try Again", "", retry)
        self.action = push_button("", "", act)
        self._buttons = (self.page, self.token, self.retry, self.action)
        buttons = column(*(row(None, button, None, spacing=-1) for button in self._buttons))
        layout = column(None, self.title, self.label, SMALL, buttons, None, within=self, margins=LARGE)
        layout.setStretch(0, 2)
        layout.setStretch(layout.count() - 1, 3)

    def show_text(self, title: str, more: str = "", action: str = "") -> None:
        """Show a state in a sentence or two, and a button with the text `action` if that is not empty."""
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
