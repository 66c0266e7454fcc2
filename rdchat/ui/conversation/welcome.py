"""The pages in the transcript's place: the greeting of a new chat, and a model that did not load."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from rdchat.services.engine.engine_events import Failure
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.icons import app_pixmap, line_pixmap
from rdchat.ui.look.labels import Ground, ThemedLabel
from rdchat.ui.look.layouts import Part, column, row, scrolled
from rdchat.ui.look.plain_text import PlainLabel, set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

EXAMPLES = (
    ("Explain something", "Explain in three sentences why the sky is blue."),
    ("Write a message", "Write a short, friendly email that moves a meeting to Thursday."),
    ("Write code", "Write a Python function that counts the words in a text."),
    ("Collect ideas", "Give me five ideas for a rainy Sunday at home."),
)
_GREETING = "Chat with a language model that runs on this machine.\nNothing you write leaves it."
_WIDTH, _BUTTON_WIDTH = 520, 220


class _Page(QWidget):
    """A centred column of limited width, which scrolls where the window is too low for it."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.picture = PlainLabel()

    def _fill(self, *parts: Part) -> None:
        """Show parts below the picture; labels are centred."""
        content = QWidget()
        content.setMaximumWidth(_WIDTH)
        for part in (self.picture, *parts):
            if isinstance(part, PlainLabel):
                part.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        column(None, column(self.picture, *parts, spacing=TIGHT), None, within=content)
        ground = Ground(self._theme, "surface")
        row(None, (content, 1000), None, within=ground, margins=LARGE)
        column(scrolled(ground), within=self)


class WelcomeView(_Page):
    """A new chat: what this is, and prompts to begin with. A click puts one into the composer."""

    example_chosen = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme)
        self.picture.setPixmap(app_pixmap(72, 2))
        self.picture.setAccessibleName("rdchat")
        title = ThemedLabel(theme, "What would you like to know?", points_more=8, bold=True, wraps=True)
        examples = QGridLayout()
        examples.setSpacing(SMALL)
        for place, (name, prompt) in enumerate(EXAMPLES):
            examples.addWidget(self._example(name, prompt), place // 2, place % 2)
        self._fill(MEDIUM, title, TIGHT, ThemedLabel(theme, _GREETING, "muted", 1, wraps=True), LARGE, examples)

    def _example(self, name: str, prompt: str) -> QPushButton:
        button = push_button(name, prompt, lambda: self.example_chosen.emit(prompt))
        button.setAccessibleDescription(prompt)
        button.setMinimumHeight(34)
        button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        return button


class ModelFailedView(_Page):
    """A model that did not load: the failure, and buttons for remedies, which the owner connects."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme)
        title = ThemedLabel(theme, "The model did not load", points_more=6, bold=True, wraps=True)
        self.message = ThemedLabel(theme, wraps=True, selectable=True)
        self.hint = ThemedLabel(theme, "", "muted", wraps=True, selectable=True)
        self.retry = QPushButton("Try again")
        self.choose = QPushButton("Choose another model…")
        self.anyway = QPushButton("Load anyway")
        set_tip(self.anyway, "The machine may become slow, and rdchat may be ended by the system")
        self.read = QPushButton("Read the conversation")
        self.default = QPushButton("Use the default model")
        buttons = QVBoxLayout()  # one below the other, as a Mac's alerts have them: they fit the smallest window
        buttons.setSpacing(SMALL)
        for button in (self.choose, self.default, self.retry, self.anyway, self.read):
            button.setFixedWidth(_BUTTON_WIDTH)
            buttons.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)
        self._fill(SMALL, title, SMALL, self.message, self.hint, LARGE, buttons)
        theme.changed.connect(self._draw_icon)
        self._draw_icon()

    def show_failure(self, failure: Failure, readable: bool, of_default: bool = False) -> None:
        """Say what went wrong.

        Args:
            failure: What to say.
            readable: The open conversation has messages that can still be read.
            of_default: It is the default model that failed.
        """
        self.message.setText(failure.message)
        self.hint.say(failure.hint)
        self.anyway.setVisible(failure.can_load_anyway)
        self.read.setVisible(readable)
        self.default.setVisible(not of_default)

    def _draw_icon(self) -> None:
        self.picture.setPixmap(line_pixmap("warning", self._theme.colors.danger, 44, self.devicePixelRatioF()))
