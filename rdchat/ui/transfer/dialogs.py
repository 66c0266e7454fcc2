"""The dialogs that ask for files of chats and backups."""

from datetime import datetime
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QWidget

from rdchat.chat.transfer.exporting import file_name


def export_dialog(parent: QWidget, title: str | None, kind: str) -> QFileDialog:
    """Return a dialog for what is written: a file, or for `folder` a new folder; `title` None is all chats."""
    ending = {"json": ".json", "markdown": ".md"}.get(kind, "")
    name = f"rdchat chats {_today()}{ending}" if title is None else file_name(title, ending)
    dialog = _saving(parent, "Export", name)
    if ending:
        dialog.setNameFilters([{"json": "JSON (*.json)", "markdown": "Markdown (*.md)"}[kind]])
        dialog.setDefaultSuffix(ending[1:])
    dialog.setLabelText(QFileDialog.DialogLabel.Accept, "Export")
    return dialog


def backup_dialog(parent: QWidget) -> QFileDialog:
    """Return a dialog for a new backup."""
    dialog = _saving(parent, "Back up", f"rdchat backup {_today()}.zip")
    dialog.setNameFilters(["Backups (*.zip)"])
    dialog.setDefaultSuffix("zip")
    dialog.setLabelText(QFileDialog.DialogLabel.Accept, "Back up")
    return dialog


def restore_dialog(parent: QWidget) -> QFileDialog:
    """Return a dialog for a backup to restore."""
    dialog = QFileDialog(parent, "Restore a backup", str(Path.home()))
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    dialog.setNameFilters(["Backups (*.zip *.db)", "All files (*)"])
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return dialog


def import_dialog(parent: QWidget, *, folder: bool) -> QFileDialog:
    """Return a dialog for files of chats, or for a folder with them."""
    dialog = QFileDialog(parent, "Import chats", str(Path.home()))
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    if folder:
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    else:
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setNameFilters(["Chats (*.json *.jsonl *.zip *.db)", "All files (*)"])
    dialog.setLabelText(QFileDialog.DialogLabel.Accept, "Import")
    return dialog


def _saving(parent: QWidget, title: str, name: str) -> QFileDialog:
    dialog = QFileDialog(parent, title, str(Path.home() / name))
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return dialog


def _today() -> str:
    return f"{datetime.now().astimezone():%Y-%m-%d}"
