"""Asking for files and folders to open or to save."""

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QWidget

FileMode = QFileDialog.FileMode


def ask_to_open(
    parent: QWidget, title: str, mode: FileMode, chosen: Callable[[list[str]], object], filters: Sequence[str] = ()
) -> QFileDialog:
    """Ask for files or a folder; `chosen` is called with their paths.

    Args:
        parent: The dialog belongs to its window.
        title: Of the dialog.
        mode: Whether one file, several or a folder may be chosen.
        chosen: Not called if the person cancels.
        filters: Kinds of files, such as `Text (*.txt)`.
    """
    dialog = QFileDialog(parent, title, str(Path.home()))
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setFileMode(mode)
    dialog.setNameFilters(filters)
    dialog.filesSelected.connect(chosen)
    dialog.open()
    return dialog


def ask_to_save(
    parent: QWidget, title: str, name: str, filters: Sequence[str], chosen: Callable[[str], object]
) -> QFileDialog:
    """Ask where to save a file; `chosen` is called with its path.

    Args:
        parent: The dialog belongs to its window.
        title: Of the dialog.
        name: The suggested name, whose ending is that of the first filter.
        filters: Kinds of files, such as `CSV (*.csv)`; the chosen one gives a name without an ending its ending.
        chosen: Not called if the person cancels.
    """
    dialog = QFileDialog(parent, title, str(Path.home() / name))
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setNameFilters(filters)
    dialog.setDefaultSuffix(Path(name).suffix)
    dialog.filterSelected.connect(lambda kind: dialog.setDefaultSuffix(kind.rpartition("*.")[2].rstrip(")")))
    dialog.fileSelected.connect(chosen)
    dialog.open()
    return dialog
