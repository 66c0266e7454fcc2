"""What would be opened in the browser, the mail program or a file manager, collected instead of opened."""

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QObject, QUrl, Slot
from PySide6.QtGui import QDesktopServices

_SCHEMES = ("http", "https", "mailto", "file", "javascript")


class _Collector(QObject):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    @Slot(QUrl)
    def collect(self, url: QUrl) -> None:
        self.addresses.append(url.toString())


@contextmanager
def collected_links() -> Iterator[list[str]]:
    """Give a list that fills with the addresses that the app asks the system to open."""
    collector = _Collector()
    for scheme in _SCHEMES:
        QDesktopServices.setUrlHandler(scheme, collector, "collect")
    try:
        yield collector.addresses
    finally:
        for scheme in _SCHEMES:
            QDesktopServices.unsetUrlHandler(scheme)
