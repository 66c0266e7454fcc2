"""The page of a new chat: where the words go, the offer of a larger model, and questions to begin with."""

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QSizePolicy, QWidget

from rdchat.hub.cache_layout import free_bytes
from rdchat.hub.newcomers import Suggestion
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.model_facts import ModelCard, ranked_model, remote_model
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.models.larger_model import LargerModel
from rdchat.ui.style import formatting
from rdchat.ui.style.buttons import Action, IconButton, TextButton, push_button
from rdchat.ui.style.labels import Card, Ground, PlainLabel, ThemedLabel
from rdchat.ui.style.layouts import column, row, scrolled
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme, app_pixmap

SMALL_STARTERS = (
    "What is photosynthesis?",
    "What is the capital of Japan?",
    "Write a short story about a cat.",
)
"""Questions that the default model was seen to answer rightly."""
STARTERS = (
    "Explain in five sentences how a vaccine works.",
    "Write a friendly email that moves a meeting to Thursday.",
    "Write a Python function that counts the words in a text.",
)
# Models with fewer weights get the small questions. Remote ones may not say how many they have.
_LARGE_PARAMETERS = 1_000_000_000
_WIDTH = 520
_FITS = f"It fits {formatting.MACHINE}."


def greeting(model: ModelSlot) -> str:
    """Return where the words of a new chat go, by the model that was chosen."""
    if remote := remote_model(model.chosen):
        address = f" ({model.info.device})" if model.info else ""
        return f"Answers come from {remote[0]}{address}.\nWhat you write is sent there."
    hosts, _ = ranked_model(model.chosen) or ((), None)
    if others := ", ".join(hosts[1:]):
        return f"Answers come from {formatting.MACHINE} together with {others}.\nWhat you write is sent to all of them."
    return f"Chat with a language model that runs on {formatting.MACHINE}.\nNothing you write leaves it."


def starters(info: ModelInfo | None) -> tuple[str, ...]:
    """Return three questions that a model can answer."""
    is_small = info is None or 0 < info.parameters < _LARGE_PARAMETERS
    return SMALL_STARTERS if is_small else STARTERS


class ModelOffer(Card):
    """Offers a larger model: one that is on this machine to use, or one to download, here and now.

    Args:
        larger: Chooses the model.
        make_row: Makes the row that downloads a suggestion, and shows how far that is.
        show: Shows all suggestions in the Models window.
        theme: The appearance to follow.
    """

    def __init__(
        self, larger: LargerModel, make_row: Callable[[Suggestion], QWidget], show: Action, theme: Theme
    ) -> None:
        super().__init__(theme)
        self._larger = larger
        self._make_row = make_row
        self.title = ThemedLabel(theme, "", bold=True, wraps=True)
        self.detail = ThemedLabel(theme, "", "muted", wraps=True)
        self.row = QWidget()
        self.use = push_button("Use It", act=larger.load_offered)
        self.use.setDefault(True)
        other = TextButton("Other Models…", theme, show)
        close = IconButton("close", "Close this offer", theme, act=larger.decline)
        head = row((self.title, 1), other, close)
        self._parts = column(
            head, self.detail, row(self.use, None), within=self, margins=(MEDIUM, SMALL, SMALL, MEDIUM)
        )
        larger.changed.connect(self._show_offer)
        self._show_offer()

    def _show_offer(self) -> None:
        offered = self._larger.offered
        self.row.hide()
        if isinstance(offered, Suggestion):
            free = free_bytes()
            room = f" The disk has {formatting.file_size(free)} free." if free is not None else ""
            self.title.setText(f"Get {offered.name}")
            self.detail.setText(f"{offered.good_for} {_FITS}{room} The small model answers until it is here.")
            self.row = self._make_row(offered)
            self._parts.addWidget(self.row)
        elif offered is not None:
            self.title.setText(f"{offered.name.rpartition('/')[2]} is here already, from {offered.origin}")
            self.detail.setText(f"{_FITS} It is larger than the model that answers now.")
        self.use.setVisible(isinstance(offered, ModelCard))
        self.setVisible(offered is not None)


class WelcomeView(QWidget):
    """The page of a new chat. A click puts one of its questions into the composer.

    It is a centred column of limited width, which scrolls if the window is not high enough.
    """

    starter_chosen = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        picture = PlainLabel()
        picture.setPixmap(app_pixmap(48, 2))
        picture.setAccessibleName("rdchat")
        title = ThemedLabel(theme, "What would you like to know?", points_more=8, bold=True, wraps=True)
        self.greeting = ThemedLabel(theme, "", "muted", 1, wraps=True)
        for label in (picture, title, self.greeting):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._offer = column()
        self.buttons = [self._starter_button(question) for question in starters(None)]
        content = QWidget()
        ground = Ground(theme, "surface")
        content.setMaximumWidth(_WIDTH)
        questions = column(*self.buttons)
        parts = (picture, MEDIUM, title, TIGHT, self.greeting, LARGE, self._offer, questions)
        column(None, column(*parts, spacing=TIGHT), None, within=content)
        row(None, (content, 1000), None, within=ground, margins=LARGE)
        column(scrolled(ground), within=self)

    def add_offer(self, offer: ModelOffer) -> None:
        """Show an offer above the questions."""
        self._offer.addWidget(offer)
        self._offer.addSpacing(MEDIUM)

    def show_model(self, model: ModelSlot) -> None:
        """Show where the words go, and questions for the loaded model; those of before stay while one is loaded."""
        self.greeting.setText(greeting(model))
        if model.info is not None:
            for button, question in zip(self.buttons, starters(model.info), strict=True):
                button.setText(question)

    def _starter_button(self, question: str) -> QPushButton:
        button = push_button(question, act=lambda: self.starter_chosen.emit(button.text()))
        button.setMinimumHeight(34)
        button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        return button
