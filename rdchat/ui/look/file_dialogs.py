"""Dialogs that ask for files and folders to open or to save. They do not block, and delete themselves when closed."""

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QWidget

FileMode = QFileDialog.FileMode


def ask_to_open(
    parent: QWidget,
    title: str,
    mode: FileMode,
    chosen: Callable[[list[str]], object],
    filters: Sequence[str] = (),
    *,
    accept: str = "",
    folder: str = "",
) -> QFileDialog:
    """Ask for files or a folder.

    Args:
        parent: The dialog opens in front of this window.
        title: The dialog's title.
        mode: Whether one file, several or a folder may be chosen.
        chosen: Called with the paths, unless the person cancels.
        filters: Name filters, such as `Text (*.txt)`.
        accept: The text of the button; empty for the system's.
        folder: The folder where the dialog begins; empty for the home folder.
    """
    dialog = _dialog(parent, title, folder or str(Path.home()), filters, accept)
    dialog.setFileMode(mode)
    dialog.filesSelected.connect(chosen)
    dialog.open()
    return dialog


def ask_to_save(
    parent: QWidget,
    title: str,
    name: str,
    filters: Sequence[str],
    chosen: Callable[[str], object],
    *,
    accept: str = "",
) -> QFileDialog:
    """Ask where to save a file.

    Args:
        parent: The dialog opens in front of this window.
        title: The dialog's title.
        name: The suggested name, with the ending of the first filter.
        filters: Name filters, such as `CSV (*.csv)`; the selected one gives names without an ending its ending.
        chosen: Called with the path, unless the person cancels.
        accept: The text of the button; empty for the system's.
    """
    dialog = _dialog(parent, title, str(Path.home() / name), filters, accept)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix(Path(name).suffix)
    dialog.filterSelected.connect(lambda kind: dialog.setDefaultSuffix(kind.rpartition("*.")[2].rstrip(")")))
    dialog.fileSelected.connect(chosen)
    dialog.open()
    return dialog


def _dialog(parent: QWidget, title: str, place: str, filters: Sequence[str], accept: str) -> QFileDialog:
    dialog = QFileDialog(parent, title, place)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setNameFilters(filters)
    if accept:
        dialog.setLabelText(QFileDialog.DialogLabel.Accept, accept)
    return dialog
