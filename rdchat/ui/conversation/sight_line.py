"""The line in the message field about images that the model does not see."""

from collections.abc import Sequence

from PySide6.QtCore import QPoint, Signal
from PySide6.QtWidgets import QMenu, QWidget

from rdchat.hub.newcomers import Suggestion
from rdchat.inference.api.model_facts import NO_VISION, ModelCard
from rdchat.services.background.background_work import FolderSearch
from rdchat.services.chat.chat_context import ContextMeter
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.files.pending_files import PendingFiles
from rdchat.services.models.fit import Machine
from rdchat.services.models.larger_model import smallest_that_sees
from rdchat.services.models.service_base import DeviceMemory
from rdchat.ui.style.buttons import TextButton, add_action, pop_up
from rdchat.ui.style.labels import ThemedLabel, button_text
from rdchat.ui.style.layouts import row
from rdchat.ui.style.theme import SMALL, TIGHT, Theme


class SightLine(QWidget):
    """Says that the model does not see, and offers a model that does; hidden without images.

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
        self._installed: FolderSearch | None = None
        self._more: Sequence[ModelCard] = ()
        self._memory: DeviceMemory | None = None
        self.text = ThemedLabel(theme, "", "warning", -1, wraps=True)
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
        """The model to get, and whether it fits this machine; Discover marks one that does not."""
        now = self._memory.now if self._memory else None
        return smallest_that_sees(Machine(now, self._slot.dtype) if now else None)

    def update_line(self) -> None:
        """Show or hide the line."""
        info = None if self._slot.loading else self._slot.info
        use = self._meter.use if self._meter else None
        typed = bool(self._files.images)
        is_blind = info is not None and not info.sees and (typed or (use is not None and use.images > 0))
        if info is not None and is_blind:
            what = "images" if typed else "the images of this chat"
            seeing = self.seeing
            here = info.path in [card.path for card in seeing]
            text = f"{info.name} does not see {what}. {info.blind or 'It only gets a note that there are some.'}"
            text = f"{info.name} sees images once it is loaded again." if here else text
            self.text.show_text(text, "warning" if typed else "muted")
            self.fetch.setVisible(info.blind == NO_VISION and not here and self._installed is not None)
            one, *others = [_name(card) for card in seeing] or [""]
            text = "Use a Model That Sees" if others else f"Use {one}" if one else "Find a Model That Sees…"
            suggested, fits = self._suggested
            self.button.setText(button_text(f"Get {suggested.name}…" if fits and not one else text))
        if is_blind and self.isHidden() and self._installed is not None and self._memory is not None:
            self._installed.search_folders()
            self._memory.ask_again()
        self.setVisible(is_blind)
        self.button.setVisible(self._installed is not None)

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
