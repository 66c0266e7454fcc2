"""The drafters on this machine for the chosen model."""

from PySide6.QtWidgets import QWidget

from rdchat.errors import RdchatError
from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.installed.removal import Removed
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import SMALL, TIGHT, Theme
from rdchat.ui.models.drafters.rows import InstalledRow, RowList
from rdchat.ui.models.installed.words import short_name
from rdchat.ui.models.link_button import LinkButton
from rdchat.ui.models.model_deletion import ModelDeletion

_MOST_REASONS = 20
_NONE = "No drafter for {name} is here yet. Look for a published one below, or train one."
_OTHER = "Only drafters that name {name} as theirs are listed. Load it to see which others fit."
_NO_MODEL = "No model is loaded. Load one, and its drafters are listed here."


class InstalledSection(QWidget):
    """Lists them; a deleted one can be restored.

    Args:
        desk: Lists and deletes them.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, theme: Theme) -> None:
        super().__init__()
        self._shelf, self._removal = desk.shelf, desk.removal
        deletion = ModelDeletion(desk, self)
        self._deleted: TrashedModel | None = None
        self._reasons_shown = False
        self.words = ThemedLabel(theme, "", "muted", wraps=True)
        self.list = RowList[ModelCard, InstalledRow](
            lambda: InstalledRow(theme, desk.shelf, deletion.ask), self._update
        )
        self.unfit = LinkButton("", theme)
        self.reasons = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self.outcome = ThemedLabel(theme, "", "muted", wraps=True)
        self.undo = LinkButton("Undo", theme)
        title = ThemedLabel(theme, "On this machine", points_more=1, bold=True)
        unfit, said = row(self.unfit, None), row((self.outcome, 1), self.undo)
        column(title, self.list, self.words, unfit, self.reasons, said, SMALL, within=self, spacing=TIGHT)
        self.unfit.clicked.connect(self._turn)
        self.undo.clicked.connect(self._put_back)
        desk.shelf.changed.connect(self.refresh)
        desk.removal.removed.connect(self._on_removed)
        desk.removal.restored.connect(self._on_restored)
        desk.removal.failed.connect(self._on_failed)
        self.say_outcome("")
        self.refresh()

    def refresh(self) -> None:
        """Show the current drafters."""
        shelf, chosen = self._shelf, self._shelf.chosen
        cards = shelf.fitting if chosen is not None else ()
        self.list.show_items({card.model: card for card in cards})
        words = _NO_MODEL
        if chosen is not None:
            words = (
                "" if chosen.is_loaded and cards else (_NONE if chosen.is_loaded else _OTHER).format(name=chosen.name)
            )
        self.words.say(words)
        unfit = shelf.unfit
        self.unfit.setVisible(bool(unfit))
        self.unfit.show_text(f"{counted(len(unfit), 'drafter')} here cannot be used with this model")
        reasons = [f"{each.name}: {each.problem}" for each in unfit[:_MOST_REASONS]]
        more = [f"and {len(unfit) - _MOST_REASONS} more"] if len(unfit) > _MOST_REASONS else []
        self.reasons.say("\n".join([*reasons, *more]) if self._reasons_shown else "")

    def _turn(self) -> None:
        self._reasons_shown = not self._reasons_shown
        self.refresh()

    def _update(self, row: InstalledRow, card: ModelCard) -> None:
        shelf, chosen = self._shelf, self._shelf.chosen
        loaded = chosen is not None and chosen.is_loaded
        row.show_card(card, figures=shelf.figures_of(card), loaded=loaded, used=shelf.is_used(card))

    def say_outcome(self, words: str, color: str = "muted", deleted: TrashedModel | None = None) -> None:
        """Show the result of an action; a deletion can be undone."""
        self._deleted = deleted
        self.outcome.set_color(color)
        self.outcome.say(words)
        self.undo.setVisible(deleted is not None)

    def _put_back(self) -> None:
        if self._deleted is not None:
            self._removal.restore(self._deleted)

    def _on_removed(self, removed: Removed) -> None:
        if removed.model.is_drafter:
            self.say_outcome(f"Deleted {short_name(removed.model)}.", deleted=removed.trashed)

    def _on_restored(self, trashed: TrashedModel) -> None:
        if trashed == self._deleted:
            self.say_outcome(f"{short_name(trashed)} is back.", "success")

    def _on_failed(self, error: RdchatError) -> None:
        if self.isVisible():
            self.say_outcome(str(error), "danger")
