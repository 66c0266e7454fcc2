"""Everything by which files come into the message field and what is done with them there."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QFileDialog, QWidget

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.services.chat.chat_controller import ChatController
from rdchat.ui.conversation.composer import Composer
from rdchat.ui.files.file_view import FileView
from rdchat.ui.files.part_sheet import PartSheet
from rdchat.ui.look.theme import Theme


class Bringing(QObject):
    """Connects the composer's button, paste and chips with the files of the unsent message.

    Args:
        controller: Has them.
        composer: Where they are shown.
        theme: The appearance to follow.
        parent: What dialogs stay above.
    """

    def __init__(self, controller: ChatController, composer: Composer, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._controller, self._files = controller, controller.chat.files
        self._composer, self._theme, self._parent = composer, theme, parent
        self._refusals: list[str] = []
        composer.attach.clicked.connect(self.choose)
        composer.files_pasted.connect(self.add)
        composer.files.remove_requested.connect(self._remove)
        composer.files.choice_requested.connect(self.choose_part)
        controller.prompt_refused.connect(self._on_prompt_refused)
        self._files.changed.connect(self._show)
        self._files.refused.connect(self._show_refusal)
        controller.model_slot.loaded.connect(lambda _info: self._show())

    def add(self, paths: Sequence[str]) -> None:
        """Take files, from wherever they come."""
        self._refusals.clear()
        self._composer.show_note("")
        self._files.add(paths)
        self._composer.setFocus()

    def choose(self) -> None:
        """Ask for files."""
        dialog = QFileDialog(self._parent, "Attach files", str(Path.home()))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setLabelText(QFileDialog.DialogLabel.Accept, "Attach")
        dialog.filesSelected.connect(self.add)
        dialog.open()

    def view(self, file: AttachedFile) -> None:
        """Show what was sent of a file."""
        FileView(file, self._controller.texts, self._theme, self._parent.window()).show()

    def choose_part(self, file_id: int, question: str = "") -> None:
        """Ask what is to be sent of a file, for a question, or for what is typed."""
        choice, info = self._files.part_choice(file_id), self._controller.model_slot.info
        if choice is None:
            return
        context = info.context_length if info else None
        sheet = PartSheet(choice, context, question or self._composer.text, self._theme, self._parent.window())
        sheet.chosen.connect(lambda part: self._files.choose(file_id, part))
        sheet.chosen.connect(lambda: self._composer.show_note(""))
        sheet.finished.connect(self._composer.setFocus)
        sheet.open()

    def _on_prompt_refused(self, text: str, _reason: str) -> None:
        """Ask for a part of the longest file, where a message was not sent as its files are too long."""
        if (longest := self._files.to_shorten) is not None:
            self.choose_part(longest.id, text)

    def _remove(self, file_id: int) -> None:
        self._files.remove(file_id)
        self._composer.setFocus()

    def _show(self) -> None:
        info = self._controller.model_slot.info
        self._composer.files.show_files(self._files, info.context_length if info else None)

    def _show_refusal(self, why: str) -> None:
        self._refusals.append(why)
        self._composer.show_note("\n".join(self._refusals[-3:]))
