"""The dialogs that ask for the files of a benchmark."""

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QWidget

from rdchat.ui.benchmark.export import EXPORT_TYPES


def opening_dialog(parent: QWidget) -> QFileDialog:
    """Return a dialog for the files of a benchmark that was run before."""
    dialog = QFileDialog(parent, "Open a benchmark", str(Path.home()))
    dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)  # Apple's scripts write two that belong together
    dialog.setNameFilters(["Comma-separated values (*.csv)", "All files (*)"])
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return dialog


def export_dialog(parent: QWidget) -> QFileDialog:
    """Return a dialog for the file that a benchmark is written to."""
    dialog = QFileDialog(parent, "Export the benchmark", str(Path.home() / "benchmark.csv"))
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setNameFilters([f"{kind[1:].upper()} (*{kind})" for kind in EXPORT_TYPES])
    dialog.setDefaultSuffix(EXPORT_TYPES[0])
    dialog.filterSelected.connect(lambda chosen: dialog.setDefaultSuffix(chosen.partition(" ")[0].lower()))
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return dialog
