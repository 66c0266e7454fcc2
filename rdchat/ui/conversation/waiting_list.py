"""The messages of the open chat that wait to be sent, above the composer."""

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.services.chat.open_chat import WaitingMessage
from rdchat.ui.style.buttons import IconButton
from rdchat.ui.style.formatting import counted
from rdchat.ui.style.labels import ElidedLabel, ThemedLabel
from rdchat.ui.style.layouts import column, row, scrolled
from rdchat.ui.style.theme import LARGE, SMALL, TEXT_WIDTH, TIGHT, Theme, paint_card

_ROW, _MAX_ROWS = 28, 3  # pixels; more rows scroll


class WaitingList(QWidget):
    """One row for each message, the next one first, with buttons to edit and to remove it; hidden without any."""

    # Each has a `WaitingMessage`.
    edit_requested = Signal(object)
    remove_requested = Signal(object)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.setAccessibleName("Waiting messages")
        self.title = ThemedLabel(theme, "", "muted", -1)
        self._visible: list[QWidget] = []
        self._rows = QWidget()
        self._lines = column(within=self._rows, spacing=0)
        self._area = scrolled(self._rows)
        for widget in (self._area, self._area.viewport(), self._rows):
            widget.setAutoFillBackground(False)
        self._card = QWidget()
        self._card.setMaximumWidth(TEXT_WIDTH + 2 * LARGE)
        column(self.title, self._area, within=self._card, spacing=TIGHT, margins=(LARGE, SMALL, SMALL, SMALL))
        row(None, (self._card, 1000), None, within=self, spacing=0, margins=(LARGE, TIGHT, LARGE, 0))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.update)
        self.hide()

    def show_messages(self, messages: list[WaitingMessage], title: str) -> None:
        """Show these messages; `words` say what they wait for."""
        self.title.setText(title)
        for line in self._visible:
            self._lines.removeWidget(line)
            line.hide()
            line.deleteLater()
        self._visible = [self._row(message) for message in messages]
        for line in self._visible:
            self._lines.addWidget(line)
            line.show()
        self._area.setFixedHeight(_ROW * min(len(messages), _MAX_ROWS))
        self.setVisible(bool(messages))

    def _row(self, message: WaitingMessage) -> QWidget:
        line = QWidget()
        line.setFixedHeight(_ROW)
        first = ElidedLabel(self._theme, " ".join(message.text.split()))
        files = counted(len(message.files), "file") if message.files else ""
        edit = IconButton("edit", "Edit this message", self._theme, None, lambda: self.edit_requested.emit(message))
        remove = IconButton("close", "Remove this message", self._theme)
        remove.clicked.connect(lambda: self.remove_requested.emit(message))
        row((first, 1), ThemedLabel(self._theme, files, "muted", -1), edit, remove, within=line, spacing=TIGHT)
        return line

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        area = QRectF(self._card.geometry()).adjusted(1, 1, -1, -1)
        paint_card(self, area, colors.raised, colors.border, radius=12)
