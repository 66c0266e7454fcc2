"""Drafters on the hub for the chosen model. The hub is asked only when the button is clicked."""

from PySide6.QtWidgets import QWidget

from rdchat.hub.drafters.published_drafters import FoundDrafter, WantedModel
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import TIGHT, Theme
from rdchat.ui.models.drafters.rows import PublishedRow
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.progress_line import ProgressLine
from rdchat.ui.models.row_list import RowList

_BEFORE = "Asks {host} for drafters that name this model, and for smaller models of its family."
_NONE = "{host} has nothing that names {name}. You can train a drafter yourself."
_FOUND = "Found by name. Whether one fits is known once it is here."


class PublishedSection(QWidget):
    """Searches for drafters, and lists and downloads them.

    Args:
        desk: The window's services.
        links: Lead to the downloads.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._hub, self._shelf = desk.hub_drafters, desk.shelf
        self.search = push_button("Look for drafters", "", self._search)
        self.words = ThemedLabel(theme, "", "muted", wraps=True)
        self.busy = ProgressLine("Asking the hub")
        self.list = RowList[FoundDrafter, PublishedRow](
            lambda: PublishedRow(theme, desk, links), PublishedRow.show_found
        )
        top = row((ThemedLabel(theme, "Published", points_more=1, bold=True), 1), self.search)
        column(top, self.words, self.busy, self.list, within=self, spacing=TIGHT)
        for changed in (self._hub.changed, self._shelf.changed, desk.downloads.finished, desk.downloads.removed):
            changed.connect(self.refresh)
        self.refresh()

    def _search(self) -> None:
        if (chosen := self._shelf.chosen) is not None:
            self._hub.search(WantedModel(chosen.name, chosen.path))

    def refresh(self) -> None:
        """Show the results so far."""
        hub, chosen = self._hub, self._shelf.chosen
        asked = bool(hub.model) and chosen is not None and hub.model == chosen.name
        found = hub.found if asked else ()
        before = _BEFORE.format(host=hub.host)
        self.search.setEnabled(chosen is not None and not hub.searching)
        self.search.setText("Look again" if asked and not hub.searching else "Look for drafters")
        set_tip(self.search, before)
        self.busy.setVisible(hub.searching and asked)
        self.list.show_items({each.repository: each for each in found})
        self.words.set_color("danger" if asked and hub.problem else "muted")
        if not asked:
            self.words.setText(before)
        elif hub.problem or hub.searching:
            self.words.setText(hub.problem or f"Asking {hub.host}…")
        else:
            self.words.setText(_FOUND if found else _NONE.format(host=hub.host, name=hub.model))
