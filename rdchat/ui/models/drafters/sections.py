"""The sections of the Drafters page: drafters on this machine and on the hub, for the chosen model."""

from PySide6.QtWidgets import QWidget

from rdchat.errors import RdchatError
from rdchat.hub.drafters.published_drafters import FoundDrafter, WantedModel
from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.installed.removal import Removed
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import TextButton, push_button
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import SMALL, TIGHT, Theme
from rdchat.ui.models.deletion import ask_to_delete
from rdchat.ui.models.drafters.rows import InstalledRow, PublishedRow
from rdchat.ui.models.installed.words import short_name
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.progress_line import ProgressLine
from rdchat.ui.models.row_list import RowList

_MOST_REASONS = 20
_NONE_HERE = "No drafter for {name} is here yet. Look for a published one below, or train one."
_OTHER = "Only drafters that name {name} as theirs are listed. Load it to see which others fit."
_NO_MODEL = "No model is loaded. Load one, and its drafters are listed here."
_BEFORE = "Asks {host} for drafters that name this model, and for smaller models of its family."
_NONE = "{host} has nothing that names {name}. You can train a drafter yourself."
_FOUND = "Found by name. Whether one fits is known once it is here."


class InstalledSection(QWidget):
    """Lists the drafters; a deleted one can be restored.

    Args:
        desk: The window's services.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, theme: Theme) -> None:
        super().__init__()
        self._shelf, self._removal = desk.shelf, desk.removal
        self._deleted: TrashedModel | None = None
        self.words = ThemedLabel(theme, "", "muted", wraps=True)
        self.list = RowList[ModelCard, InstalledRow](
            lambda: InstalledRow(theme, desk, lambda card: ask_to_delete(desk, self, card)), InstalledRow.show_card
        )
        self.unfit = TextButton("", theme)
        self.reasons = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self.reasons.hide()
        self.outcome = ThemedLabel(theme, "", "muted", wraps=True)
        self.undo = TextButton("Undo", theme)
        title = ThemedLabel(theme, "On this machine", points_more=1, bold=True)
        unfit, outcome = row(self.unfit, None), row((self.outcome, 1), self.undo)
        column(title, self.list, self.words, unfit, self.reasons, outcome, SMALL, within=self, spacing=TIGHT)
        self.unfit.clicked.connect(lambda: self.reasons.setVisible(self.reasons.isHidden()))
        self.undo.clicked.connect(self._restore)
        desk.shelf.changed.connect(self.refresh)
        desk.removal.removed.connect(self._on_removed)
        desk.removal.restored.connect(self._on_restored)
        desk.removal.failed.connect(self._on_failed)
        self.show_outcome("")
        self.refresh()

    def refresh(self) -> None:
        """Show the current drafters."""
        shelf, chosen = self._shelf, self._shelf.chosen
        cards = shelf.fitting if chosen is not None else ()
        self.list.show_items({card.model: card for card in cards})
        if chosen is None:
            self.words.say(_NO_MODEL)
        elif chosen.is_loaded:
            self.words.say("" if cards else _NONE_HERE.format(name=chosen.name))
        else:
            self.words.say(_OTHER.format(name=chosen.name))
        unfit = shelf.unfit
        self.unfit.setVisible(bool(unfit))
        self.unfit.setText(f"{counted(len(unfit), 'drafter')} here cannot be used with this model")
        reasons = [f"{each.name}: {each.problem}" for each in unfit[:_MOST_REASONS]]
        more = [f"and {len(unfit) - _MOST_REASONS} more"] if len(unfit) > _MOST_REASONS else []
        self.reasons.setText("\n".join([*reasons, *more]))

    def show_outcome(self, words: str, color: str = "muted", deleted: TrashedModel | None = None) -> None:
        """Show the result of an action; a deletion can be undone."""
        self._deleted = deleted
        self.outcome.set_color(color)
        self.outcome.say(words)
        self.undo.setVisible(deleted is not None)

    def _restore(self) -> None:
        if self._deleted is not None:
            self._removal.restore(self._deleted)

    def _on_removed(self, removed: Removed) -> None:
        if removed.model.is_drafter:
            self.show_outcome(f"Deleted {short_name(removed.model)}.", deleted=removed.trashed)

    def _on_restored(self, trashed: TrashedModel) -> None:
        if trashed == self._deleted:
            self.show_outcome(f"{short_name(trashed)} is back.", "success")

    def _on_failed(self, error: RdchatError) -> None:
        if self.isVisible():
            self.show_outcome(str(error), "danger")


class PublishedSection(QWidget):
    """Searches the hub for drafters, lists and downloads them. The hub is asked only after a click.

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
