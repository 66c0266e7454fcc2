"""The chips of the files in the message field."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from rdchat.services.files.pending_files import PendingFile, PendingFiles
from rdchat.ui.files.chips import CHIP_HEIGHT, ChipRow, FileChip
from rdchat.ui.look.theme import TIGHT, Theme

_MOST_LINES_HEIGHT = 3 * CHIP_HEIGHT + 2 * TIGHT + 2  # of chips: more scroll


class PendingRow(QScrollArea):
    """Follows `PendingFiles`; takes no room while there are none, and scrolls beyond three lines.

    Args:
        theme: The appearance to follow.
        parent: The Qt parent.
    """

    choice_requested = Signal(int)  # a file's id
    remove_requested = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._row = ChipRow(theme)
        self._by_id: dict[int, FileChip] = {}
        self.setWidget(self._row)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Files of this message")
        for widget in (self, self.viewport(), self._row):
            widget.setAutoFillBackground(False)  # the frame around them is drawn behind
        self.hide()

    @property
    def chips(self) -> list[FileChip]:
        """Those that are shown."""
        return self._row.chips

    def show_files(self, pending: PendingFiles, context: int | None) -> None:
        """Show the files of the open chat.

        Args:
            pending: Has them.
            context: The model's context, in tokens; None without a model.
        """
        old, self._by_id = self._by_id, {}
        for file in pending.files:
            chip = old.pop(file.id, None) or self._make(file.id)
            self._by_id[file.id] = chip
            detail, color = chip_words(file, context, too_long=file is pending.to_shorten)
            chip.show_file(file.name, detail, color, tip=_tip(file))
            chip.show_progress((file.fraction or 0.0) if file.read is None else None)
        for chip in old.values():
            chip.hide()
            chip.deleteLater()
        self._row.set_chips(list(self._by_id.values()))
        self.setVisible(bool(self._by_id))
        self._fit()

    def _make(self, file_id: int) -> FileChip:
        chip = FileChip(self._theme, "raised", removable=True, parent=self._row)
        chip.focused.connect(lambda: self.ensureWidgetVisible(chip, 0, TIGHT))
        chip.clicked.connect(lambda: self.choice_requested.emit(file_id))
        chip.remove_requested.connect(lambda: self.remove_requested.emit(file_id))
        return chip

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        height = self._row.layout_for(self.viewport().width())
        self._row.resize(self.viewport().width(), height)
        shown = min(height, _MOST_LINES_HEIGHT)
        if shown != self.height():
            self.setFixedHeight(shown)


def chip_words(file: PendingFile, context: int | None, *, too_long: bool) -> tuple[str, str]:
    """Return the line below a file's name, and its colour."""
    if file.read is None or file.part is None:
        return ("Waiting…" if file.fraction is None else f"Reading… {file.fraction:.0%}"), "muted"
    if file.count is None:
        words = "Counting…" if context is not None else f"{len(file.part.text):,} characters"
    else:
        words = file.count.words
        if context and not too_long:
            share = file.count.tokens / context
            words += " · <1%" if share < 0.01 else f" · {share:.0%}"
    if too_long and file.count is not None:
        return f"{words} · choose a part", "danger"
    return (f"{words} · {file.part.words}" if file.part.words else words), "muted"


def _tip(file: PendingFile) -> str:
    if file.read is None:
        return "It is being read."
    part = f"Of it, {file.part.words} will be sent." if file.part and file.part.words else ""
    note = file.read.note
    return " ".join(each for each in (part, note, "Click to choose what is sent of it.") if each)
