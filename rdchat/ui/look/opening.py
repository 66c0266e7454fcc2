"""Opens folders and web pages in the person's other programs."""

import re
from pathlib import Path

from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices

from rdchat import host
from rdchat.files.privacy import with_persons_umask

SHOW_FOLDER = "Show in Finder" if host.MACOS else "Open folder"
"""Text of the button that calls `show_folder`."""
_OPENABLE = re.compile(r"(?:https?://|mailto:)\S", re.IGNORECASE)


def show_folder(path: Path) -> None:
    """Open a folder, or the folder of a file, in the system's file manager."""
    folder = path if path.is_dir() else path.parent
    folder.mkdir(parents=True, exist_ok=True)
    open_address(QUrl.fromLocalFile(str(folder)))


def is_openable(address: str) -> bool:
    """Tell whether a click may open the address: web and mail addresses only, never `javascript:` or `file:`."""
    return _OPENABLE.match(address) is not None


def open_page(address: str) -> None:
    """Open a web page in the browser, after a click."""
    if is_openable(address):
        open_address(QUrl(address))


def open_address(address: QUrl) -> None:
    """Open an address with the person's umask: the other program writes files of its own."""
    with with_persons_umask():
        QDesktopServices.openUrl(address)
