"""The buttons for the shown model, and a line about the last action."""

from collections.abc import Callable

from PySide6.QtWidgets import QPushButton, QWidget

from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SHOW_FOLDER
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.link_button import LinkButton
from rdchat.ui.models.thin_bar import BusyBar


class ActionBar(QWidget):
    """Buttons below a line of text. Attributes are the parts."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.status = ThemedLabel(theme, "", "muted", wraps=True)
        self.action = LinkButton("", theme)
        self.progress = BusyBar("Progress", 6)
        self.stop, self.reveal, self.verify, self.delete, self.load = (
            push_button(words, "") for words in ("Stop", SHOW_FOLDER, "Verify", "Delete…", "Load")
        )
        self._do: Callable[[], object] = lambda: None
        self.action.clicked.connect(self._press)
        self.say("")
        self.show_progress(None)
        said = row((self.status, 1), self.action)
        running = row((self.progress, 1), self.stop)
        buttons = row(self.reveal, self.verify, self.delete, None, self.load)
        column(said, running, buttons, within=self, spacing=TIGHT, margins=(LARGE, SMALL, LARGE, MEDIUM))

    def _press(self) -> None:
        self._do()

    def say(self, words: str, color: str = "muted", action: str = "", do: Callable[[], object] | None = None) -> None:
        """Show the result of an action, with one link; an empty string hides the line."""
        self.status.set_color(color)
        self.status.say(words)
        self.action.show_text(action)
        self.action.setVisible(bool(action))
        self._do = do or (lambda: None)

    def show_progress(self, share: float | None) -> None:
        """Show a progress from 0 to 1; None hides the bar."""
        for widget in (self.progress, self.stop):
            widget.setVisible(share is not None)
        if share is not None:
            self.progress.show_share(share)

    def offer(self, button: QPushButton, words: str, reason: str = "", tip: str = "") -> None:
        """Name a button; with a reason it cannot be pressed, and says why."""
        button.setText(words)
        button.setEnabled(not reason)
        set_tip(button, reason or tip)
        button.setAccessibleDescription(reason or tip)
