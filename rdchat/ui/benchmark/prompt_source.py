"""Which prompts a benchmark runs: the everyday ones, or those of a file."""

from pathlib import Path

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QComboBox, QFileDialog, QWidget

from rdchat.errors import RdchatError
from rdchat.inference.api.prompt_files import Prompt, read_prompts
from rdchat.inference.benchmark.everyday import EVERYDAY_PROMPTS
from rdchat.ui.look.plain_text import set_tip

_EVERYDAY = 0


class PromptSource(QComboBox):
    """A choice between the everyday prompts, the file chosen last, and choosing a file."""

    chosen = Signal()
    failed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._of_file: tuple[Prompt, ...] = ()
        self._last = _EVERYDAY
        self.addItem(f"Everyday questions ({len(EVERYDAY_PROMPTS)})")
        self.addItem("From a file…")
        self.setAccessibleName("Prompts")
        set_tip(
            self,
            "A file holds a prompt a line, or JSON lines with “prompt” and perhaps “category”, "
            "or Spec-Bench's “turns”.",
        )
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(14)
        self.activated.connect(self._on_activated)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return EVERYDAY_PROMPTS if self.currentIndex() == _EVERYDAY else self._of_file

    def read(self, path: str) -> None:
        """Take the prompts of a file, or tell with `failed` why not."""
        try:
            prompts = tuple(read_prompts(Path(path)))
        except RdchatError as error:
            self.failed.emit(str(error))
            return
        if self._of_file:
            self.removeItem(_EVERYDAY + 1)
        self._of_file = prompts
        self.insertItem(_EVERYDAY + 1, f"{Path(path).name} ({len(prompts)})")
        self._last = _EVERYDAY + 1
        self.setCurrentIndex(self._last)
        self.chosen.emit()

    def _on_activated(self, place: int) -> None:
        if place != self.count() - 1:
            self._last = place
            self.chosen.emit()
            return
        with QSignalBlocker(self):
            self.setCurrentIndex(self._last)  # until a file is chosen, and if none is
        dialog = QFileDialog(self, "Choose a file of prompts", str(Path.home()))
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters(["Prompts (*.txt *.jsonl *.json)", "All files (*)"])
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.read)
        dialog.open()
