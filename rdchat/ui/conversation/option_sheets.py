"""Sheets with options: `ProjectSheet` for those that all chats of a folder share, `RegenerateSheet` for one reply.

A folder with such options is a project. `Commands` opens both sheets, and has them offer more models when a search has
found them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QLineEdit, QVBoxLayout, QWidget

from rdchat.chat.attachments.attached_file import too_large
from rdchat.chat.conversation import MadeWith
from rdchat.chat.projects import Folder, Project
from rdchat.inference.api import SamplingParams
from rdchat.services.chat.borrowed_model import OtherModel
from rdchat.services.chat.project_files import FULL_SHARE
from rdchat.services.chat_controller import ChatController
from rdchat.services.files.pending_files import PendingFile, PendingFiles
from rdchat.tools.built_in import server_title
from rdchat.ui.files.attaching import FileAttacher, PendingRow
from rdchat.ui.files.file_drops import local_files
from rdchat.ui.settings.note_list import NoteList
from rdchat.ui.settings.options_form import COMMON, OptionRow, OptionsForm
from rdchat.ui.style import (
    SMALL,
    TIGHT,
    Action,
    Sheet,
    Theme,
    ThemedLabel,
    button_text,
    choice_box,
    column,
    cut,
    fill_box,
    nothing,
    push_button,
    set_tip,
    small_text,
    text_field,
    visible_text,
)

_TEXT = "All chats in this folder use this from their next question on. A chat's own options come first."
_INSTRUCTIONS = "None. For example: We write a guide for beginners. Use short sentences."
_INSTRUCTIONS_TIP = "Instructions that the model reads before each chat of the project."
_NO_FILES = "None. Add or drop files that each chat of the project begins with."
_TOO_LONG = "Too long to be read whole. Of files that do not fit, the model gets the passages that match each question."
_NEW = Folder(0, "New project")
_LITTLE_ROOM = " That is more than a third, and leaves chats little room: they are shortened often."
_MODEL_TIP = "It is loaded when you ask something in a chat of the project."
_NOTE = "For this one reply. The chat's own options stay as they are."
_NOTES = "Facts that the model gets in each chat of the project. Changes of notes count at once."
# The longest model name on a button, in characters.
_NAME_LENGTH = 28
# Least width of the list of models, in letters.
_LETTERS = 24

type ModelChoice = tuple[str, str | None]
"""The name of a model, and the name by which it is loaded."""


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


class RegenerateSheet(Sheet):
    """Shows the chat's options before a reply is written again; changes hold for that reply only.

    Args:
        own_model: Name of the model that is loaded; empty where there is none.
        models: Returns the others to choose from.
        system_prompt: The chat's system prompt.
        sampling: The chat's sampling.
        theme: The appearance to follow.
        parent: The window that it belongs to.

    Attributes:
        submitted: Emitted with the options that were changed, and the `OtherModel` to load first, or None.
    """

    submitted = Signal(MadeWith, object)

    def __init__(
        self,
        own_model: str,
        models: Callable[[], Sequence[ModelChoice]],
        system_prompt: str,
        sampling: SamplingParams,
        *,
        theme: Theme,
        parent: QWidget,
    ) -> None:
        self._own_model = own_model
        self._models = models
        # The models in the list; None stands for the loaded one.
        self._choices: list[ModelChoice | None] = []
        self.model = QComboBox(minimumContentsLength=_LETTERS)
        self.model.setAccessibleName("Model")
        self.model.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        if own_model:
            self._choices.append(None)
            self.model.addItem(own_model)
        self.offer_models()
        self.loading = small_text(theme, "It is loaded first and replaces the present one.")
        self.back = QCheckBox(f"Go back to {button_text(cut(own_model, _NAME_LENGTH))} afterwards")
        set_tip(self.back, own_model)
        self.back.setChecked(True)
        self.options = OptionsForm(theme)
        self.options.show_options(system_prompt, sampling, None)
        self.options.more.hide()
        self._system_prompt = system_prompt
        self._sampling = self.options.sampling()
        answers = ("Cancel", nothing), ("Regenerate", self._submit)
        parts = SMALL, OptionRow(theme, "Model", self.model), self.loading, self.back, self.options
        super().__init__(parent, theme, "Regenerate this reply", _NOTE, answers, parts=parts)
        self.model.currentIndexChanged.connect(self._refresh)
        self._refresh()

    def offer_models(self) -> None:
        """Add the models that are known now and were not before."""
        for choice in self._models():
            if choice not in self._choices:
                self._choices.append(choice)
                self.model.addItem(choice[0])

    @property
    def _choice(self) -> ModelChoice | None:
        """The chosen model; None for the loaded one."""
        return self._choices[self.model.currentIndex()]

    def _refresh(self) -> None:
        """Show what loading another model means; without a loaded one there is none to go back to."""
        is_other = self._choice is not None
        self.loading.setVisible(is_other)
        self.back.setVisible(is_other and bool(self._own_model))
        self.fit()

    def _submit(self) -> None:
        """Emit the options that differ from the usual ones, and the other model if one is chosen."""
        self.options.fields[COMMON].interpretText()
        sampling = self.options.sampling()
        prompt = self.options.prompt.toPlainText()
        other = self._choice
        stays = not (self._own_model and self.back.isChecked())
        options = MadeWith(
            None if sampling == self._sampling else sampling,
            None if prompt == self._system_prompt else prompt,
        )
        self.submitted.emit(options, None if other is None else OtherModel(other[1], other[0], stays))
