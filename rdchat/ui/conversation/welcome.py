"""The greeting in the transcript's place, in a new chat."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QPushButton, QSizePolicy, QWidget

from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.icons import app_pixmap
from rdchat.ui.style.labels import Ground, PlainLabel, ThemedLabel
from rdchat.ui.style.layouts import column, row, scrolled
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

EXAMPLES = (
    ("Explain something", "Explain in three sentences why the sky is blue."),
    ("Write a message", "Write a short, friendly email that moves a meeting to Thursday."),
    ("Write code", "Write a Python function that counts the words in a text."),
    ("Collect ideas", "Give me five ideas for a rainy Sunday at home."),
)
_GREETING = "Chat with a language model that runs on this machine.\nNothing you write leaves it."
_WIDTH = 520


class WelcomeView(QWidget):
    """A new chat: what this is, and prompts to begin with. A click puts one into the composer.

    It is a centred column of limited width, which scrolls where the window is too low for it.
    """

    example_chosen = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        picture = PlainLabel()
        picture.setPixmap(app_pixmap(72, 2))
        picture.setAccessibleName("rdchat")
        title = ThemedLabel(theme, "What would you like to know?", points_more=8, bold=True, wraps=True)
        greeting = ThemedLabel(theme, _GREETING, "muted", 1, wraps=True)
        for label in (picture, title, greeting):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        examples = QGridLayout()
        examples.setSpacing(SMALL)
        for index, (name, prompt) in enumerate(EXAMPLES):
            examples.addWidget(self._example(name, prompt), index // 2, index % 2)
        content, ground = QWidget(), Ground(theme, "surface")
        content.setMaximumWidth(_WIDTH)
        parts = (picture, MEDIUM, title, TIGHT, greeting, LARGE, examples)
        column(None, column(*parts, spacing=TIGHT), None, within=content)
        row(None, (content, 1000), None, within=ground, margins=LARGE)
        column(scrolled(ground), within=self)

    def _example(self, name: str, prompt: str) -> QPushButton:
        button = push_button(name, prompt, lambda: self.example_chosen.emit(prompt))
        button.setAccessibleDescription(prompt)
        button.setMinimumHeight(34)
        button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        return button
