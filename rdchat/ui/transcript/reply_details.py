"""A finished reply's own statistics: a line beside its buttons, and all of them in a small window over it."""

from collections.abc import Sequence

from PySide6.QtCore import QPoint, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QVBoxLayout, QWidget

from rdchat.chat.conversation import Message
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme, control_font
from rdchat.ui.speed.sections import FigureRow
from rdchat.ui.transcript.reply_facts import facts, summary

_BETWEEN = " · "
_WIDTH = 280


class FactsLine(QWidget):
    """Says as many facts as there is room for, the first ones first. While it is concealed it keeps its place."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._parts: Sequence[str] = ()
        self._concealed = True
        self.setFont(control_font(-1, tabular=True))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Statistics of the reply"))

    @property
    def shown_text(self) -> str:
        """What can be read at this moment."""
        return "" if self._concealed else self._fitting()

    def show_message(self, message: Message) -> None:
        self._parts = summary(message)
        self.setAccessibleDescription(", ".join(self._parts))
        set_tip(self, _BETWEEN.join(self._parts) if self._parts else "")
        self.update()

    def set_concealed(self, concealed: bool) -> None:
        self._concealed = concealed
        self.update()

    def _fitting(self) -> str:
        for count in range(len(self._parts), 0, -1):
            text = _BETWEEN.join(self._parts[:count])
            if self.fontMetrics().horizontalAdvance(text) <= self.width() - SMALL:
                return text
        return ""

    def sizeHint(self) -> QSize:
        return QSize(0, self.fontMetrics().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self._theme.colors.muted)
        painter.drawText(self.rect().adjusted(SMALL, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, self.shown_text)


class ReplyDetails(QFrame):
    """All statistics of one reply; it goes away with the next click beside it, or Esc."""

    tokens_requested = Signal()

    def __init__(self, message: Message, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAccessibleName(self.tr("Details of the reply"))
        self.setFixedWidth(_WIDTH)
        column = QVBoxLayout(self)
        column.setContentsMargins(MEDIUM, MEDIUM, MEDIUM, SMALL)
        column.setSpacing(TIGHT + 2)
        if message.model:
            column.addWidget(ThemedLabel(theme, message.model, bold=True))
        for fact in facts(message):
            figure = FigureRow(theme, fact.name, fact.definition)
            figure.show_value(fact.value)
            column.addWidget(figure)
        if message.drafting and message.drafting.reason:
            reason = ThemedLabel(theme, message.drafting.reason, "muted", -1)
            reason.setWordWrap(True)
            column.addWidget(reason)
        tokens = TextButton(self.tr("Show tokens"), theme)
        tokens.clicked.connect(self.close)
        tokens.clicked.connect(self.tokens_requested)
        column.addWidget(tokens, 0, Qt.AlignmentFlag.AlignRight)
        tokens.setFocus()

    def open_above(self, anchor: QWidget) -> None:
        """Show over a button, or below it where there is no room."""
        self.adjustSize()
        place = anchor.mapToGlobal(QPoint(0, -self.height() - TIGHT))
        room = anchor.screen().availableGeometry()
        if place.y() < room.top():
            place = anchor.mapToGlobal(QPoint(0, anchor.height() + TIGHT))
        place.setX(max(room.left(), min(place.x(), room.right() - self.width())))
        self.move(place)
        self.show()
