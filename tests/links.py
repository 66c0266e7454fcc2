"""Clicks links in a text, and collects what would be opened."""

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QEvent, QObject, QPointF, Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QMouseEvent
from PySide6.QtWidgets import QApplication

from rdchat.ui.transcript.markdown.text_body import TextBody

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


def click(body: TextBody, words: str) -> None:
    """Click on the first place where a text says these words."""
    cursor = body.document().find(words)
    assert not cursor.isNull()
    cursor.setPosition(cursor.selectionStart() + 1)
    place = QPointF(body.cursorRect(cursor).center())
    left = Qt.MouseButton.LeftButton
    for kind in (QEvent.Type.MouseButtonPress, QEvent.Type.MouseButtonRelease):
        # qtbot.mouseClick warns where a release is not accepted, as it is not beside links
        event = QMouseEvent(kind, place, body.viewport().mapToGlobal(place), left, left, Qt.KeyboardModifier.NoModifier)
        QApplication.sendEvent(body.viewport(), event)
