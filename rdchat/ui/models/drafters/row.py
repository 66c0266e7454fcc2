"""A row of the Drafters page: a drafter's name, its facts, and its buttons."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from rdchat.hub.downloads.download import DownloadState
from rdchat.hub.endpoint import find_endpoint
from rdchat.hub.hub_model import HubModel
from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.models.installed.model_files import reason_not_to_delete
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.models.installed.words import drafter_name
from rdchat.ui.models.page_parts import DownloadBox, PageLinks
from rdchat.ui.models.removal import ask_to_delete
from rdchat.ui.style.buttons import FlatButton, push_button
from rdchat.ui.style.formatting import counted, file_size
from rdchat.ui.style.labels import ElidedLabel, Separator, ThemedLabel, set_tip
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.opening import SHOW_FOLDER, open_page, show_folder
from rdchat.ui.style.theme import MEDIUM, Theme

_SETUPS = ("W4 L5", "W1 L5", "W4 L5 + lookup")  # the first one that the card has is shown


class DrafterRow(QWidget):
    """A drafter on this machine or on the hub: texts at the left, buttons at the right, a hairline below.

    Args:
        desk: The window's services.
        links: Lead to the downloads.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._desk = desk
        self._drafter, self._is_model = "", False
        self._card = ModelCard("", "", "")
        self.name = ElidedLabel(theme, "", bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.badge = ThemedLabel(theme, "", "success", -1)
        self.facts, self.more, self.problem = (
            ThemedLabel(theme, "", color, -1, tabular=True, wraps=True) for color in ("muted", "muted", "warning")
        )
        self.box = DownloadBox(desk, links, theme)
        self.page = push_button("Web Page", "", lambda: open_page(find_endpoint().page(self._drafter)))
        self.use = push_button("Use", "", lambda: desk.shelf.use(self._drafter, is_model=self._is_model))
        self.race = push_button("Try in a Race…", "", lambda: desk.shelf.race(self._drafter, is_model=self._is_model))
        menu = QMenu(self)
        self.reveal = menu.addAction(SHOW_FOLDER, lambda: show_folder(self._card.path))
        self.delete = menu.addAction("Delete…", lambda: ask_to_delete(desk, self, self._card))
        self.menu_button = FlatButton()
        self.menu_button.setText("More")
        self.menu_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.menu_button.setMenu(menu)
        lines = (row((self.name, 1), self.badge), self.facts, self.more, self.problem, self.box)
        buttons = row(self.page, self.box.button, self.use, self.race, self.menu_button)
        margins = (0, MEDIUM - 2, 0, MEDIUM - 2)
        line = row((column(*lines, spacing=2), 1), buttons, spacing=MEDIUM, margins=margins)
        column(line, Separator(theme), within=self, spacing=0)

    def show_card(self, card: ModelCard) -> None:
        """Show a drafter on this machine."""
        self._card, shelf = card, self._desk.shelf
        figures = shelf.figures_of(card)
        setup = next((setup for setup in _SETUPS if setup in figures), None)
        more = f"{figures[setup]:.1f} tokens per step on questions like those of its training" if setup else ""
        problem = card.match.text if card.match is not None and not card.match.sure else ""
        self._drafter = card.model
        name = drafter_name(card, [shelf.chosen.name] if shelf.chosen is not None else ())
        self._show(name, _facts(card), more, problem, used=shelf.is_used(card))
        for part in (self.box, self.box.button, self.page):
            part.hide()
        set_tip(self.name, card.model)
        self.menu_button.setAccessibleName(f"More for {name}")
        self.delete.setVisible(not reason_not_to_delete(card))

    def show_results(self, found: HubModel) -> None:
        """Show a repository of the hub that may draft for the model."""
        shelf, name = self._desk.shelf, found.repository
        self._drafter, self._is_model = name, found.is_smaller_model
        used = name == (shelf.settings.draft_model if found.is_smaller_model else shelf.settings.drafter)
        unfit = next((each.problem for each in shelf.unfit if each.model == name and not found.is_smaller_model), "")
        download = self._desk.downloads.find(name)
        here = name in shelf.here or (download is not None and download.state is DownloadState.FINISHED)
        self._show(name, _published_facts(found), "", unfit or found.problem, used=used)
        if here and not self.badge.text():
            self.badge.show_text("Installed")
        self.box.show_model(name, here=here, is_model=found.is_smaller_model)
        self.box.setVisible(not here)
        self.box.button.setEnabled(not found.problem)
        self.box.button.setAccessibleName(f"Download {name}")
        self.page.setVisible(not here)
        self.page.setAccessibleName(f"Open the page of {name} in a browser")
        self.menu_button.hide()
        for button in (self.use, self.race):
            button.setVisible(here)
            button.setEnabled(button.isEnabled() and not unfit)

    def _show(self, name: str, facts: list[str], more: str, problem: str, *, used: bool) -> None:
        shelf = self._desk.shelf
        loaded = shelf.chosen is not None and shelf.chosen.is_loaded
        self.name.setText(name)
        self.badge.show_text("In use" if used and loaded else "")
        self.facts.show_text("  ·  ".join(facts))
        self.more.show_text(more)
        self.problem.show_text(problem)
        self.use.setAccessibleName(f"Use {name}")
        self.race.setAccessibleName(f"Try {name} in a race")
        self.use.setEnabled(loaded and not used)
        self.race.setEnabled(loaded)
        for button in (self.use, self.race):
            set_tip(button, "" if loaded else "Load this model first.")


def _facts(card: ModelCard) -> list[str]:
    parts = [card.kind.label] if card.kind is not None else []
    if card.match is not None:
        parts.append("built for this model" if card.match.sure else "may fit")
    if card.disk_bytes:
        parts.append(file_size(card.disk_bytes))
    return [*parts, card.origin]


def _published_facts(found: HubModel) -> list[str]:
    size = file_size(found.download_bytes) if found.download_bytes is not None else ""
    tokenizer, gated = "same tokenizer" if found.same_tokenizer else "", "gated" if found.gated else ""
    downloads, kind = counted(found.downloads, "download"), found.kind.value if found.kind else ""
    parts = (kind, size, tokenizer, found.licence, gated, downloads)
    return [part for part in parts if part]
