"""The drafters of the chosen model that are on this machine."""

from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from rdchat.errors import RdchatError
from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.services.models.drafters.drafter_shelf import ShelfEntry
from rdchat.services.models.installed.removal import Removed
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.opening import show_folder
from rdchat.ui.look.theme import SMALL, TIGHT, Theme
from rdchat.ui.models.drafters.row_list import RowList
from rdchat.ui.models.drafters.rows import InstalledRow
from rdchat.ui.models.installed.words import short_name
from rdchat.ui.models.model_deletion import ModelDeletion

_MOST_REASONS = 20
_NONE = "No drafter for {name} is here yet. Look for a published one below, or train one."
_OTHER = "Only drafters that name {name} as theirs are listed. Load it to see which others fit."
_NO_MODEL = "No model is loaded. Load one, and its drafters are listed here."


class InstalledSection(QWidget):
    """Lists them, and does with them what is asked for.

    Args:
        desk: Knows them, and deletes them.
        theme: The appearance to follow.
    """

    race_requested = Signal(DraftSettings)

    def __init__(self, desk: ModelsDesk, theme: Theme) -> None:
        super().__init__()
        self._shelf, self._removal, self._theme = desk.shelf, desk.removal, theme
        self._deletion = ModelDeletion(desk, self)
        self._deleted: TrashedModel | None = None
        self._reasons_shown = False
        self.words = ThemedLabel(theme, "", "muted")
        self.words.setWordWrap(True)
        self.list = RowList[ShelfEntry, InstalledRow](self._make, self._update)
        self.unfit = TextButton("", theme)
        self.reasons = ThemedLabel(theme, "", "muted", -1)
        self.reasons.setWordWrap(True)
        self.reasons.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.outcome = ThemedLabel(theme, "", "muted")
        self.outcome.setWordWrap(True)
        self.undo = TextButton("Undo", theme)
        said = QHBoxLayout()
        said.setSpacing(SMALL)
        said.addWidget(self.outcome, 1)
        said.addWidget(self.undo)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(TIGHT)
        column.addWidget(ThemedLabel(theme, "On this machine", points_more=1, bold=True))
        column.addWidget(self.list)
        column.addWidget(self.words)
        column.addWidget(self.unfit, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self.reasons)
        column.addLayout(said)
        column.addSpacing(SMALL)
        self.unfit.clicked.connect(self._turn)
        self.undo.clicked.connect(self._put_back)
        desk.shelf.changed.connect(self.refresh)
        desk.removal.removed.connect(self._on_removed)
        desk.removal.restored.connect(self._on_restored)
        desk.removal.failed.connect(self._on_failed)
        for button in (self.unfit, self.undo):
            theme.changed.connect(button.restyle)
        self.say_outcome("")
        self.refresh()

    def refresh(self) -> None:
        """Show what is there now."""
        shelf, chosen = self._shelf, self._shelf.chosen
        entries = shelf.entries if chosen is not None else ()
        self.list.show_items({entry.found.drafter: entry for entry in entries})
        self.list.setVisible(bool(entries))
        words = _NO_MODEL
        if chosen is not None:
            words = "" if chosen.loaded and entries else (_NONE if chosen.loaded else _OTHER).format(name=chosen.name)
        self._say(self.words, words)
        unfit = shelf.unfit
        self.unfit.setVisible(bool(unfit))
        self.unfit.setText(f"{counted(len(unfit), 'drafter')} here cannot be used with this model")
        reasons = [f"{each.name}: {each.problem}" for each in unfit[:_MOST_REASONS]]
        more = [f"and {len(unfit) - _MOST_REASONS} more"] if len(unfit) > _MOST_REASONS else []
        self._say(self.reasons, "\n".join([*reasons, *more]) if self._reasons_shown else "")

    def _turn(self) -> None:
        self._reasons_shown = not self._reasons_shown
        self.refresh()

    def _make(self, entry: ShelfEntry) -> InstalledRow:
        row = InstalledRow(entry, self._theme)
        row.use_requested.connect(self._shelf.use)
        row.race_requested.connect(self._race)
        row.reveal_requested.connect(show_folder)
        row.delete_requested.connect(self._deletion.ask)
        return row

    def _update(self, row: InstalledRow, entry: ShelfEntry) -> None:
        row.show_entry(entry, loaded=self._shelf.chosen is not None and self._shelf.chosen.loaded)

    def _race(self, drafter: str) -> None:
        self.race_requested.emit(replace(self._shelf.settings, mode=Mode.DRAFTER, drafter=drafter))

    def say_outcome(self, words: str, color: str = "muted", deleted: TrashedModel | None = None) -> None:
        """Say what came of something; what was deleted can be put back."""
        self._deleted = deleted
        self.outcome.set_color(color)
        self._say(self.outcome, words)
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

    def _say(self, label: ThemedLabel, words: str) -> None:
        label.setText(words)
        label.setVisible(bool(words))
