"""The line below images that are not sent yet, when the model does not see."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Signal
from PySide6.QtWidgets import QMenu, QWidget

from rdchat.inference.api.model_facts import NO_VISION, ModelCard
from rdchat.services.background.background_work import FolderSearch
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.files.pending_files import PendingFiles
from rdchat.ui.style.buttons import TextButton, add_action
from rdchat.ui.style.labels import ThemedLabel, button_text
from rdchat.ui.style.layouts import row
from rdchat.ui.style.theme import SMALL, TIGHT, Theme

if TYPE_CHECKING:
    from rdchat.services.models.library import Library


class SightLine(QWidget):
    """Says that the model does not see, and offers the installed models that do; hidden without images.

    Args:
        slot: The model.
        files: The files of the open chat's message.
        theme: The appearance to follow.

    Attributes:
        models_requested: Emitted if none is installed, and the person wants one.
        vision_requested: Emitted if the person wants the vision of the model's original.
    """

    models_requested, vision_requested = Signal(), Signal()

    def __init__(self, slot: ModelSlot, files: PendingFiles, theme: Theme) -> None:
        super().__init__()
        self._slot, self._files = slot, files
        self._sources: list[FolderSearch | Library] = []
        self.text = ThemedLabel(theme, "", "warning", -1, wraps=True)
        self.button = TextButton("Choose a model that sees", theme, self._act)
        self.fetch = TextButton("Get Its Vision…", theme, self.vision_requested.emit)
        row((self.text, 1), self.fetch, self.button, within=self, spacing=SMALL, margins=(TIGHT, 0, 0, 0))
        for changed in (files.changed, slot.loaded, slot.load_started, slot.failed, slot.unload_started):
            changed.connect(self.refresh)
        self.refresh()

    def offer(self, source: "FolderSearch | Library") -> None:
        """Offer the models of a search that see, and those of the Models window, which hears of downloads."""
        self._sources.append(source)
        source.changed.connect(self.refresh)

    @property
    def seeing(self) -> Sequence[ModelCard]:
        """The installed models that see; the loaded model alone, if its vision was fetched since."""
        sources = (each.results if isinstance(each, FolderSearch) else each.models for each in self._sources)
        found = {card.model: card for cards in sources for card in cards if card.sees and card.can_be_loaded}
        own = self._slot.info.path if self._slot.info is not None else None
        return [card for card in found.values() if card.path == own] or [*found.values()]

    def refresh(self) -> None:
        """Show or hide the line."""
        info = None if self._slot.loading else self._slot.info
        is_blind = info is not None and not info.sees and bool(self._files.images)
        if info is not None and is_blind:
            here = info.path in [card.path for card in self.seeing]
            text = f"{info.name} does not see images. {info.blind or 'It only gets a note that there are some.'}"
            self.text.setText(f"{info.name} sees images once it is loaded again." if here else text)
            self.fetch.setVisible(info.blind == NO_VISION and not here)
            one, *others = [_name(card) for card in self.seeing] or [""]
            text = "Use a Model That Sees" if others else f"Use {one}" if one else "Find a Model That Sees…"
            self.button.setText(button_text(text))
        for source in self._sources if is_blind and self.isHidden() else ():
            source.look()
        self.setVisible(is_blind)

    def _act(self) -> None:
        """Load the model that sees, or let the person choose one; the message stays in the field."""
        if not self.seeing:
            self.models_requested.emit()
        elif len(self.seeing) == 1:
            self._slot.load(self.seeing[0].model)
        else:
            menu = QMenu(self)
            for card in self.seeing:
                add_action(menu, _name(card), lambda model=card.model: self._slot.load(model))  # type: ignore[misc]
            menu.aboutToHide.connect(menu.deleteLater)
            menu.popup(self.button.mapToGlobal(QPoint(0, self.button.height())))


def _name(card: ModelCard) -> str:
    return card.name.rpartition("/")[2]
