"""What a page of the models window asks of the others."""

from PySide6.QtCore import QObject, Signal


class PageLinks(QObject):
    """Requests to show another page, or the dialog for the hub's token; the window answers them."""

    downloads_requested = Signal()
    discover_requested = Signal()
    token_requested = Signal()
