"""Opening folders and web pages in the programs that the person has for them."""

from pathlib import Path

from PySide6.QtCore import QUrl

from rdchat import host
from rdchat.ui.look.other_programs import open_address
from rdchat.ui.transcript.markdown.blocks import is_openable

SHOW_FOLDER = "Show in Finder" if host.MACOS else "Open folder"
"""What a button says that does."""


def show_folder(path: Path) -> None:
    """Open the folder, or the one a file lies in, in the system's file manager."""
    folder = path if path.is_dir() else path.parent
    folder.mkdir(parents=True, exist_ok=True)
    open_address(QUrl.fromLocalFile(str(folder)))


def open_page(address: str) -> None:
    """Open a web page in the browser, after a click."""
    if is_openable(address):
        open_address(QUrl(address))
