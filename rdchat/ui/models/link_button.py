"""A word that can be clicked, in line with the text around it."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from rdchat.ui.look.theme import Theme, control_font

_EDGE = 3  # above and below the words


class LinkButton(QAbstractButton):
    """Words in the accent colour without a frame, so that they begin where the lines above and below begin."""

    def __init__(self, text: str, theme: Theme, points_more: float = 0, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setFont(control_font(points_more))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.show_text(text)
        theme.changed.connect(self.update)

    def show_text(self, text: str) -> None:
        """Take other words."""
        self.setText(text)
        self.setAccessibleName(text)
        self.updateGeometry()

    def sizeHint(self) -> QSize:
        metrics = self.fontMetrics()
        return QSize(metrics.horizontalAdvance(self.text()) + _EDGE, metrics.height() + 2 * _EDGE)

    def minimumSizeHint(self) -> QSize:
        return QSize(self.fontMetrics().averageCharWidth() * 6, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.hasFocus():  # no ring: there is no room for one beside the first letter
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.colors.selection)
            painter.drawRoundedRect(self.rect(), 4, 4)
        font = self.font()
        font.setUnderline((self.underMouse() or self.hasFocus()) and self.isEnabled())
        painter.setFont(font)
        painter.setPen(self._theme.colors.accent if self.isEnabled() else self._theme.colors.muted)
        text = painter.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideMiddle, self.width())
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, text)
