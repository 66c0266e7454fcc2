"""The page of a new chat, with its offer of a larger model, and the line about images that the model does not see."""

from collections.abc import Callable, Sequence
from functools import cache

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QMenu, QPushButton, QSizePolicy, QWidget

from rdchat.hub import Suggestion, free_bytes
from rdchat.inference.api import MAX_IMAGES, NO_VISION, ModelCard, ModelInfo, ranked_model, remote_model
from rdchat.services.background_work import FolderSearch
from rdchat.services.chat.chat_prompt import LeftOut
from rdchat.services.chat.context_meter import ContextMeter, ContextUse
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.files.pending_files import PendingFiles
from rdchat.services.models.fit import Machine, sizes_suggested
from rdchat.services.models.larger_model import LargerModel, check_text, smallest_that_sees
from rdchat.services.models.model_sources import DeviceMemory
from rdchat.ui.files.attaching import SharedRow
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TIGHT,
    Action,
    Card,
    Ground,
    IconButton,
    PlainLabel,
    TextButton,
    Theme,
    ThemedLabel,
    add_action,
    app_pixmap,
    button_text,
    column,
    formatting,
    pop_up,
    push_button,
    row,
    scrolled,
    small_text,
    visible_text,
)
from rdchat.wording import size_text

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
# Models with fewer weights get the easy questions. A remote model may not say how many it has, which is 0 here.
_LARGE_PARAMETERS = 1_000_000_000
_WIDTH = 520
_QUESTION = "What would you like to know?"
_FITS = f"It fits {formatting.MACHINE}."


def greeting(model: ModelSlot) -> str:
    """Return where the words of a new chat go, by the model that was chosen."""
    if remote := remote_model(model.chosen):
        address = f" ({model.info.device})" if model.info else ""
        return f"Answers come from {remote[0]}{address}.\nWhat you write is sent there."
    # The first host is this computer.
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
        # A model keeps its row, and so the focus in it, when its speed becomes known.
        self._make_row = cache(make_row)
        self.title = ThemedLabel(theme, "", bold=True, wraps=True)
        self.detail = ThemedLabel(theme, "", "muted", wraps=True)
        self.check = small_text(theme)
        self.row = QWidget()
        self.use = push_button("Use It", act=larger.load_offered)
        self.use.setDefault(True)
        self.other = TextButton("Other Models…", theme, show)
        close = IconButton("close", "Close this offer", theme, act=larger.decline)
        texts = column(row((self.title, 1), close), self.detail, self.check, spacing=TIGHT)
        self._buttons = row(self.use, None, self.other)
        column(texts, self._buttons, within=self, margins=(MEDIUM, SMALL, SMALL, MEDIUM))
        larger.changed.connect(self._show_offer)
        self._show_offer()

    def _show_offer(self) -> None:
        """Show the larger model: one to download has a row with its button, one that is here a button to use it."""
        offered = self._larger.offered
        machine = self._larger.machine
        if isinstance(offered, Suggestion) and machine is not None:
            size = offered.weight_bytes + offered.drafter.weight_bytes
            need = machine.need(sizes_suggested(offered), offered.drafter.weight_bytes).total_bytes
            memory = f"It needs {size_text(need)} of {size_text(machine.memory.total_bytes)} of memory."
            free = free_bytes()
            room = f" The disk has only {size_text(free)} free." if free is not None and free < size else ""
            self.title.setText(f"Get a better model: {size_text(size)}{speed_text(self._larger.words)}")
            self.detail.setText(f"{offered.name}. {offered.good_for}")
            self.check.show_text(f"{memory}{room} {check_text(offered)}")
            row_of_it = self._make_row(offered)
            if row_of_it is not self.row:
                self.row.hide()
                self.row = row_of_it
                self._buttons.insertWidget(0, row_of_it, 1000)
                self._buttons.setAlignment(self.other, Qt.AlignmentFlag.AlignTop)
        elif isinstance(offered, ModelCard):
            self.title.setText(f"Use a better model: {offered.name.rpartition('/')[2]}")
            self.detail.setText(f"It is here already, from {offered.origin}. {_FITS}")
            self.check.hide()
        self.row.setVisible(isinstance(offered, Suggestion))
        self.use.setVisible(isinstance(offered, ModelCard))
        self.setVisible(offered is not None)


def speed_text(words: float) -> str:
    """Return about how fast a model writes here, such as ", about 5 words a second here"; empty where it is unknown."""
    if not words:
        return ""
    if words < 1.5:
        return ", about a word a second or less here"
    return f", about {float(f'{words:.1g}'):.0f} words a second here"


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
        self.title = ThemedLabel(theme, _QUESTION, points_more=8, bold=True, wraps=True)
        self.greeting = ThemedLabel(theme, "", "muted", 1, wraps=True)
        self.files = SharedRow(theme)
        for label in (picture, self.title, self.greeting):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._offer = column()
        self.buttons = [self._starter_button(question) for question in starters(None)]
        content = QWidget()
        ground = Ground(theme, "surface")
        content.setMaximumWidth(_WIDTH)
        # What is offered outside of projects.
        self._offers = QWidget()
        column(self._offer, *self.buttons, within=self._offers)
        parts = (picture, MEDIUM, self.title, TIGHT, self.greeting, LARGE, self.files, self._offers)
        column(None, column(*parts, spacing=TIGHT), None, within=content)
        row(None, (content, 1000), None, within=ground, margins=LARGE)
        column(scrolled(ground), within=self)

    def add_offer(self, offer: ModelOffer) -> None:
        """Show an offer above the questions."""
        self._offer.addWidget(offer)
        self._offer.addSpacing(MEDIUM)

    def show_project(self, chat: OpenChat, use: ContextUse | None) -> None:
        """Show the name of the chat's project and its files; outside of projects what one may ask for."""
        folder = chat.project_folder
        self.title.setText(visible_text(folder.name) if folder else _QUESTION)
        self.files.show_shared(folder.files if folder else (), use.in_passages if use else None)
        self._offers.setVisible(folder is None)

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


class SightLine(QWidget):
    """Says that the model does not see, and offers a model that does; or that it does not get all images.

    Hidden where it gets all of them, or there are none.

    Args:
        slot: The model.
        files: The files of a message that is not sent yet.
        theme: The appearance to follow.
        meter: Counts the images of the open chat; None leaves them out.

    Attributes:
        model_requested: Emitted with the hub id of a model to get.
        vision_requested: Emitted if the person wants the vision of the model's original.
    """

    model_requested = Signal(str)
    vision_requested = Signal()

    def __init__(self, slot: ModelSlot, files: PendingFiles, theme: Theme, meter: ContextMeter | None = None) -> None:
        super().__init__()
        self._slot = slot
        self._files = files
        self._meter = meter
        # None until `offer_models`: without it, nothing is offered, as in the quick window.
        self._installed: FolderSearch | None = None
        # Models that the Models window knows besides.
        self._more: Sequence[ModelCard] = ()
        self._memory: DeviceMemory | None = None
        self.text = small_text(theme, "", "warning")
        self.button = TextButton("Choose a model that sees", theme, self._act)
        self.fetch = TextButton("Get Its Vision…", theme, self.vision_requested.emit)
        row((self.text, 1), self.fetch, self.button, within=self, spacing=SMALL, margins=(TIGHT, 0, 0, 0))
        for changed in (files.changed, slot.loaded, slot.load_started, slot.failed, slot.unload_started):
            changed.connect(self.update_line)
        if meter is not None:
            meter.changed.connect(self.update_line)
        self.update_line()

    def offer_models(self, installed: FolderSearch, memory: DeviceMemory) -> None:
        """Offer the models of a search that see; where there are none, a suggested one that fits the memory."""
        self._installed = installed
        self._memory = memory
        installed.changed.connect(self.update_line)
        memory.changed.connect(self.update_line)

    def offer_models_window(self, cards: Sequence[ModelCard]) -> None:
        """Offer the models of the Models window, too: it hears of downloads."""
        self._more = cards
        self.update_line()

    @property
    def seeing(self) -> Sequence[ModelCard]:
        """The installed models that see; the loaded model alone, if its vision was fetched since."""
        cards = (*self._more, *(self._installed.results if self._installed else ()))
        results = {card.model: card for card in cards if card.sees and card.can_be_loaded}
        own = self._slot.info.path if self._slot.info is not None else None
        return [card for card in results.values() if card.path == own] or [*results.values()]

    @property
    def _suggested(self) -> tuple[Suggestion, bool]:
        """The model to get, and whether it fits this machine; the page Find warns of one that does not."""
        now = self._memory.now if self._memory else None
        return smallest_that_sees(Machine(now, self._slot.dtype) if now else None)

    @property
    def left_out(self) -> LeftOut:
        """The images of the open chat that a model does not get although it sees."""
        use = self._meter.use if self._meter else None
        info = self._slot.info
        return use.left_out if use and info and info.sees else {}

    def update_line(self) -> None:
        """Show or hide the line: a model that does not see, else images that a model that sees does not get."""
        info = None if self._slot.loading else self._slot.info
        use = self._meter.use if self._meter else None
        has_images = bool(self._files.images) or (use is not None and use.images > 0)
        is_blind = info is not None and not info.sees and has_images
        if info is not None and is_blind:
            self._show_blind(info)
        excess = sum(map(len, self.left_out.values()))
        if excess:
            oldest = f"The {excess:,} oldest images" if excess > 1 else "The oldest image"
            left_out = f"{oldest} of this chat {'are' if excess > 1 else 'is'} left out"
            self.text.show_text(f"{left_out}: the model gets the latest {MAX_IMAGES}.", "muted")
            self.fetch.hide()
        self.setVisible(is_blind or excess > 0)
        self.button.setVisible(is_blind and self._installed is not None)

    def _show_blind(self, info: ModelInfo) -> None:
        """Say that the model does not see, and offer what the person can do about it.

        The button chooses among several models that see, else loads the one, else gets a suggested one; `_act` does
        so. The other one fetches the vision that the model's original has (`NO_VISION`).
        """
        typed = bool(self._files.images)
        what = "images" if typed else "the images of this chat"
        seeing = self.seeing
        was_fetched = info.path in [card.path for card in seeing]
        text = f"{info.name} does not see {what}. {info.blind or 'It is only told that there are some.'}"
        if was_fetched:
            text = f"{info.name} sees images once it is loaded again."
        self.text.show_text(text, "warning" if typed else "muted")
        self.fetch.setVisible(info.blind == NO_VISION and not was_fetched and self._installed is not None)
        suggested, fits = self._suggested
        if len(seeing) > 1:
            offer = "Use a Model That Sees"
        elif seeing:
            offer = f"Use {_name(seeing[0])}"
        else:
            offer = f"Get {suggested.name}…" if fits else "Find a Model That Sees…"
        self.button.setText(button_text(offer))
        if self.isHidden() and self._installed is not None and self._memory is not None:
            # It appears now: look again for installed models, and how much memory there is.
            self._installed.search_folders()
            self._memory.ask_again()

    def _act(self) -> None:
        """Load the model that sees, or let the person choose one; the message stays in the field."""
        if not self.seeing:
            self.model_requested.emit(self._suggested[0].repository)
        elif len(self.seeing) == 1:
            self._slot.load_model(self.seeing[0].model)
        else:
            menu = QMenu(self)
            for card in self.seeing:
                add_action(menu, _name(card), lambda model=card.model: self._slot.load_model(model))  # type: ignore[misc]
            pop_up(menu, self.button.mapToGlobal(QPoint(0, self.button.height())))


def _name(card: ModelCard) -> str:
    return card.name.rpartition("/")[2]
