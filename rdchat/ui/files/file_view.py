"""What was sent of a file, to read."""

from PySide6.QtCore import Qt, QTimer, Slot
from PySide6.QtGui import QKeySequence, QShortcut, QTextCursor
from PySide6.QtWidgets import QDialog, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.attachments.file_texts import FileTexts
from rdchat.errors import RdchatError
from rdchat.services.background.background_work import BackgroundWork
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, Theme

_SLICE = 20_000  # characters a turn of the event loop
_LONGEST_LINE = 4_000  # characters: a longer one is broken, as laying it out would hold the window up


class FileView(QDialog):
    """A window with a file's text as the model was told it. Closes with Escape.

    Args:
        file: Of a message.
        texts: Where its text is.
        theme: The appearance to follow.
        parent: What the window stays above.
    """

    def __init__(self, file: AttachedFile, texts: FileTexts, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(file.name)
        self.setMinimumSize(360, 240)
        self.resize(680, 560)
        sent = f"{file.taken[0].upper()}{file.taken[1:]}" if file.taken else "All of it"
        words = f"{sent}: {file.characters:,} characters, as the model was told."
        about = ThemedLabel(theme, f"{words} {file.note}".strip(), "muted", -1)
        about.setWordWrap(True)
        self.text = QPlainTextEdit(readOnly=True, undoRedoEnabled=False)
        self.text.setFont(theme.code_font())
        self.text.setAccessibleName(f"Text of {file.name}")
        self.text.setTabChangesFocus(True)
        self.text.setPlaceholderText("Reading…")
        self._left = ""
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._add_slice)
        close = QPushButton("Close")
        close.clicked.connect(self.close)
        row = QHBoxLayout()
        row.addWidget(about, 1)
        row.addSpacing(MEDIUM)
        row.addWidget(close, 0, Qt.AlignmentFlag.AlignTop)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(LARGE, MEDIUM, LARGE, LARGE)
        layout.setSpacing(SMALL)
        layout.addLayout(row)
        layout.addWidget(self.text, 1)
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)
        self._task = BackgroundWork("file view", self)
        self._task.replace(lambda _job: _broken(texts.text(file)), self._show_text, failed=self._show_failure)
        self.text.setFocus()

    @Slot(object)
    def _show_text(self, text: str) -> None:
        self._left = text
        self._add_slice()

    def _add_slice(self) -> None:
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(self._left[:_SLICE])
        self._left = self._left[_SLICE:]
        if self._left and not self._timer.isActive():
            self._timer.start()
        elif not self._left:
            self._timer.stop()

    @Slot(RdchatError)
    def _show_failure(self, error: RdchatError) -> None:
        self.text.setPlaceholderText(str(error))


def _broken(text: str) -> str:
    """Return a text whose lines are of bounded length."""
    lines = text.split("\n")
    if all(len(line) <= _LONGEST_LINE for line in lines):
        return text
    pieces = (
        line[place : place + _LONGEST_LINE] for line in lines for place in range(0, len(line) or 1, _LONGEST_LINE)
    )
    return "\n".join(pieces)
