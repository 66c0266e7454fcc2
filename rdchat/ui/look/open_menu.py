"""Menus whose entries change while they are open."""

from collections.abc import Callable

from PySide6.QtWidgets import QMenu


def refill(menu: QMenu, fill: Callable[[], None]) -> None:
    """Have `fill` add a menu's entries anew, and drop those from before behind it.

    An open menu that is empty for a moment is closed by X11's window system; `QMenu.clear` first did that.
    """
    before = [action for action in menu.actions() if action.menu() is None]  # a submenu is added again, not made anew
    fill()
    for action in before:
        menu.removeAction(action)
        action.deleteLater()
