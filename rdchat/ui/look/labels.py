"""Labels that follow the theme: headings, secondary text, and figures that keep their place."""

from html import escape

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QFrame, QLabel, QSizePolicy, QToolTip, QWidget

from rdchat.ui.look.theme import Theme, control_font


def wrapped(words: str) -> str:
    """Return a tooltip that breaks its lines: Qt shows plain text in one, however long."""
    return f"<p>{escape(words)}</p>"


class ThemedLabel(QLabel):
    """A label in one of the theme's colours.

    Args:
        theme: The appearance to follow.
        text: What it says; plain text always, so that a title with `<` in it stays as it is.
        color: The name of a colour of `Colors`.
        points_more: Larger or smaller than the font of controls.
        bold: Whether it is semi-bold.
        tabular: Whether figures all have one width.
    """

    def __init__(
        self,
        theme: Theme,
        text: str = "",
        color: str = "text",
        points_more: float = 0,
        *,
        bold: bool = False,
        tabular: bool = False,
    ) -> None:
        super().__init__(text)
        self._theme = theme
        self._color = color
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setFont(control_font(points_more, bold, tabular))
        self._recolor()
        theme.changed.connect(self._recolor)

    def set_color(self, color: str) -> None:
        """Change to another colour of `Colors`, by its name."""
        self._color = color
        self._recolor()

    def _recolor(self) -> None:
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.WindowText, getattr(self._theme.colors, self._color))
        self.setPalette(palette)


class ElidedLabel(ThemedLabel):
    """One line that gives way to its neighbours: what does not fit is cut, and shown whole as its tooltip."""

    def __init__(
        self,
        theme: Theme,
        text: str = "",
        color: str = "text",
        points_more: float = 0,
        *,
        bold: bool = False,
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
    ) -> None:
        super().__init__(theme, text, color, points_more, bold=bold)
        self._mode = mode
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def event(self, event: QEvent) -> bool:
        if (
            isinstance(event, QHelpEvent)
            and event.type() is QEvent.Type.ToolTip
            and not self.toolTip()
            and self._is_cut()
        ):
            QToolTip.showText(event.globalPos(), self.text(), self)
            return True
        return super().event(event)

    def _is_cut(self) -> bool:
        return self.fontMetrics().horizontalAdvance(self.text()) > self.contentsRect().width()

    def sizeHint(self) -> QSize:
        return self.minimumSizeHint()  # it takes what is left, and never pushes

    def minimumSizeHint(self) -> QSize:
        return QSize(self.fontMetrics().averageCharWidth() * 4, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self.palette().color(QPalette.ColorRole.WindowText))
        area = self.contentsRect()
        shown = self.fontMetrics().elidedText(self.text(), self._mode, area.width())
        painter.drawText(area, self.alignment(), shown)


class Separator(QFrame):
    """A hairline in the theme's border colour."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setFixedHeight(1)
        theme.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), self._theme.colors.border)


class Ground(QWidget):
    """A plain area filled with one of the theme's colours."""

    def __init__(self, theme: Theme, color: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._color = color
        theme.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), getattr(self._theme.colors, self._color))
