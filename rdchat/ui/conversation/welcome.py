"""The pages in the transcript's place: the greeting of a new chat, and a model that did not load."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from rdchat.services.engine.engine_events import Failure
from rdchat.ui.look.icons import app_pixmap, line_pixmap
from rdchat.ui.look.labels import Ground, ThemedLabel
from rdchat.ui.look.plain_text import PlainLabel, set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

EXAMPLES = (
    ("Explain something", "Explain in three sentences why the sky is blue."),
    ("Write a message", "Write a short, friendly email that moves a meeting to Thursday."),
    ("Write code", "Write a Python function that counts the words in a text."),
    ("Collect ideas", "Give me five ideas for a rainy Sunday at home."),
)
_WIDTH, _BUTTON_WIDTH = 520, 220


class WelcomeView(QWidget):
    """A new chat: what this is, and prompts to begin with. A click puts one into the composer."""

    example_chosen = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        picture = PlainLabel()
        picture.setPixmap(app_pixmap(72, 2))
        picture.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        picture.setAccessibleName("rdchat")
        title = _centred(ThemedLabel(theme, "What would you like to know?", points_more=8, bold=True))
        words = _centred(
            ThemedLabel(
                theme,
                "Chat with a language model that runs on this machine.\nNothing you write leaves it.",
                "muted",
                1,
            )
        )
        examples = QGridLayout()
        examples.setSpacing(SMALL)
        for place, (name, prompt) in enumerate(EXAMPLES):
            examples.addWidget(self._example(name, prompt), place // 2, place % 2)
        column = _column(self, theme)
        column.addWidget(picture)
        column.addSpacing(MEDIUM)
        column.addWidget(title)
        column.addSpacing(TIGHT)
        column.addWidget(words)
        column.addSpacing(LARGE + TIGHT)
        column.addLayout(examples)

    def _example(self, name: str, prompt: str) -> QPushButton:
        button = QPushButton(name)
        set_tip(button, prompt)
        button.setAccessibleDescription(prompt)
        button.setMinimumHeight(34)
        button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        button.clicked.connect(lambda: self.example_chosen.emit(prompt))
        return button


class ModelFailedView(QWidget):
    """A model that did not load: what happened, and buttons for what to do; who shows it connects them."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._picture = PlainLabel()
        self._picture.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        title = _centred(ThemedLabel(theme, "The model did not load", points_more=6, bold=True))
        self.message = _centred(ThemedLabel(theme))
        self.hint = _centred(ThemedLabel(theme, "", "muted"))
        for label in (self.message, self.hint):
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
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
        column = _column(self, theme)
        column.addWidget(self._picture)
        column.addSpacing(SMALL)
        column.addWidget(title)
        column.addSpacing(SMALL)
        column.addWidget(self.message)
        column.addWidget(self.hint)
        column.addSpacing(LARGE)
        column.addLayout(buttons)
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
        self.hint.setText(failure.hint)
        self.hint.setVisible(bool(failure.hint))
        self.anyway.setVisible(failure.can_load_anyway)
        self.read.setVisible(readable)
        self.default.setVisible(not of_default)

    def _draw_icon(self) -> None:
        color = self._theme.colors.danger
        self._picture.setPixmap(line_pixmap("warning", color, 44, self.devicePixelRatioF()))


def _centred(label: ThemedLabel) -> ThemedLabel:
    label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
    label.setWordWrap(True)
    return label


def _column(view: QWidget, theme: Theme) -> QVBoxLayout:
    """Return a centred column of limited width that scrolls where the window is too low for it."""
    content = QWidget()
    content.setMaximumWidth(_WIDTH)
    ground = Ground(theme, "surface")
    across = QHBoxLayout(ground)
    across.setContentsMargins(LARGE, LARGE, LARGE, LARGE)
    across.addStretch(1)
    across.addWidget(content, 1000)
    across.addStretch(1)
    column = QVBoxLayout(content)
    column.setContentsMargins(0, 0, 0, 0)
    column.addStretch(1)
    inside = QVBoxLayout()
    column.addLayout(inside)
    column.addStretch(1)
    scroll = QScrollArea()
    scroll.setFrameShape(QScrollArea.Shape.NoFrame)
    scroll.setWidgetResizable(True)
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    scroll.setWidget(ground)
    outer = QVBoxLayout(view)
    outer.setContentsMargins(0, 0, 0, 0)
    outer.addWidget(scroll)
    return inside
