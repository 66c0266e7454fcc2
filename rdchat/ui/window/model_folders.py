"""The dialogs that ask for a model's folder, and for the one where such dialogs begin."""

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QFileDialog, QWidget

from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot


class ModelFolders(QObject):
    """Has folders chosen, loads what is in them and remembers where it was found.

    Args:
        preferences: Have the folder in which the dialogs begin.
        slot: Loads what is chosen.
        window: What the dialogs stand in front of.
    """

    def __init__(self, preferences: SettingsControl, slot: ModelSlot, window: QWidget) -> None:
        super().__init__(window)
        self._preferences, self._slot, self._window = preferences, slot, window
        self._picked = ""  # the folder that was chosen in the dialog, until it is known whether it holds a model
        slot.loaded.connect(self._remember_place)
        slot.failed.connect(self._remember_place)

    def choose_model(self) -> None:
        """Ask for a model folder and load it."""
        dialog = self._dialog("Open model folder")
        dialog.fileSelected.connect(self._load)
        dialog.open()

    def choose_beginning(self) -> None:
        """Ask for the folder in which the dialogs begin."""
        dialog = self._dialog("Choose the models folder")
        dialog.fileSelected.connect(self._begin_in)
        dialog.open()

    def _dialog(self, title: str) -> QFileDialog:
        dialog = QFileDialog(self._window, title, self._preferences.settings.models_folder or str(Path.home()))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        return dialog

    def _load(self, folder: str) -> None:
        self._picked = folder
        self._slot.load(folder)

    def _remember_place(self) -> None:
        """Begin the next dialog where the folder chosen in this one lies, if that one held a model."""
        picked, self._picked = self._picked, ""
        if picked and self._slot.info is not None and self._slot.chosen == picked:
            self._begin_in(str(Path(picked).parent))

    def _begin_in(self, folder: str) -> None:
        self._preferences.change(replace(self._preferences.settings, models_folder=folder))
