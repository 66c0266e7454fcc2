"""Shows where a drop would land, and what it would do."""

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import LARGE, MEDIUM, RADIUS, SMALL, TIGHT, Theme

_ICON = 28
_VEIL = 0.6  # opacity of the veil over what is below
_WIDEST = 320  # pixels of a line of text


class DropOverlay(QWidget):
    """Covers a part of a window while something is dragged over it that can be dropped there.

    The pointer goes through it: the window below receives the drop.

    Attributes:
        words: What a drop would do.
        name: What is dragged.
    """

    def __init__(self, theme: Theme, window: QWidget) -> None:
        super().__init__(window)
        self._theme, self._window = theme, window
        self._area: QWidget | None = None
        self.words = self.name = ""
        self._picture = PlainLabel()
        self._title = ThemedLabel(theme, "", points_more=3, bold=True)
        self._about = ThemedLabel(theme, "", "muted")
        self._card = QWidget()
        self._card.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Maximum)
        lines = (self._picture, SMALL - TIGHT, self._title, self._about)
        column(*lines, within=self._card, spacing=TIGHT, margins=(LARGE, LARGE, LARGE, MEDIUM + TIGHT))
        for label in (self._picture, self._title, self._about):
            label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        column(None, row(None, self._card, None), None, within=self)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def show_over(self, area: QWidget, icon: str, words: str, name: str) -> None:
        """Cover a part of the window with an icon, bold words and the name of what is dragged."""
        if area is not self._area:
            self._leave_area()
            self._area = area
            area.installEventFilter(self)
        self.words, self.name = words, name
        self.setAccessibleName(f"{words}: {name}")
        self._picture.setPixmap(line_pixmap(icon, self._theme.colors.accent, _ICON, self.devicePixelRatioF()))
        room = min(_WIDEST, area.width() - 6 * LARGE)
        for label, text in ((self._title, words), (self._about, name)):
            label.setText(label.fontMetrics().elidedText(text, Qt.TextElideMode.ElideMiddle, room))
        self._fit()
        self.raise_()
        self.show()
        self.update()

    def take_away(self) -> None:
        """Hide the overlay."""
        self._leave_area()
        self.hide()

    def _leave_area(self) -> None:
        if self._area is not None:
            self._area.removeEventFilter(self)
            self._area = None

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Resize, QEvent.Type.Move):
            self._fit()
        return False

    def _fit(self) -> None:
        if self._area is not None:
            place = self._area.mapTo(self._window, QPoint(0, 0))
            self.setGeometry(QRect(place, self._area.size()))

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        veil, tint = QColor(colors.surface), QColor(colors.accent)
        veil.setAlphaF(_VEIL)
        tint.setAlphaF(0.1)
        painter.fillRect(self.rect(), veil)
        painter.setBrush(tint)
        painter.setPen(QPen(colors.accent, 2))
        edge = SMALL + 1
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(edge, edge, -edge, -edge), RADIUS, RADIUS)
        painter.setPen(colors.border)
        painter.setBrush(colors.surface)
        painter.drawRoundedRect(self._card.geometry(), RADIUS, RADIUS)
