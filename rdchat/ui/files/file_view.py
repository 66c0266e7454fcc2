"""The window that shows what was sent of a file."""

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QPlainTextEdit, QPushButton, QWidget

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.file_texts import FileTexts
from rdchat.errors import RdchatError
from rdchat.services.background.background_work import BackgroundWork
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SideWindow
from rdchat.ui.look.theme import LARGE, MEDIUM, Theme

_LONGEST_LINE = 4_000  # characters: laying out a longer line would block the window


class FileView(SideWindow):
    """A window with a file's text as the model was given it."""

    def __init__(self, file: AttachedFile, texts: FileTexts, theme: Theme, parent: QWidget) -> None:
        super().__init__(file.name, (680, 560), (360, 240), parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        sent = f"{file.taken[0].upper()}{file.taken[1:]}" if file.taken else "All of it"
        words = f"{sent}: {file.characters:,} characters, as the model was told."
        about = ThemedLabel(theme, f"{words} {file.note}".strip(), "muted", -1, wraps=True)
        self.text = QPlainTextEdit(readOnly=True, undoRedoEnabled=False)
        self.text.setFont(theme.code_font())
        self.text.setAccessibleName(f"Text of {file.name}")
        self.text.setTabChangesFocus(True)
        self.text.setPlaceholderText("Reading…")
        close = QPushButton("Close")
        close.clicked.connect(self.close)
        head = row((about, 1), MEDIUM, close)
        head.setAlignment(close, Qt.AlignmentFlag.AlignTop)
        column(head, (self.text, 1), within=self, margins=(LARGE, MEDIUM, LARGE, LARGE))
        self._task = BackgroundWork("file view", self)
        self._task.replace(lambda _job: _broken(texts.text(file)), self.text.setPlainText, failed=self._show_failure)
        self.text.setFocus()

    @Slot(RdchatError)
    def _show_failure(self, error: RdchatError) -> None:
        self.text.setPlaceholderText(str(error))


def _broken(text: str) -> str:
    """Return a text with its long lines broken."""
    lines = text.split("\n")
    if all(len(line) <= _LONGEST_LINE for line in lines):
        return text
    pieces = (
        line[place : place + _LONGEST_LINE] for line in lines for place in range(0, len(line) or 1, _LONGEST_LINE)
    )
    return "\n".join(pieces)
