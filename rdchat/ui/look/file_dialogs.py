"""Dialogs that ask for files and folders. They do not block, and delete themselves when closed."""

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QWidget


def ask_to_open(
    parent: QWidget,
    title: str,
    then: Callable[[list[Path]], object],
    *,
    mode: QFileDialog.FileMode = QFileDialog.FileMode.ExistingFile,
    filters: Sequence[str] = (),
    accept: str = "",
    folder: str = "",
) -> QFileDialog:
    """Ask for files or a folder to open.

    Args:
        parent: The window in front of which the dialog opens.
        title: The dialog's title.
        then: Takes the chosen paths, one of them unless the mode is `ExistingFiles`.
        mode: Whether a file, several files or a folder is chosen.
        filters: Name filters, such as `Chats (*.json)`.
        accept: Text of the button; empty for the system's.
        folder: The folder where the dialog begins; empty for the home folder.
    """
    dialog = _dialog(parent, title, folder or str(Path.home()), filters, accept)
    dialog.setFileMode(mode)
    if mode is QFileDialog.FileMode.ExistingFiles:
        dialog.filesSelected.connect(lambda names: then([Path(name) for name in names]))
    else:
        dialog.fileSelected.connect(lambda name: then([Path(name)]))
    dialog.open()
    return dialog


def ask_to_save(
    parent: QWidget,
    title: str,
    name: str,
    then: Callable[[Path], object],
    *,
    filters: Sequence[str] = (),
    accept: str = "",
) -> QFileDialog:
    """Ask where to save a file.

    Args:
        parent: The window in front of which the dialog opens.
        title: The dialog's title.
        name: The suggested file name; its ending is added to names without one, where there are filters.
        then: Takes the chosen path.
        filters: Name filters, such as `Markdown (*.md)`.
        accept: Text of the button; empty for the system's.
    """
    dialog = _dialog(parent, title, str(Path.home() / name), filters, accept)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    if filters:
        dialog.setDefaultSuffix(Path(name).suffix[1:])
    dialog.fileSelected.connect(lambda chosen: then(Path(chosen)))
    dialog.open()
    return dialog


def _dialog(parent: QWidget, title: str, place: str, filters: Sequence[str], accept: str) -> QFileDialog:
    dialog = QFileDialog(parent, title, place)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    if filters:
        dialog.setNameFilters(list(filters))
    if accept:
        dialog.setLabelText(QFileDialog.DialogLabel.Accept, accept)
    return dialog
