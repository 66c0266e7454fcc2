"""The Macs page: Macs that run a model together with this one, and the models with where they fit."""

from PySide6.QtWidgets import QLineEdit, QWidget

from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.cluster.hosts import Host
from rdchat.services.models.listed_model import Model
from rdchat.services.models.macs import Macs
from rdchat.services.models.window_services import Models
from rdchat.ui.models.entries import Entry
from rdchat.ui.models.page_parts import PageLinks
from rdchat.ui.models.place_page import PlacePage, PlaceSheet
from rdchat.ui.models.texts import joined
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.formatting import file_size
from rdchat.ui.style.labels import visible_text
from rdchat.ui.style.theme import Theme

_MACS_NOTE = (
    "Several Macs can run a model that is too large for one. Each needs the same version of rdchat, and ssh without a "
    "password. What they send each other is not encrypted: connect them by a cable, or at home. "
    "They stay awake while a model is loaded on them."
)


class MacSheet(PlaceSheet):
    """Adds a Mac that has an address.

    Args:
        macs: The Macs.
        theme: The appearance to follow.
        window: The sheet stands in front of it.
    """

    def __init__(self, macs: Macs, theme: Theme, window: QWidget) -> None:
        self._macs = macs
        self.name = QLineEdit(placeholderText="studio.local", maxLength=255)
        self.address = QLineEdit(placeholderText="Optional", maxLength=15)
        fields = (("Name", self.name, "Its name for ssh"), ("Address", self.address, "If its name is not found"))
        super().__init__(window, theme, ("Add a Mac", _MACS_NOTE), fields)

    def _add(self) -> None:
        if name := self.name.text().strip():
            self.say(f"Looking for {visible_text(name)}…", "muted")
            self._macs.add(name, self.address.text().strip(), self.take_answer)


class MacsPage(PlacePage):
    """Checks and removes Macs, and loads a model on all that are ready.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        self._models = models
        self._macs = models.macs
        self.check = push_button(
            "Check", "Try ssh, versions, memory and the link", lambda: self._macs.check(self.chosen)
        )
        self.remove = push_button("Remove", "Forget this Mac", lambda: self._macs.remove(self.chosen))
        texts = "Macs", "No other Macs yet.", _MACS_NOTE, "Add a Mac…"
        super().__init__(models, links, theme, texts, self.check, self.remove)
        self.heading.setText("Models on all Macs that are ready")
        for changed in (self._macs.changed, models.library.changed, models.memory.changed):
            changed.connect(self._refresh)
        self._refresh()

    def look(self) -> None:
        self._models.library.look()

    def _refresh(self) -> None:
        self.show_places([self._entry(host) for host in self._macs.hosts])

    def _entry(self, host: Host) -> Entry:
        text = visible_text(self._macs.text(host)).removeprefix("ready, ")
        marks = (("Ready", "success"),) if host in self._macs.ready else ()
        return Entry(host.ssh, host.ssh, text, marks=marks, tip=text, item=host)

    def show_place(self, place: Entry) -> list[Model]:
        self.source.setText(", ".join(place.item.ips))
        self.state.show_text(place.facts)
        cards = [card for card in self._models.library.models if card.can_be_loaded] if self._macs.ready else []
        return [self._model(card) for card in cards]

    def _model(self, card: ModelCard) -> Model:
        facts = joined(file_size(card.disk_bytes), self._macs.fit_text(card, self._models.machine))
        return Model(card.name, is_installed=True, load_name=self._macs.address(card), facts=facts)

    def open_sheet(self) -> None:
        MacSheet(self._macs, self._theme, self.window()).open()
