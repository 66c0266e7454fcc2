"""Starts the person's other programs."""

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices

from rdchat.files.privacy import with_persons_umask


def open_address(address: QUrl) -> None:
    """Open a folder or a page in its program, which writes files of its own, with the person's umask."""
    with with_persons_umask():
        QDesktopServices.openUrl(address)
