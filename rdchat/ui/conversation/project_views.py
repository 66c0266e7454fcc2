"""What the open chat shows of its project: `ProjectLine` above it, and `ProjectSheet` with what all its chats share.

A folder whose chats share something is a project. `Commands` opens the sheet, and has it offer more models when a
search has found them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QCheckBox, QLineEdit, QVBoxLayout, QWidget

from rdchat.chat.attachments.attached_file import too_large
from rdchat.chat.projects import Folder, Project
from rdchat.services.chat.project_files import FULL_SHARE
from rdchat.services.files.pending_files import PendingFile, PendingFiles
from rdchat.services.window.chat_controller import ChatController
from rdchat.tools.built_in import server_title
from rdchat.ui.conversation.notices import Notices
from rdchat.ui.conversation.regenerate_sheet import ModelChoice
from rdchat.ui.files.attaching import FileAttacher, PendingRow
from rdchat.ui.files.file_drops import local_files
from rdchat.ui.settings.note_list import NoteList
from rdchat.ui.settings.options_form import OptionRow
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TIGHT,
    Action,
    ElidedLabel,
    Ground,
    Sheet,
    TextButton,
    Theme,
    ThemedLabel,
    button_text,
    choice_box,
    column,
    fill_box,
    nothing,
    push_button,
    row,
    small_text,
    text_field,
    visible_text,
)
from rdchat.wording import counted

_TEXT = "All chats in this folder use this from their next question on. A chat's own options come first."
_INSTRUCTIONS = "None. For example: We write a guide for beginners. Use short sentences."
_INSTRUCTIONS_TIP = "Instructions that the model reads before each chat of the project."
_NO_FILES = "None. Add or drop files that each chat of the project begins with."
_TOO_LONG = "Too long to be read whole. Of files that do not fit, the model gets the passages that match each question."
_NEW = Folder(0, "New project")
_LITTLE_ROOM = " That is more than a third, and leaves chats little room: they are shortened often."
_MODEL_TIP = "It is loaded when you ask something in a chat of the project."
_NOTES = "Facts that the model gets in each chat of the project. Changes of notes count at once."
# Of the banner.
_KEY = "project"


class ProjectLine(Ground):
    """Names the project of the open chat, above it; hidden outside of projects.

    A banner says so where a chat that has messages was moved into a project.

    Attributes:
        edit_requested: Emitted with the folder of the project.
    """

    edit_requested = Signal(Folder)

    def __init__(self, controller: ChatController, theme: Theme, notices: Notices) -> None:
        super().__init__(theme, "surface")
        chat = controller.chat
        self._chat = chat
        self._notices = notices
        self.text = ElidedLabel(theme, "", "muted", -1)
        self.settings = TextButton("Project Settings…", theme, self._edit)
        row((self.text, 1), self.settings, within=self, margins=(LARGE, TIGHT, MEDIUM, TIGHT))
        chat.project_taken.connect(self._show_banner)
        # The banner speaks of the next question of this chat, and of the project that the chat has now.
        for ended in (chat.opened, chat.message_added):
            ended.connect(lambda: notices.area.close_banner(_KEY))
        for changed in (chat.opened, chat.options_changed):
            changed.connect(self.show_project)
        self.show_project()

    def show_project(self) -> None:
        """Show the open chat's project, and keep its banner while it is true.

        Any change of the settings or the model leads here.
        """
        folder = self._chat.project_folder
        self.setVisible(folder is not None)
        if folder is None:
            self._notices.area.close_banner(_KEY)
            return
        if self._notices.area.banner(_KEY):
            self._show_banner(folder)
        replies = self._chat.replies
        text = f"Project {folder.name}: {folder.description}"
        if notes := replies.notes(self._chat.conversation):
            text += f", {counted(len(notes), 'note')}"
        problem = replies.missing_model(self._chat.conversation)
        self.text.show_text(visible_text(problem or text), "warning" if problem else "muted")

    def _show_banner(self, folder: Folder) -> None:
        """Say what a chat that was moved into a project uses from its next question on."""
        text = f"From your next question on, it uses what the project shares: {folder.description}."
        self._notices.show_banner(_KEY, f"This chat is now in the project “{folder.name}”", text)

    def _edit(self) -> None:
        if (folder := self._chat.project_folder) is not None:
            self.edit_requested.emit(folder)


class _ProjectFiles(PendingFiles):
    """A project's files. One that is too long need not be shortened here, as it must before it is sent in a message."""

    @property
    def to_shorten(self) -> Sequence[PendingFile]:
        return ()


class ProjectSheet(Sheet):
    """Shows a folder's project; Save replaces it, which can be undone. Or makes a new one, and begins a chat in it.

    Args:
        folder: The folder; None for a new one.
        controller: The conversations.
        models: Returns the models to choose from.
        theme: The appearance to follow.
        parent: The window that it belongs to.
    """

    def __init__(
        self,
        folder: Folder | None,
        controller: ChatController,
        models: Callable[[], Sequence[ModelChoice]],
        theme: Theme,
        parent: QWidget,
    ) -> None:
        folder = folder or _NEW
        self._folder = folder
        self._controller = controller
        self._models = models
        self.instructions = text_field(5, _INSTRUCTIONS, "Instructions of the project", _INSTRUCTIONS_TIP)
        self.instructions.setPlainText(folder.project.instructions)
        self.name = QLineEdit(folder.name)
        self.name.setAccessibleName("Name of the project")
        self.name.selectAll()
        options = self._build_options(theme)
        self.notes = NoteList(theme, controller, folder)
        self.files = _ProjectFiles(controller.model_slot, controller.settings)
        self.chips = PendingRow(theme)
        self.chips.setAccessibleName("Files of the project")
        self.add = push_button("Add Files…", "Files that each chat of the project begins with")
        self.note = small_text(theme)
        self.problem = small_text(theme, "", "danger")
        head = ThemedLabel(theme, "Instructions", bold=True)
        notes = ThemedLabel(theme, "Notes", bold=True), small_text(theme, _NOTES), self.notes
        parts = (
            SMALL,
            self.name,
            head,
            self.instructions,
            SMALL,
            options,
            SMALL,
            *notes,
            SMALL,
            OptionRow(theme, "Files", self.add),
            self.chips,
            self.note,
            self.problem,
        )
        answers = ("Cancel", nothing), ("Save", self._save)
        title = "New Project"
        if folder is not _NEW:
            title = f"Project “{visible_text(folder.name)}”"
            self.name.hide()
        super().__init__(parent, theme, title, _TEXT, answers, parts=parts)
        self.problem.hide()
        attacher = FileAttacher(controller, self.files, self.chips, theme, self, question=self.instructions.toPlainText)
        attacher.noted.connect(self._show_problem)
        self.attach_files = attacher.attach_files
        self.add.clicked.connect(attacher.choose_files)
        self.setAcceptDrops(True)
        # The sheet takes files: the field would insert the address of a dropped file as text.
        self.instructions.setAcceptDrops(False)
        self.chips.height_changed.connect(self.fit)
        self.files.changed.connect(self._show_files)
        self.finished.connect(self._end_files)
        self.files.restore_files([(file, controller.replies.file_text(file)) for file in folder.files])
        self._show_files()

    def _build_options(self, theme: Theme) -> QVBoxLayout:
        """Return the fields of the preset, the model and the tools."""
        project = self._folder.project
        presets = [(each.name, each.id) for each in self._controller.settings.values.presets]
        self.preset = choice_box("Preset of the project", "Options that you saved under a name.", letters=16)
        fill_box(self.preset, [("Model's default", None), *presets], project.preset)
        self.model = choice_box("Model of the project", _MODEL_TIP, letters=16)
        self.offer_models()
        servers = self._controller.servers.usable
        self.tools = {each.name: QCheckBox(button_text(server_title(each.name))) for each in servers}
        for name, box in self.tools.items():
            box.setChecked(name in project.tools)
        rows = [OptionRow(theme, "Preset", self.preset), OptionRow(theme, "Model", self.model)]
        if self.tools:
            rows.append(OptionRow(theme, "Tools", column(*self.tools.values(), spacing=TIGHT)))
        return column(*rows)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        event.setAccepted(bool(local_files(event.mimeData())))

    def dropEvent(self, event: QDropEvent) -> None:
        self.attach_files(local_files(event.mimeData()))

    def offer_models(self) -> None:
        """Offer the models that are known now; the choice stays, at first the project's, even if it is not among them.

        The value of the loaded model, which is offered first, is None.
        """
        chosen = self.model.currentData() if self.model.count() else self._folder.project.model
        choices = [choice for choice in self._models() if choice[1] is not None]
        unknown = [] if chosen is None or chosen in {each for _, each in choices} else [(chosen, chosen)]
        fill_box(self.model, [("The loaded model", None), *choices, *unknown], chosen)

    def project(self) -> Project:
        """Return the project with what the sheet shows; it keeps tools whose servers cannot be used now."""
        unseen = [each for each in self._folder.project.tools if each not in self.tools]
        chosen = [name for name, box in self.tools.items() if box.isChecked()]
        return replace(
            self._folder.project,
            instructions=self.instructions.toPlainText(),
            preset=self.preset.currentData(),
            model=self.model.currentData(),
            tools=(*chosen, *unseen),
        )

    def _show_problem(self, problem: str) -> None:
        self.problem.show_text(problem)
        self.fit()

    def _show_files(self) -> None:
        """Say how many tokens the files take, or why they cannot be saved; disable Save while one is being read."""
        problem = too_large([each.file for each in self.files.files if each.file])
        info = self._controller.model_slot.info
        tokens = self.files.tokens
        if not self.files.files:
            text = _NO_FILES
        elif info is None or tokens is None:
            text = "Their tokens are counted once a model is loaded."
        elif tokens <= info.context_length // FULL_SHARE:
            text = f"They take {tokens:,} of the model's {info.context_length:,} tokens in each chat."
            if 3 * tokens > info.context_length:
                text += _LITTLE_ROOM
        else:
            text = _TOO_LONG
        self.note.show_text(problem or text)
        # Tab follows the order in which widgets were made: a new chip comes before the sheet's buttons again.
        for chip in self.chips.row.chips[-1:]:
            QWidget.setTabOrder(chip.remove or chip, self.buttons[0])
            QWidget.setTabOrder(*self.buttons)
        self.buttons[-1].setEnabled(not problem and all(each.file for each in self.files.files))
        self.fit()

    def _end_files(self) -> None:
        self.files.stop_reading(0.0)
        self.files.deleteLater()

    def answer(self, act: Action) -> None:
        """Act first, since Save needs the files, which are given up when the sheet closes; then close it."""
        act()
        self.done(0)

    def _save(self) -> None:
        order = self._controller.chats.order
        project = self.project()
        files = self.files.to_send()
        if self._folder is not _NEW:
            order.set_project(self._folder, project, files)
        elif (folder := order.create_folder(self.name.text(), project=project, files=files)) is not None:
            self._controller.chat.start_new(folder.id)
