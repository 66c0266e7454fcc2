"""The files of a message in the transcript: chips that open what was sent."""

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.ui.files.chips import ChipRow, FileChip
from rdchat.ui.look.theme import SMALL, Theme


class SentFiles(QObject):
    """Places chips above a message's text, at the right; of no files nothing is made.

    Args:
        files: Of the message.
        theme: The appearance to follow.
        parent: The message.
    """

    opened = Signal(object)  # an `AttachedFile`

    def __init__(self, files: Sequence[AttachedFile], theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.row = ChipRow(theme, parent) if files else None
        if self.row is not None:
            self.row.set_chips([self._chip(file, theme, self.row) for file in files])

    def place(self, width: int) -> int:
        """Place the chips within a width; return the height they take with the gap below."""
        if self.row is None:
            return 0
        height = self.row.layout_for(width, right=True)
        self.row.setGeometry(0, 0, width, height)
        return height + SMALL

    def _chip(self, file: AttachedFile, theme: Theme, row: QWidget) -> FileChip:
        chip = FileChip(theme, "surface", removable=False, parent=row)
        part = f"{file.taken[0].upper()}{file.taken[1:]}" if file.taken else f"{file.characters:,} characters"
        chip.show_file(
            file.name, part, tip=" ".join(each for each in (file.note, "Click to read what was sent.") if each)
        )
        chip.clicked.connect(lambda: self.opened.emit(file))
        return chip
