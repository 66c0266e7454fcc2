"""Rows of the Drafters page: a drafter's name, what is known of it, and its buttons."""

from collections.abc import Callable, Mapping

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QMenu, QPushButton, QToolButton, QWidget

from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.drafters.published_drafters import FoundDrafter, PublishedKind
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf
from rdchat.services.models.drafters.hub_drafters import HubDrafters
from rdchat.services.models.installed.removal import reason_not_to_delete
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.formatting import counted, decimal, file_size
from rdchat.ui.look.labels import ElidedLabel, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SHOW_FOLDER, open_page, show_folder
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme
from rdchat.ui.models.downloads.words import state_words
from rdchat.ui.models.thin_bar import BusyBar

_LOAD_FIRST = "Load this model first."
_MOST_FIGURES = 3
_SETUPS = ("W4 L5", "W1 L5", "W4 L5 + lookup")  # whose figure is shown, by preference


class RowList[Item, Row: QWidget](QWidget):
    """Rows one below the other. A row is kept as long as its item is listed, so that it keeps the focus.

    Args:
        make: Makes an empty row.
        update: Has a row show its item.
    """

    def __init__(self, make: Callable[[], Row], update: Callable[[Row, Item], None]) -> None:
        super().__init__()
        self._make, self._update = make, update
        self._column = column(within=self, spacing=0)
        self.rows: dict[str, Row] = {}

    def show_items(self, items: Mapping[str, Item]) -> None:
        """Show these items, each under a name that stays."""
        for name in self.rows.keys() - items.keys():
            row = self.rows.pop(name)
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        for place, (name, item) in enumerate(items.items()):
            if name not in self.rows:
                self.rows[name] = self._make()
            if self._column.indexOf(self.rows[name]) != place:
                self._column.insertWidget(place, self.rows[name])
            self._update(self.rows[name], item)
        self.setVisible(bool(items))


class _Row(QWidget):
    """Name and words at the left, buttons at the right, a hairline below."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.name = ElidedLabel(theme, "", bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.badge = ThemedLabel(theme, "", "success", -1)
        self.facts, self.more, self.problem = (
            ThemedLabel(theme, "", color, -1, tabular=True, wraps=True) for color in ("muted", "muted", "warning")
        )
        self.words = column(row((self.name, 1), self.badge), self.facts, self.more, self.problem, spacing=2)
        self.buttons = QHBoxLayout()
        self.buttons.setSpacing(SMALL)
        line = row((self.words, 1), self.buttons, spacing=MEDIUM, margins=(0, MEDIUM - 2, 0, MEDIUM - 2))
        column(line, Separator(theme), within=self, spacing=0)

    def _button(self, text: str, on_click: Callable[[], object]) -> QPushButton:
        button = push_button(text, "")
        button.clicked.connect(on_click)
        self.buttons.addWidget(button)
        return button


class InstalledRow(_Row):
    """A drafter on this machine.

    Args:
        theme: The appearance to follow.
        shelf: Uses the drafter.
        ask_to_delete: Asks whether to delete it.
    """

    def __init__(self, theme: Theme, shelf: DrafterShelf, ask_to_delete: Callable[[ModelCard], object]) -> None:
        super().__init__(theme)
        self._card = ModelCard("", "", "")
        self.use = self._button("Use", lambda: shelf.use(self._card.model))
        self.race = self._button("Try in a race…", lambda: shelf.race(self._card.model))
        self.menu_button = QToolButton()
        self.menu_button.setText("More")
        self.menu_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.menu_button.setAutoRaise(True)
        self.buttons.addWidget(self.menu_button)
        menu = QMenu(self)
        self.reveal = menu.addAction(SHOW_FOLDER)
        self.delete = menu.addAction("Delete…")
        self.menu_button.setMenu(menu)
        self.reveal.triggered.connect(lambda: show_folder(self._card.path))
        self.delete.triggered.connect(lambda: ask_to_delete(self._card))

    def show_card(self, card: ModelCard, *, figures: dict[str, float], loaded: bool, used: bool) -> None:
        """Show a drafter.

        Args:
            card: The drafter.
            figures: Its tokens per call by setup.
            loaded: Whether its model is loaded.
            used: Whether the loaded model drafts with it.
        """
        used = used and loaded
        self._card = card
        self.name.setText(card.name)
        set_tip(self.name, card.model)
        self.badge.say("In use" if used else "")
        self.facts.say("  ·  ".join(_facts(card)))
        self.more.say(_own_figures(figures))
        self.problem.say(card.match.words if card.match is not None and not card.match.sure else "")
        self.use.setAccessibleName(f"Use {card.name}")
        self.race.setAccessibleName(f"Try {card.name} in a race")
        self.menu_button.setAccessibleName(f"More for {card.name}")
        for button in (self.use, self.race):
            button.setEnabled(loaded and not (button is self.use and used))
            set_tip(button, "" if loaded else _LOAD_FIRST)
        self.delete.setVisible(not reason_not_to_delete(card))


class PublishedRow(_Row):
    """A repository of the hub that may draft for the model.

    Args:
        theme: The appearance to follow.
        shelf: Uses what is downloaded.
        hub: Downloads it.
    """

    def __init__(self, theme: Theme, shelf: DrafterShelf, hub: HubDrafters) -> None:
        super().__init__(theme)
        self._found = FoundDrafter("", PublishedKind.MODEL, 0)
        self.bar = BusyBar("")
        self.words.addWidget(self.bar)
        self.page = self._button("Web page", lambda: open_page(hub.page(self._found.repository)))
        self.download = self._button("Download", lambda: hub.download(self._found.repository))
        self.use = self._button("Use", lambda: shelf.use(self._found.repository, is_model=self._found.is_model))
        race = lambda: shelf.race(self._found.repository, is_model=self._found.is_model)  # noqa: E731
        self.race = self._button("Try in a race…", race)

    def show_found(
        self,
        found: FoundDrafter,
        download: Download | None,
        *,
        here: bool,
        problem: str,
        loaded: bool,
        used: bool,
    ) -> None:
        """Show a repository.

        Args:
            found: What the hub says of it.
            download: Its download; None without one.
            here: Whether it is on this machine.
            problem: Why it does not fit, known once it is here.
            loaded: Whether the model that it may draft for is loaded.
            used: Whether that model drafts with it.
        """
        self._found, name = found, found.repository
        self.name.setText(name)
        state = download.state if download is not None else None
        self.badge.say("In use" if used else "On this machine" if here else "")
        self.facts.say("  ·  ".join(_published_facts(found)))
        self.more.say(_publishers_figures(found))
        under_way = download is not None and not download.state.has_ended
        words = _download_words(download) if download is not None and not here else ""
        self.problem.say(problem or found.problem or words)
        self.problem.set_color("muted" if under_way and not problem else "warning")
        self.bar.setAccessibleName(f"Download of {name}")
        self.bar.setVisible(under_way)
        self.bar.show_download(download)
        self.download.setVisible(not here)
        self.download.setEnabled(not under_way and not found.problem)
        self.download.setText("Resume" if state in {DownloadState.PAUSED, DownloadState.FAILED} else "Download")
        set_tip(self.download, found.problem)
        self.page.setVisible(not here)
        self.page.setAccessibleName(f"Open the page of {name} in a browser")
        self.download.setAccessibleName(f"Download {name}")
        self.use.setAccessibleName(f"Use {name}")
        self.race.setAccessibleName(f"Try {name} in a race")
        for button in (self.use, self.race):
            button.setVisible(here)
            button.setEnabled(loaded and not problem and not (button is self.use and used))
            set_tip(button, "" if loaded else _LOAD_FIRST)


def _facts(card: ModelCard) -> list[str]:
    parts = [card.kind.words] if card.kind is not None else []
    if card.match is not None:
        parts.append("made for this model" if card.match.sure else "fits by its sizes")
    if card.disk_bytes:
        parts.append(file_size(card.disk_bytes))
    return [*parts, card.place]


def _own_figures(figures: dict[str, float]) -> str:
    setup = next((setup for setup in _SETUPS if setup in figures), None)
    if setup is None:
        return ""
    return f"{decimal(figures[setup])} tokens a call at the end of its training ({setup})"


def _published_facts(found: FoundDrafter) -> list[str]:
    parts = [found.kind.words]
    if found.size is not None:
        parts.append(file_size(found.size))
    if found.same_tokenizer:
        parts.append("same tokenizer")
    if found.licence:
        parts.append(found.licence)
    if found.gated:
        parts.append("gated")
    return [*parts, counted(found.downloads, "download")]


def _publishers_figures(found: FoundDrafter) -> str:
    """Return a few figures of its card, in its words."""
    if not found.figures:
        return ""
    measure = found.figures[0].measure
    same = [figure for figure in found.figures if figure.measure == measure][:_MOST_FIGURES]
    listed = ", ".join(f"{figure.of} {figure.value}" for figure in same)
    return f"By its publisher's figures: {measure.lower()} {listed}"


def _download_words(download: Download) -> str:
    if download.state is DownloadState.FAILED:
        return f"{download.problem} {download.hint}".strip()
    if download.notes:
        return " ".join(download.notes)
    return state_words(download)
