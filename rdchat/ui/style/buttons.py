"""Buttons and menus of all windows, and `FocusRings`, which mark focused controls that Qt's own style does not mark."""

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QAction, QGuiApplication, QKeyEvent, QPainter, QPaintEvent, QPalette, QPen
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractScrollArea,
    QApplication,
    QDialogButtonBox,
    QFrame,
    QMenu,
    QPushButton,
    QSizePolicy,
    QStyle,
    QStyleOptionToolButton,
    QStylePainter,
    QTextBrowser,
    QToolButton,
    QWidget,
)
from shiboken6 import isValid

from rdchat import host
from rdchat.errors import without_controls
from rdchat.ui.style.labels import button_text, set_tip, single_shot
from rdchat.ui.style.theme import TIGHT, Theme, control_font, line_icon, line_pixmap, paint_focus, set_role

type Action = Callable[[], object]

# In pixels.
_ICON = 16
_LARGE_ICON = 18
# How long a copy button shows its check mark.
_COPIED_MS = 1600


def _pressed_by(event: QKeyEvent, button: QAbstractButton) -> bool:
    """Press a button if the key is Return, which Qt leaves to the dialog's default button; return whether it is."""
    is_return = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
    if is_return:
        button.click()
    return is_return


class FlatButton(QToolButton):
    """A flat tool button without a menu's arrow; its focus ring is at the edge, where it does not cut the text.

    Return presses it while it has the focus.

    Attributes:
        looks_checked: Whether it is drawn as pressed while it is checked.
        focus_changed: Emitted when it gets or loses the focus; its owner may conceal it then.
    """

    looks_checked = True
    focus_changed = Signal()

    def __init__(self, parent: QWidget | None = None, act: Action | None = None) -> None:
        super().__init__(parent, autoRaise=True)
        if act is not None:
            self.clicked.connect(lambda _checked: act())

    def show_arrow(self, unfolded: bool) -> None:
        """Show before the text whether what it folds is unfolded."""
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.setArrowType(Qt.ArrowType.DownArrow if unfolded else Qt.ArrowType.RightArrow)

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() in {QEvent.Type.FocusIn, QEvent.Type.FocusOut}:
            self.focus_changed.emit()
        return done

    def focusNextPrevChild(self, forward: bool) -> bool:
        """Keep the focus while disabled: Qt would move it on, away from a Send button that becomes Stop."""
        return not self.isEnabled() or super().focusNextPrevChild(forward)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not _pressed_by(event, self):
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        option = QStyleOptionToolButton()
        self.initStyleOption(option)
        option.features &= ~QStyleOptionToolButton.ToolButtonFeature.HasMenu
        option.state &= ~QStyle.StateFlag.State_HasFocus
        if not self.looks_checked:
            option.state &= ~QStyle.StateFlag.State_On
        painter = QStylePainter(self)
        painter.drawComplexControl(QStyle.ComplexControl.CC_ToolButton, option)
        if self.hasFocus():
            paint_focus(painter, QRectF(self.rect()), self.palette().color(QPalette.ColorRole.Accent))


class IconButton(FlatButton):
    """A flat icon button. A concealed one draws nothing, but stays in the layout and in the Tab order."""

    def __init__(
        self, icon: str, name: str, theme: Theme, parent: QWidget | None = None, act: Action | None = None
    ) -> None:
        super().__init__(parent, act)
        self._theme = theme
        self._concealed = False
        # Whether the button has the present icon in the present colour; if not, `paintEvent` makes it.
        self._drawn = False
        self.setIconSize(QSize(_ICON, _ICON))
        self.setFixedSize(28, 26)
        self.show_as(icon, name)
        theme.changed.connect(self._draw)

    def show_as(self, icon: str, name: str, color: str = "muted") -> None:
        """Set the icon, its colour of `Colors`, and the name, which is also the tooltip."""
        self._icon_name = icon
        self._color = color
        self.setAccessibleName(name)
        set_tip(self, name)
        self._draw()

    def _draw(self) -> None:
        """Have `paintEvent` draw the icon, once it is seen: a transcript has hundreds of concealed buttons."""
        self._drawn = False
        self.update()

    def set_concealed(self, concealed: bool) -> None:
        if concealed != self._concealed:
            self._concealed = concealed
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._concealed:
            return
        if not self._drawn:
            self._drawn = True
            self.setIcon(line_icon(self._icon_name, getattr(self._theme.colors, self._color), _ICON))
        super().paintEvent(event)


class RoundButton(IconButton):
    """A circle with an icon, filled with the accent colour, or with a border alone."""

    def __init__(self, icon: str, name: str, theme: Theme, size: int, parent: QWidget | None = None) -> None:
        self._filled = True
        super().__init__(icon, name, theme, parent)
        self.setFixedSize(size, size)

    def set_filled(self, filled: bool) -> None:
        self._filled = filled
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        colors = self._theme.colors
        enabled = self.isEnabled()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._filled:
            ground, ink = (colors.accent, colors.on_accent) if enabled else (colors.border, colors.muted)
            painter.setPen(QPen(colors.text, 1.5) if self.hasFocus() else Qt.PenStyle.NoPen)
            painter.setBrush(ground.darker(115) if self.isDown() else ground)
        else:
            painter.setPen(QPen(colors.accent, 2) if self.hasFocus() else colors.border)
            painter.setBrush(colors.raised if self.isDown() or self.underMouse() else colors.surface)
            ink = colors.text
        painter.drawEllipse(QRectF(self.rect()).adjusted(1, 1, -1, -1))
        edge = (self.width() - _LARGE_ICON) // 2
        painter.drawPixmap(edge, edge, line_pixmap(self._icon_name, ink, _LARGE_ICON, self.devicePixelRatioF()))


class CopyButton(IconButton):
    """Copies text to the clipboard and confirms it for a moment; a click copies what `text` returns."""

    def __init__(self, name: str, theme: Theme, text: Callable[[], str], parent: QWidget | None = None) -> None:
        super().__init__("copy", name, theme, parent, lambda: self.copy(text()))
        self._timer = single_shot(self, _COPIED_MS, lambda: self.show_as("copy", name))

    def copy(self, text: str) -> None:
        QGuiApplication.clipboard().setText(without_controls(text))
        self.show_copied()

    def show_copied(self) -> None:
        """Show a check mark for a moment."""
        self.show_as("check", "Copied")
        self._timer.start()


class TextButton(FlatButton):
    """A flat text button in a colour of `Colors`."""

    def __init__(self, text: str, theme: Theme, act: Action | None = None, *, color: str = "accent") -> None:
        super().__init__(None, act)
        self._theme = theme
        self._color = color
        # The text is the accessible name, too.
        self.setText(text)
        self.setFont(control_font())
        self._draw()
        theme.changed.connect(self._draw)

    def _draw(self) -> None:
        set_role(self, QPalette.ColorRole.ButtonText, getattr(self._theme.colors, self._color))


class SectionHead(FlatButton):
    """A heading that folds and unfolds its section."""

    looks_checked = False

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setText(name)
        self.setCheckable(True)
        self.setChecked(True)
        self.setFont(control_font(-0.5, bold=True))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.toggled.connect(self._describe)
        self._describe(True)

    def _describe(self, unfolded: bool) -> None:
        self.show_arrow(unfolded)
        self.setAccessibleName(f"{self.text()}, {'unfolded' if unfolded else 'folded'}")
        set_tip(self, f"{'Fold' if unfolded else 'Unfold'} {self.text()}")


class PushButton(QPushButton):
    """A push button that keeps the focus while it is disabled. Return presses it while it has the focus."""

    def focusNextPrevChild(self, forward: bool) -> bool:
        return not self.isEnabled() or super().focusNextPrevChild(forward)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not _pressed_by(event, self):
            super().keyPressEvent(event)


def push_button(text: str, tip: str = "", act: Action | None = None) -> QPushButton:
    """Return a button that calls `act`; Return presses it only while it has the focus."""
    button = PushButton(text, autoDefault=False)
    set_tip(button, tip)
    if act is not None:
        button.clicked.connect(lambda _checked: act())
    return button


def dialog_buttons(**buttons: QPushButton) -> QDialogButtonBox:
    """Return a dialog's buttons, each by its role (`action`, `reject`, `accept`), in the order of the platform."""
    box = QDialogButtonBox()
    for role, button in buttons.items():
        default = button.isDefault()
        button.setDefault(False)  # Tab would skip the buttons before one that is already the default
        box.addButton(button, QDialogButtonBox.ButtonRole[f"{role.capitalize()}Role"])
        button.setDefault(default)
    return box


class OpenMenu(QMenu):
    """Calls `fill` to add its entries whenever it opens.

    Args:
        fill: Adds the entries.
        parent: The widget of the menu.
    """

    def __init__(self, fill: Callable[[], None], parent: QWidget) -> None:
        super().__init__(parent)
        self._fill = fill
        self.aboutToShow.connect(self._refill)

    def remake_entries(self) -> None:
        """Make the entries again if the menu is open."""
        if self.isVisible():
            self._refill()

    def _refill(self) -> None:
        """Add the entries again, then remove the earlier ones.

        X11's window system closes an open menu that is empty for a moment, as it would be after `QMenu.clear`.
        """
        # Submenus are left, because `fill` adds the same ones again.
        before = [action for action in self.actions() if action.menu() is None]
        self._fill()
        for action in before:
            self.removeAction(action)
            action.deleteLater()


def pop_up(menu: QMenu, point: QPoint) -> None:
    """Open a menu at a point of the screen, and delete it once it is closed."""
    menu.aboutToHide.connect(menu.deleteLater)
    menu.popup(point)


def add_action(menu: QMenu, text: str, act: Action, chosen: bool | None = None, tip: str = "") -> QAction:
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


class _Ring(QWidget):
    """A ring inside a widget's edge, or around a text browser, whose text has no margin. Clicks pass through."""

    def __init__(self, widget: QWidget, theme: Theme) -> None:
        self._outside = isinstance(widget, QTextBrowser)
        super().__init__(widget.parentWidget() if self._outside else widget)
        self._widget = widget
        self._theme = theme
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        widget.installEventFilter(self)
        self._follow()
        self.show()

    def _follow(self) -> None:
        around = self._widget.geometry().adjusted(-TIGHT, -TIGHT, TIGHT, TIGHT)
        self.setGeometry(around if self._outside else self._widget.rect())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in {QEvent.Type.Resize, QEvent.Type.Move}:
            self._follow()
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_focus(QPainter(self), QRectF(self.rect()), self._theme.colors.accent)


class FocusRings(QObject):
    """Draws a ring around the focused control of any window, if Qt's style draws none. A Mac's style draws them all."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme)
        self._theme = theme
        self._ring: _Ring | None = None
        app = QApplication.instance()
        assert isinstance(app, QApplication), "widgets exist only in an application"
        if not host.MACOS:
            app.focusChanged.connect(self._show)

    def _show(self, _old: QWidget | None, now: QWidget | None) -> None:
        # The ring is a child of the widget before, or of its parent, and may have been deleted with that.
        if self._ring is not None and isValid(self._ring):
            self._ring.hide()
            self._ring.deleteLater()
        self._ring = _Ring(now, self._theme) if now is not None and _needs_ring(now) else None


def _needs_ring(widget: QWidget) -> bool:
    """Return whether neither Qt's style nor the widget itself shows that it has the focus."""
    if isinstance(widget, QTextBrowser):
        # A click into a text shows by itself where it was.
        return widget.window().testAttribute(Qt.WidgetAttribute.WA_KeyboardFocusChange)
    if isinstance(widget, QAbstractItemView) and widget.frameShape() is QFrame.Shape.NoFrame:
        # The current row of such a list shows the focus.
        return not widget.currentIndex().isValid()
    if isinstance(widget, QPushButton):
        return widget.isFlat()
    # A scroll area with a frame gets a ring; any other control does not.
    return isinstance(widget, QAbstractScrollArea) and widget.frameShape() is not QFrame.Shape.NoFrame
