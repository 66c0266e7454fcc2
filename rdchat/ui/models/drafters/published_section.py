"""Drafters on the hub for the chosen model. The hub is asked only when the button is clicked."""

from PySide6.QtWidgets import QWidget

from rdchat.hub.downloads.download import DownloadState
from rdchat.hub.drafters.published_drafters import FoundDrafter, WantedModel
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf
from rdchat.services.models.drafters.hub_drafters import HubDrafters
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import TIGHT, Theme
from rdchat.ui.look.throttle import Throttle
from rdchat.ui.models.drafters.rows import PublishedRow, RowList
from rdchat.ui.models.thin_bar import BusyBar

_BEFORE = "Asks {host} for drafters that name this model, and for smaller models of its family."
_NONE = "{host} has nothing that names {name}. You can train a drafter yourself."
_FOUND = "Found by name. Whether one fits is known once it is here."


class PublishedSection(QWidget):
    """Lists the results, and downloads them.

    Args:
        hub: Searches the hub.
        shelf: Has the chosen model, and what is on this machine.
        theme: The appearance to follow.
    """

    def __init__(self, hub: HubDrafters, shelf: DrafterShelf, theme: Theme) -> None:
        super().__init__()
        self._hub, self._shelf = hub, shelf
        self.search = push_button("Look for drafters", "")
        self.words = ThemedLabel(theme, "", "muted", wraps=True)
        self.busy = BusyBar("Asking the hub")
        self.list = RowList[FoundDrafter, PublishedRow](lambda: PublishedRow(theme, shelf, hub), self._update)
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
            self._hub.search(WantedModel(chosen.name, chosen.path))

    def refresh(self) -> None:
        """Show the results so far."""
        hub, chosen = self._hub, self._shelf.chosen
        asked = bool(hub.model) and chosen is not None and hub.model == chosen.name
        self.search.setEnabled(chosen is not None and not hub.searching)
        self.search.setText("Look again" if asked and not hub.searching else "Look for drafters")
        set_tip(self.search, _BEFORE.format(host=hub.host))
        self.busy.setVisible(hub.searching and asked)
        found = hub.found if asked else ()
        self.list.show_items({each.repository: each for each in found})
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

    def _update(self, row: PublishedRow, found: FoundDrafter) -> None:
        shelf, name = self._shelf, found.repository
        loaded = shelf.chosen is not None and shelf.chosen.is_loaded
        used = loaded and name == (shelf.settings.draft_model if found.is_model else shelf.settings.drafter)
        problem = next((each.problem for each in shelf.unfit if each.model == name and not found.is_model), "")
        download = self._hub.downloads.find(name)
        here = name in shelf.here or (download is not None and download.state is DownloadState.FINISHED)
        row.show_found(found, download, here=here, problem=problem, loaded=loaded, used=used)
