"""The drafters of the chosen model that are on this machine."""

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf, ShelfEntry
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.opening import show_folder
from rdchat.ui.look.questions import ask
from rdchat.ui.look.theme import SMALL, TIGHT, Theme
from rdchat.ui.models.drafters.row_list import RowList
from rdchat.ui.models.drafters.rows import InstalledRow

_MOST_REASONS = 20
_NONE = "No drafter for {name} is here yet. Look for a published one below, or train one."
_OTHER = "Only drafters that name {name} as theirs are listed. Load it to see which others fit."
_NO_MODEL = "No model is loaded. Load one, and its drafters are listed here."


class InstalledSection(QWidget):
    """Lists them, and does with them what is asked for.

    Args:
        shelf: Knows them.
        theme: The appearance to follow.
    """

    race_requested = Signal(DraftSettings)

    def __init__(self, shelf: DrafterShelf, theme: Theme) -> None:
        super().__init__()
        self._shelf, self._theme = shelf, theme
        self._reasons_shown = False
        self.words = ThemedLabel(theme, "", "muted")
        self.words.setWordWrap(True)
        self.list = RowList[ShelfEntry, InstalledRow](self._make, self._update)
        self.unfit = TextButton("", theme)
        self.reasons = ThemedLabel(theme, "", "muted", -1)
        self.reasons.setWordWrap(True)
        self.reasons.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.problem = ThemedLabel(theme, "", "danger")
        self.problem.setWordWrap(True)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(TIGHT)
        column.addWidget(ThemedLabel(theme, "On this machine", points_more=1, bold=True))
        column.addWidget(self.list)
        column.addWidget(self.words)
        column.addWidget(self.unfit, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self.reasons)
        column.addWidget(self.problem)
        column.addSpacing(SMALL)
        self.unfit.clicked.connect(self._turn)
        shelf.changed.connect(self.refresh)
        theme.changed.connect(self.unfit.restyle)
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
        self._say(self.problem, shelf.problem)

    def _turn(self) -> None:
        self._reasons_shown = not self._reasons_shown
        self.refresh()

    def _make(self, entry: ShelfEntry) -> InstalledRow:
        row = InstalledRow(entry, self._theme)
        row.use_requested.connect(self._shelf.use)
        row.race_requested.connect(self._race)
        row.reveal_requested.connect(lambda drafter: show_folder(Path(drafter)))
        row.delete_requested.connect(self.ask_to_delete)
        return row

    def _update(self, row: InstalledRow, entry: ShelfEntry) -> None:
        row.show_entry(entry, loaded=self._shelf.chosen is not None and self._shelf.chosen.loaded)

    def _race(self, drafter: str) -> None:
        self.race_requested.emit(replace(self._shelf.settings, mode=Mode.DRAFTER, drafter=drafter))

    def ask_to_delete(self, entry: ShelfEntry) -> None:
        """Ask whether to move a drafter to the Trash."""
        used = "It is in use: replies are then drafted without it. " if entry.used else ""
        words = f"{used}It goes to the Trash."
        ask(
            self,
            f"Delete {entry.found.name}?",
            words,
            "Delete",
            lambda: self._shelf.delete(entry),
            leave="Keep",
            removes=True,
        )

    def _say(self, label: ThemedLabel, words: str) -> None:
        label.setText(words)
        label.setVisible(bool(words))
