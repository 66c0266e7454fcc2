"""Small buttons that follow the theme, and menus that are filled when they open."""

from collections.abc import Callable

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QFocusEvent, QGuiApplication, QPainter, QPaintEvent, QPalette, QPen
from PySide6.QtWidgets import QAbstractButton, QMenu, QPushButton, QToolButton, QWidget

from rdchat.ui.look.icons import line_icon, line_pixmap
from rdchat.ui.look.plain_text import button_text, set_tip, without_controls
from rdchat.ui.look.theme import Theme, control_font

_ICON = 16
_COPIED_MS = 1600


class IconButton(QToolButton):
    """A flat icon button. A concealed one draws nothing, but keeps its place and its turn in the Tab order."""

    focus_changed = Signal()

    def __init__(self, icon: str, name: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._concealed = False
        self.setAutoRaise(True)
        self.setIconSize(QSize(_ICON, _ICON))
        self.setFixedSize(28, 26)
        self.show_as(icon, name)
        theme.changed.connect(self._draw)

    def show_as(self, icon: str, name: str) -> None:
        """Set the icon and the name, which is also the tooltip."""
        self._icon_name = icon
        self.setAccessibleName(name)
        set_tip(self, name)
        self._draw()

    def _draw(self) -> None:
        self.setIcon(line_icon(self._icon_name, self._theme.colors.muted, _ICON))

    def set_concealed(self, concealed: bool) -> None:
        if concealed != self._concealed:
            self._concealed = concealed
            self.update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._concealed:
            super().paintEvent(event)


class CopyButton(IconButton):
    """Copies text to the clipboard and confirms it for a moment."""

    copy_requested = Signal()

    def __init__(self, name: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("copy", name, theme, parent)
        self._name = name
        self._timer = QTimer(self, singleShot=True, interval=_COPIED_MS)
        self._timer.timeout.connect(lambda: self.show_as("copy", self._name))
        self.clicked.connect(self.copy_requested)

    def copy(self, text: str) -> None:
        QGuiApplication.clipboard().setText(without_controls(text))
        self.say_copied()

    def say_copied(self) -> None:
        """Show a check mark for a moment."""
        self.show_as("check", self.tr("Copied"))
        self._timer.start()


class TextButton(QToolButton):
    """A flat text button in the accent colour."""

    def __init__(self, text: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setAutoRaise(True)
        self.setText(text)  # which is also its accessible name
        self.setFont(control_font())
        self._draw()
        theme.changed.connect(self._draw)

    def _draw(self) -> None:
        palette = QPalette()
        palette.setColor(QPalette.ColorRole.ButtonText, self._theme.colors.accent)
        self.setPalette(palette)


class JumpButton(QAbstractButton):
    """The round button that floats over the transcript while the reader is not at its end."""

    SIZE = 34

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setFixedSize(self.SIZE, self.SIZE)
        self.setAccessibleName(self.tr("Jump to latest"))
        set_tip(self, self.tr("Jump to latest"))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._more = False

    def show_more(self, more: bool) -> None:
        """Show whether there is unread text below."""
        if more != self._more:
            self._more = more
            self.setAccessibleDescription(self.tr("There is more below") if more else "")
            set_tip(self, self.tr("Jump to latest: there is more below") if more else self.tr("Jump to latest"))
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(colors.accent if self.hasFocus() else colors.border, 2 if self.hasFocus() else 1))
        painter.setBrush(colors.raised if self.isDown() or self.underMouse() else colors.surface)
        painter.drawEllipse(self.rect().adjusted(1, 1, -2, -2))
        size = 18
        edge = (self.SIZE - size) // 2
        painter.drawPixmap(edge, edge, line_pixmap("latest", colors.text, size, self.devicePixelRatioF()))
        if self._more:
            painter.setPen(QPen(colors.surface, 2))
            painter.setBrush(colors.accent)
            painter.drawEllipse(self.SIZE - 12, 1, 10, 10)


def push_button(text: str, tip: str = "", act: Callable[[], object] | None = None) -> QPushButton:
    """Return a button that calls `act`; Return presses it only while it has the focus."""
    button = QPushButton(text)
    button.setAutoDefault(False)
    set_tip(button, tip)
    if act is not None:
        button.clicked.connect(lambda _checked: act())
    return button


class OpenMenu(QMenu):
    """Calls `fill` to add its entries whenever it opens.

    Args:
        fill: Adds the entries.
        parent: The widget of the menu.
    """

    def __init__(self, fill: Callable[[], None], parent: QWidget) -> None:
        super().__init__(parent)
        self._fill = fill
        self.aboutToShow.connect(lambda: refill(self, self._fill))

    def refresh(self) -> None:
        """Make the entries again if the menu is open."""
        if self.isVisible():
            refill(self, self._fill)


def refill(menu: QMenu, fill: Callable[[], None]) -> None:
    """Have `fill` add a menu's entries again, then remove the earlier ones.

    X11's window system closes an open menu that is empty for a moment, as it would be after `QMenu.clear`.
    """
    before = [action for action in menu.actions() if action.menu() is None]  # submenus are added again, not made again
    fill()
    for action in before:
        menu.removeAction(action)
        action.deleteLater()


def add_action(menu: QMenu, text: str, act: Callable[[], object], chosen: bool | None = None, tip: str = "") -> QAction:
    """Add an entry that shows its text as it is.

    Args:
        menu: The menu.
        text: The entry's text.
        act: What the entry does.
        chosen: Whether it has a check mark; None if it never has one.
        tip: The tooltip.
    """
    action = menu.addAction(button_text(text))
    action.triggered.connect(lambda _checked=False: act())
    set_tip(action, tip)
    if chosen is not None:
        action.setCheckable(True)
        action.setChecked(chosen)
    return action
