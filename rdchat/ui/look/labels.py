"""Labels, lines and backgrounds that follow the theme."""

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import QSizePolicy, QWidget

from rdchat.ui.look.plain_text import PlainLabel, cut, show_tip
from rdchat.ui.look.theme import Theme, control_font


class ThemedLabel(PlainLabel):
    """A label in one of the theme's colours.

    Args:
        theme: The appearance to follow.
        text: Plain text: a title with `<` in it stays as it is.
        color: The name of a colour of `Colors`.
        points_more: How much larger the font is than that of controls.
        bold: Whether the text is semi-bold.
        tabular: Whether all digits have one width.
        wraps: Whether a long text takes several lines.
        selectable: Whether the mouse can select text.
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
        wraps: bool = False,
        selectable: bool = False,
    ) -> None:
        super().__init__(text)
        self.setWordWrap(wraps)
        if selectable:
            self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._theme = theme
        self._color = color
        self.setFont(control_font(points_more, bold, tabular))
        self._recolor()
        theme.changed.connect(self._recolor)

    def set_color(self, color: str) -> None:
        """Change to another colour of `Colors`."""
        self._color = color
        self._recolor()

    def say(self, text: str, color: str = "") -> None:
        """Show a text, perhaps in another colour of `Colors`; an empty text hides the label."""
        if color:
            self.set_color(color)
        self.setText(text)
        self.setVisible(bool(text))

    def _recolor(self) -> None:
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.WindowText, getattr(self._theme.colors, self._color))
        self.setPalette(palette)


class ElidedLabel(ThemedLabel):
    """One line that is cut where it does not fit; the tooltip then shows the whole text."""

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

    def setText(self, text: str) -> None:
        super().setText(cut(text))

    def event(self, event: QEvent) -> bool:
        if (
            isinstance(event, QHelpEvent)
            and event.type() is QEvent.Type.ToolTip
            and not self.toolTip()
            and self._is_cut()
        ):
            show_tip(event.globalPos(), self.text(), self)
            return True
        return super().event(event)

    def _is_cut(self) -> bool:
        return self.fontMetrics().horizontalAdvance(self.text()) > self.contentsRect().width()

    def sizeHint(self) -> QSize:
        return self.minimumSizeHint()  # it takes the room that is left

    def minimumSizeHint(self) -> QSize:
        return QSize(self.fontMetrics().averageCharWidth() * 4, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self.palette().color(QPalette.ColorRole.WindowText))
        area = self.contentsRect()
        painter.drawText(area, self.alignment(), self.shown(area.width()))

    def shown(self, width: int) -> str:
        """Return what a width has room for."""
        return self.fontMetrics().elidedText(self.text(), self._mode, width)


class Ground(QWidget):
    """A widget filled with one of the theme's colours."""

    def __init__(self, theme: Theme, color: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._color = color

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), getattr(self._theme.colors, self._color))


class Separator(Ground):
    """A hairline in the theme's border colour."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "border")
        self.setFixedHeight(1)
