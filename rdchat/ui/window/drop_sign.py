"""Where what is dragged over a window would land, and what would become of it."""

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.theme import LARGE, MEDIUM, RADIUS, SMALL, TIGHT, Theme, control_font

_ICON = 28
_VEIL = 0.6  # how much of what is below is covered
_WIDEST = 320  # words, in pixels


class DropSign(QWidget):
    """Lies over a part of a window while something is dragged over it that can be dropped there.

    The pointer goes through it: the window below is what something is dropped on.
    """

    def __init__(self, theme: Theme, window: QWidget) -> None:
        super().__init__(window)
        self._theme, self._window = theme, window
        self._area: QWidget | None = None
        self._icon = self.words = self.name = ""
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()
        theme.changed.connect(self.update)

    def show_over(self, area: QWidget, icon: str, words: str, name: str) -> None:
        """Show over a part of the window, with an icon, words in bold, and what is dragged."""
        if area is not self._area:
            self._leave_area()
            self._area = area
            area.installEventFilter(self)
        self._icon, self.words, self.name = icon, words, name
        self.setAccessibleName(f"{words}: {name}")
        self._fit()
        self.raise_()
        self.show()
        self.update()

    def take_away(self) -> None:
        """Show nothing any more."""
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
        veil = QColor(colors.surface)
        veil.setAlphaF(_VEIL)
        painter.fillRect(self.rect(), veil)
        tint = QColor(colors.accent)
        tint.setAlphaF(0.1)
        painter.setBrush(tint)
        painter.setPen(QPen(colors.accent, 2))
        edge = SMALL + 1
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(edge, edge, -edge, -edge), RADIUS, RADIUS)
        self._paint_card(painter)

    def _paint_card(self, painter: QPainter) -> None:
        colors = self._theme.colors
        room = min(_WIDEST, self.width() - 2 * (3 * LARGE))
        lines: list[tuple[QFont, QColor, str]] = []
        for font, ink, text in (
            (control_font(3, bold=True), colors.text, self.words),
            (control_font(), colors.muted, self.name),
        ):
            shown = QFontMetrics(font).elidedText(text, Qt.TextElideMode.ElideMiddle, room)
            lines.append((font, ink, shown))
        width = max(QFontMetrics(font).horizontalAdvance(text) for font, _, text in lines) + 2 * LARGE
        height = LARGE + _ICON + SMALL + sum(QFontMetrics(font).height() + TIGHT for font, _, _ in lines) + MEDIUM
        card = QRect((self.width() - width) // 2, (self.height() - height) // 2, width, height)
        painter.setPen(colors.border)
        painter.setBrush(colors.surface)
        painter.drawRoundedRect(card, RADIUS, RADIUS)
        top = card.top() + LARGE
        picture = line_pixmap(self._icon, colors.accent, _ICON, self.devicePixelRatioF())
        painter.drawPixmap(card.center().x() - _ICON // 2, top, picture)
        top += _ICON + SMALL
        for font, ink, text in lines:
            painter.setFont(font)
            painter.setPen(ink)
            high = painter.fontMetrics().height()
            painter.drawText(QRect(card.left(), top, width, high), Qt.AlignmentFlag.AlignCenter, text)
            top += high + TIGHT
