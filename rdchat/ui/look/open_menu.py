"""Menus whose entries are made when they open."""

from collections.abc import Callable

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QWidget

from rdchat.ui.look.plain_text import button_text, set_tip


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
