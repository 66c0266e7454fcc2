"""The Macs page: Macs that run a model together with this one at the left, models with where they fit at the right."""

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QLineEdit, QWidget

from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.ranks.hosts import Host
from rdchat.services.models.models import Models
from rdchat.ui.models.installed_page import InstalledResults
from rdchat.ui.models.page_parts import ModelList, two_columns
from rdchat.ui.models.texts import Entry, key_of, short_name
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.formatting import file_size
from rdchat.ui.style.labels import ThemedLabel, visible_text
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, Theme

_NOTE = (
    "Several Macs can run a model that is too large for one. Each needs the same version of rdchat, and ssh without a "
    "password. What they send each other is not encrypted: connect them by a cable, or at home."
)


class MacsPage(QWidget):
    """Adds, checks and removes Macs, and loads a model on all that are ready.

    Args:
        models: The window's services.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, theme: Theme) -> None:
        super().__init__()
        self._models, self._macs = models, models.macs
        self.name = QLineEdit(placeholderText="studio.local", maxLength=255)
        self.address = QLineEdit(placeholderText="Address (optional)", maxLength=15)
        self.add = push_button("Add", "Add this Mac, by its name for ssh, and check it", self._add)
        self.check = push_button("Check", "Try ssh, versions, memory and the link", lambda: self._macs.check(self._mac))
        self.remove = push_button("Remove", "Forget this Mac", lambda: self._macs.remove(self._mac))
        self.list, self.models = ModelList(theme, "Macs"), ModelList(theme, "Models")
        self.detail = ThemedLabel(theme, "", wraps=True, selectable=True)
        self.load = push_button("Load", "Use this model on all Macs that are ready (Return)", self._load)
        self.result = InstalledResults(models, theme)
        self.refused = ThemedLabel(theme, "", "danger", -1, wraps=True, selectable=True)
        self.name.setAccessibleName("Name for ssh")
        self.address.setAccessibleName("Address")
        for field in (self.name, self.address):
            field.returnPressed.connect(self._add)
        self.models.opened.connect(self.load.click)
        self.list.delete_requested.connect(self.remove.click)
        edges = (LARGE, MEDIUM, LARGE, MEDIUM)
        adding = column(ThemedLabel(theme, _NOTE, "muted", -1, wraps=True), SMALL,
                        row((self.name, 1), self.add), self.address, self.refused, margins=edges)  # fmt: skip
        about = column(self.detail, row(self.check, self.remove, None), margins=edges)
        loading = row(self.load, (self.result, 1), margins=edges)
        column(two_columns(theme, (adding, (self.list, 1), about), ((self.models, 1), loading)), within=self)
        for chosen in (self.list, self.models):
            chosen.chosen.connect(self._show_chosen)
        for changed in (self._macs.changed, models.library.changed, models.memory.changed):
            changed.connect(self.refresh)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._models.library.look()
        self.refresh()

    @property
    def _mac(self) -> Host:
        assert self.list.current is not None
        host: Host = self.list.current.item
        return host

    def refresh(self) -> None:
        """Show the Macs and the models as they are known now."""
        texts = [(host, visible_text(self._macs.text(host))) for host in self._macs.hosts]
        self.list.show_entries([Entry(host.ssh, host.ssh, text, tip=text, item=host) for host, text in texts])
        if self.list.current is None:
            self.list.select(next((host.ssh for host, _ in texts), ""))
        cards = [card for card in self._models.library.models if card.can_be_loaded]
        self.models.show_entries([self._entry(card) for card in cards])
        if self.name.text().strip() in {host.ssh for host, _ in texts}:
            self.name.clear()
            self.address.clear()
        self.refused.show_text(visible_text(self._macs.problem))
        self._show_chosen()

    def _entry(self, card: ModelCard) -> Entry:
        fit = self._macs.fit_text(card, self._models.machine)
        mark = (fit, "success" if fit.startswith("fits") else "muted")
        return Entry(key_of(card), short_name(card.name), file_size(card.disk_bytes), marks=(mark,), item=card)

    def _show_chosen(self) -> None:
        mac = self.list.current
        self.detail.show_text(f"{mac.item.ssh} ({mac.item.ips[0]}): {mac.facts}" if mac is not None else "")
        for button in (self.check, self.remove):
            button.setEnabled(mac is not None)
        self.load.setEnabled(self.models.current is not None and bool(self._macs.ready))

    def _add(self) -> None:
        if self.name.text().strip():
            self._macs.add(self.name.text().strip(), self.address.text().strip())

    def _load(self) -> None:
        assert self.models.current is not None
        self._models.slot.load(self._macs.address(self.models.current.item))
