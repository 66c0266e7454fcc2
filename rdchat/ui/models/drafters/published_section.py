"""What is published to draft for the chosen model; the hub is asked when the button is clicked, and not before."""

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QProgressBar, QPushButton, QWidget

from rdchat.hub.downloads.download import DownloadState
from rdchat.hub.drafters.published_drafters import FoundDrafter, PublishedKind, WantedModel
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf
from rdchat.services.models.drafters.hub_drafters import HubDrafters
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import open_page
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import TIGHT, Theme
from rdchat.ui.look.throttle import Throttle
from rdchat.ui.models.drafters.row_list import RowList
from rdchat.ui.models.drafters.rows import PublishedRow

_BEFORE = "Asks {host} for drafters that name this model, and for smaller models of its family."
_NONE = "{host} has nothing that names {name}. You can train a drafter yourself."
_FOUND = "Found by name. Whether one fits is known once it is here."


class PublishedSection(QWidget):
    """Lists what was found, and downloads it.

    Args:
        hub: Asks.
        shelf: Knows for which model, and what is here.
        theme: The appearance to follow.
    """

    race_requested = Signal(DraftSettings)

    def __init__(self, hub: HubDrafters, shelf: DrafterShelf, theme: Theme) -> None:
        super().__init__()
        self._hub, self._shelf, self._theme = hub, shelf, theme
        self.search = QPushButton("Look for drafters")
        self.search.setAutoDefault(False)
        self.words = ThemedLabel(theme, "", "muted", wraps=True)
        self.busy = QProgressBar(textVisible=False, maximum=0)
        self.busy.setFixedHeight(4)
        self.busy.setAccessibleName("Asking the hub")
        self.list = RowList[FoundDrafter, PublishedRow](self._make, self._update)
        top = row((ThemedLabel(theme, "Published", points_more=1, bold=True), 1), self.search)
        column(top, self.words, self.busy, self.list, within=self, spacing=TIGHT)
        self.search.clicked.connect(self._press)
        self._throttle = Throttle(self)
        self._throttle.due.connect(self.refresh)
        for changed in (hub.changed, shelf.changed):
            changed.connect(self._throttle.note)
        self.refresh()

    def _press(self) -> None:
        if (chosen := self._shelf.chosen) is not None:
            self._hub.search(WantedModel(chosen.name, Path(chosen.folder) if chosen.folder else None))

    def refresh(self) -> None:
        """Show what was found so far."""
        hub, chosen = self._hub, self._shelf.chosen
        asked = bool(hub.model) and chosen is not None and hub.model == chosen.name
        self.search.setEnabled(chosen is not None and not hub.searching)
        self.search.setText("Look again" if asked and not hub.searching else "Look for drafters")
        set_tip(self.search, _BEFORE.format(host=hub.host))
        self.busy.setVisible(hub.searching and asked)
        found = hub.found if asked else ()
        self.list.show_items({each.repository: each for each in found})
        self.list.setVisible(bool(found))
        self.words.set_color("danger" if asked and hub.problem else "muted")
        name = chosen.name if chosen else ""
        if not asked:
            words = _BEFORE.format(host=hub.host)
        elif hub.problem:
            words = f"{hub.problem} {hub.hint}".strip()
        elif hub.searching:
            words = f"Asking {hub.host}…"
        else:
            words = _FOUND if found else _NONE.format(host=hub.host, name=name)
        self.words.setText(words)

    def _make(self, found: FoundDrafter) -> PublishedRow:
        row = PublishedRow(found, self._theme)
        row.download_requested.connect(self._hub.download)
        row.page_requested.connect(lambda name: open_page(self._hub.page(name)))
        row.use_requested.connect(self._use)
        row.race_requested.connect(self._race)
        return row

    def _update(self, row: PublishedRow, found: FoundDrafter) -> None:
        name, loaded = found.repository, self._shelf.chosen is not None and self._shelf.chosen.loaded
        problem = next((each.problem for each in self._shelf.unfit if each.model == name), "")
        is_model = found.kind is PublishedKind.MODEL
        settings = self._shelf.settings
        used = loaded and name == (settings.draft_model if is_model else settings.drafter)
        download = self._hub.downloads.find(name)
        here = name in self._shelf.here or (download is not None and download.state is DownloadState.FINISHED)
        row.show_found(found, download, here=here, problem="" if is_model else problem, loaded=loaded, used=used)

    def _use(self, found: FoundDrafter) -> None:
        if found.kind is PublishedKind.MODEL:
            self._shelf.use_draft_model(found.repository)
        else:
            self._shelf.use(found.repository)

    def _race(self, found: FoundDrafter) -> None:
        settings = self._shelf.settings
        if found.kind is PublishedKind.MODEL:
            self.race_requested.emit(replace(settings, mode=Mode.SPECULATIVE, draft_model=found.repository))
        else:
            self.race_requested.emit(replace(settings, mode=Mode.DRAFTER, drafter=found.repository))
