"""Requests of a page of the models window to the window."""

from PySide6.QtCore import QObject, Signal


class PageLinks(QObject):
    """Signals that show another page, or the dialog for the hub's token."""

    downloads_requested = Signal()
    discover_requested = Signal()
    token_requested = Signal()
