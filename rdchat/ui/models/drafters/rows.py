"""Rows of the Drafters page: a drafter's name, its facts, and its buttons."""

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QMenu, QToolButton, QWidget

from rdchat.hub.downloads.download import DownloadState
from rdchat.hub.drafters.published_drafters import FoundDrafter
from rdchat.hub.endpoint import find_endpoint
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.installed.removal import reason_not_to_delete
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.formatting import counted, decimal, file_size
from rdchat.ui.look.labels import ElidedLabel, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SHOW_FOLDER, open_page, show_folder
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme
from rdchat.ui.models.download_box import DownloadBox
from rdchat.ui.models.links import PageLinks

_MOST_FIGURES = 3
_SETUPS = ("W4 L5", "W1 L5", "W4 L5 + lookup")  # whose figure is shown, by preference


class DrafterRow(QWidget):
    """Name and texts at the left, buttons at the right, a hairline below."""

    def __init__(self, theme: Theme, desk: ModelsDesk) -> None:
        super().__init__()
        self._desk = desk
        self._drafter, self._is_model = "", False
        self.name = ElidedLabel(theme, "", bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.badge = ThemedLabel(theme, "", "success", -1)
        self.facts, self.more, self.problem = (
            ThemedLabel(theme, "", color, -1, tabular=True, wraps=True) for color in ("muted", "muted", "warning")
        )
        self.texts = column(row((self.name, 1), self.badge), self.facts, self.more, self.problem, spacing=2)
        self.use = push_button("Use", "", lambda: desk.shelf.use(self._drafter, is_model=self._is_model))
        self.race = push_button("Try in a race…", "", lambda: desk.shelf.race(self._drafter, is_model=self._is_model))
        self.buttons: QHBoxLayout = row(self.use, self.race)
        line = row((self.texts, 1), self.buttons, spacing=MEDIUM, margins=(0, MEDIUM - 2, 0, MEDIUM - 2))
        column(line, Separator(theme), within=self, spacing=0)

    def show_drafter(
        self, drafter: str, name: str, *, facts: list[str], more: str, problem: str, used: bool, is_model: bool = False
    ) -> None:
        """Show a drafter.

        Args:
            drafter: The hub id or folder.
            name: Its name.
            facts: Its kind, size and place.
            more: Figures of how well it drafts.
            problem: Why it may not fit.
            used: Whether the loaded model drafts with it.
            is_model: Whether it is a smaller model.
        """
        self._drafter, self._is_model = drafter, is_model
        loaded = self._desk.shelf.chosen is not None and self._desk.shelf.chosen.is_loaded
        self.name.setText(name)
        self.badge.say("In use" if used else "")
        self.facts.say("  ·  ".join(facts))
        self.more.say(more)
        self.problem.say(problem)
        self.use.setAccessibleName(f"Use {name}")
        self.race.setAccessibleName(f"Try {name} in a race")
        self.use.setEnabled(loaded and not used)
        self.race.setEnabled(loaded)
        for button in (self.use, self.race):
            set_tip(button, "" if loaded else "Load this model first.")


class InstalledRow(DrafterRow):
    """A drafter on this machine.

    Args:
        theme: The appearance to follow.
        desk: The window's services.
        ask_to_delete: Asks whether to delete it.
    """

    def __init__(self, theme: Theme, desk: ModelsDesk, ask_to_delete: Callable[[ModelCard], object]) -> None:
        super().__init__(theme, desk)
        self._card = ModelCard("", "", "")
        menu = QMenu(self)
        self.reveal = menu.addAction(SHOW_FOLDER, lambda: show_folder(self._card.path))
        self.delete = menu.addAction("Delete…", lambda: ask_to_delete(self._card))
        self.menu_button = QToolButton(autoRaise=True)
        self.menu_button.setText("More")
        self.menu_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.menu_button.setMenu(menu)
        self.buttons.addWidget(self.menu_button)

    def show_card(self, card: ModelCard) -> None:
        """Show a drafter."""
        self._card, shelf = card, self._desk.shelf
        loaded = shelf.chosen is not None and shelf.chosen.is_loaded
        figures = shelf.figures_of(card)
        setup = next((setup for setup in _SETUPS if setup in figures), None)
        more = f"{decimal(figures[setup])} tokens a call at the end of its training ({setup})" if setup else ""
        problem = card.match.words if card.match is not None and not card.match.sure else ""
        used = loaded and shelf.is_used(card)
        self.show_drafter(card.model, card.name, facts=_facts(card), more=more, problem=problem, used=used)
        set_tip(self.name, card.model)
        self.menu_button.setAccessibleName(f"More for {card.name}")
        self.delete.setVisible(not reason_not_to_delete(card))


class PublishedRow(DrafterRow):
    """A repository of the hub that may draft for the model.

    Args:
        theme: The appearance to follow.
        desk: The window's services.
        links: Lead to the downloads.
    """

    def __init__(self, theme: Theme, desk: ModelsDesk, links: PageLinks) -> None:
        super().__init__(theme, desk)
        self.box = DownloadBox(desk, links, theme)
        self.texts.addWidget(self.box)
        self.page = push_button("Web page", "", lambda: open_page(find_endpoint().page(self._drafter)))
        self.buttons.insertWidget(0, self.page)
        self.buttons.insertWidget(1, self.box.button)
        self.buttons.setSpacing(SMALL)

    def show_found(self, found: FoundDrafter) -> None:
        """Show a repository."""
        shelf, name = self._desk.shelf, found.repository
        used = name == (shelf.settings.draft_model if found.is_model else shelf.settings.drafter)
        unfit = next((each.problem for each in shelf.unfit if each.model == name and not found.is_model), "")
        download = self._desk.downloads.find(name)
        here = name in shelf.here or (download is not None and download.state is DownloadState.FINISHED)
        self.show_drafter(
            name,
            name,
            facts=_published_facts(found),
            more=_publishers_figures(found),
            problem=unfit or found.problem,
            used=used and shelf.chosen is not None and shelf.chosen.is_loaded,
            is_model=found.is_model,
        )
        if here and not self.badge.text():
            self.badge.say("On this machine")
        self.box.show_model(name, here=here, is_model=found.is_model)
        self.box.setVisible(not here)
        self.box.button.setEnabled(not found.problem)
        self.box.button.setAccessibleName(f"Download {name}")
        self.page.setVisible(not here)
        self.page.setAccessibleName(f"Open the page of {name} in a browser")
        for button in (self.use, self.race):
            button.setVisible(here)
            button.setEnabled(button.isEnabled() and not unfit)


def _facts(card: ModelCard) -> list[str]:
    parts = [card.kind.words] if card.kind is not None else []
    if card.match is not None:
        parts.append("made for this model" if card.match.sure else "fits by its sizes")
    if card.disk_bytes:
        parts.append(file_size(card.disk_bytes))
    return [*parts, card.place]


def _published_facts(found: FoundDrafter) -> list[str]:
    size = file_size(found.size) if found.size is not None else ""
    tokenizer, gated = "same tokenizer" if found.same_tokenizer else "", "gated" if found.gated else ""
    parts = (found.kind.words, size, tokenizer, found.licence, gated, counted(found.downloads, "download"))
    return [part for part in parts if part]


def _publishers_figures(found: FoundDrafter) -> str:
    """Return a few figures of its card, in its words."""
    if not found.figures:
        return ""
    measure = found.figures[0].measure
    same = [figure for figure in found.figures if figure.measure == measure][:_MOST_FIGURES]
    listed = ", ".join(f"{figure.of} {figure.value}" for figure in same)
    return f"By its publisher's figures: {measure.lower()} {listed}"
