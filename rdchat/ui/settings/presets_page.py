"""The page of presets and saved prompts in Settings.

A preset is a set of chat options under a name; a saved prompt is a text that is inserted by typing / and its name. One
list shows both, each kind below a heading.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtWidgets import QCheckBox, QFileDialog, QListWidgetItem

from rdchat.chat.conversation import NEW_CHAT, Conversation, OwnOptions
from rdchat.chat.presets import Preset, SavedPrompt, presets_text, read_presets, unused_name, unused_names
from rdchat.chat.settings import Settings
from rdchat.errors import StorageError
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.settings.options_form import OptionsForm
from rdchat.ui.settings.settings_pages import SettingsPage
from rdchat.ui.style import (
    Theme,
    ask,
    ask_to_open,
    ask_to_save_content,
    button_text,
    control_font,
    listed,
    push_button,
    replace_text,
    set_tip,
    single_shot,
    text_field,
)
from rdchat.wording import counted

type _Item = Preset | SavedPrompt
type _Row = _Item | str
"""A row of the list; a text is a heading."""
_NOTE = "Save as Preset, in a chat's options, adds a preset. Type / in the empty message field to insert a prompt."
_TEXT = "The text of the prompt. A part such as {{language}} is asked for when it is inserted."
_DELETED = "Chats that have it use their usual options."
_GONE = "Messages that it was inserted in stay."
_FILES = ("Presets (*.json)",)
_TYPING_MS = 400
_MOST_LISTED = 20


class PresetsPage(SettingsPage):
    """Lists presets and prompts; they are renamed in place."""

    def __init__(self, theme: Theme, controller: ChatController) -> None:
        super().__init__(theme, controller.settings.change_values)
        self._settings = controller.settings
        self._slot = controller.model_slot
        self._replies = controller.replies
        # The rows of the list. The chosen one has what is being changed, which is saved after a pause.
        self._rows: list[_Row] = []
        self._typing = single_shot(self, _TYPING_MS, lambda: self._save(self._rows))
        self.text = text_field(4, _TEXT, "Text of the prompt")
        self.form = OptionsForm(theme)
        self.default = QCheckBox()
        self.default.setAccessibleName("Use for the model")
        self.rename = push_button("Rename", act=lambda: self.list.editItem(self.list.currentItem()))
        self.delete = push_button("Delete…", act=self._ask_to_delete)
        new = push_button("New Prompt", "Add a text that is inserted by typing / and its name", self.add_prompt)
        read = push_button("Import…", "Read presets of rdchat or LM Studio", self._ask_for_files)
        self.write = push_button("Export…", "Write all presets and prompts to a file", self._ask_where)
        self.add_note(_NOTE)
        self.list = self.add_list("Saved", "Presets and prompts")
        self.add_line(self.rename, self.delete, new, None)
        self.add_line(read, self.write, None)
        self.result = self.add_note()
        self.add_line(self.default)
        self.add_line(self.text)
        self.add_line(self.form)
        self.list.currentRowChanged.connect(self.save_text)
        self.list.currentRowChanged.connect(self._show_item)
        self.list.itemChanged.connect(self._rename)
        self.default.clicked.connect(self._set_default)
        for edited in (self.text.textChanged, self.form.prompt.textChanged, self.form.edited):
            edited.connect(self._change_item)

    def show_settings(self, settings: Settings) -> None:
        """List the presets and the prompts below a heading each; the current row stays current."""
        # What is being changed is newer than the settings'.
        changed = self._item if self._typing.isActive() else None
        rows: list[_Row] = []
        for heading, group in (("Presets", settings.presets), ("Prompts", settings.prompts)):
            if group:
                rows.append(heading)
                rows += [changed if changed and each.name == changed.name else each for each in group]
        if list(map(_row_text, rows)) != list(map(_row_text, self._rows)):
            # The same row stays current, as far as it exists and is no heading; without rows, none does (-1). The first
            # row is a heading, and below each heading is a row that is none.
            index = min(max(self.list.currentRow(), 1), len(rows) - 1)
            if rows and isinstance(rows[index], str):
                index += 1
            with QSignalBlocker(self.list):
                self.list.clear()
                for each in rows:
                    self.list.addItem(_list_item(each))
                self.list.setCurrentRow(index)
        self._rows = rows
        self.write.setEnabled(bool(rows))
        self._show_item()

    @property
    def _item(self) -> _Item | None:
        """The chosen preset or prompt."""
        index = self.list.currentRow()
        chosen = self._rows[index] if 0 <= index < len(self._rows) else ""
        return None if isinstance(chosen, str) else chosen

    @property
    def _items(self) -> list[_Item]:
        return [each for each in self._rows if not isinstance(each, str)]

    @property
    def _model(self) -> str:
        """The loaded model's folder, as `Preset.models` has it where the preset is its default; empty without one."""
        return str(self._slot.info.path) if self._slot.info else ""

    def _show_item(self) -> None:
        """Show what can be done with the chosen preset or prompt."""
        item = self._item
        self.rename.setEnabled(item is not None)
        self.delete.setEnabled(item is not None)
        self.default.setVisible(isinstance(item, Preset) and bool(self._model))
        self.text.setVisible(isinstance(item, SavedPrompt))
        self.form.setVisible(isinstance(item, Preset))
        if isinstance(item, Preset):
            self.default.setText(button_text(f"Use it for chats with {self._slot.name}"))
            self.default.setChecked(self._model in item.models)
            set_tip(self.default, "Chats that have no other preset have this one with this model.")
            if not self._typing.isActive():
                values = self._replies.order.usual(_chat_with(item))
                self.form.show_options(values.system_prompt, values.sampling, values.long_chats)
                self.form.show_sources(self._slot.sampling, self._settings.values.chosen_sampling, item.sampling_chosen)
        elif item is not None:
            replace_text(self.text, item.text)

    def _replace(self, *instead: _Item) -> None:
        """Put an item in place of the chosen one; without arguments, delete that."""
        index = self.list.currentRow()
        self._save([*self._rows[:index], *instead, *self._rows[index + 1 :]])

    def save_text(self) -> None:
        """Save what is being changed now instead of soon."""
        if self._typing.isActive():
            self._save(self._rows)

    def _save(self, items: Sequence[_Row]) -> None:
        self._typing.stop()
        self._settings.change_values(
            presets=tuple(each for each in items if isinstance(each, Preset)),
            prompts=tuple(each for each in items if isinstance(each, SavedPrompt)),
        )

    def _rename(self, changed: QListWidgetItem) -> None:
        """Give the chosen item the name that was typed into its row; one that is empty or taken is undone."""
        name = changed.text().removeprefix("/").strip()
        item = self._item
        if item is not None and name not in {"", *(each.name for each in self._items)}:
            self._replace(replace(item, name=name))
        elif item is not None:
            with QSignalBlocker(self.list):
                changed.setText(_row_text(item))

    def _set_default(self, on: bool) -> None:
        """Make the chosen preset the loaded model's default, instead of another one, or no longer.

        The rows of the list have the presets of the settings themselves, so `is` finds the chosen one.
        """
        self.save_text()
        chosen = self._item
        model = self._model
        presets = list[Preset]()
        for each in self._settings.values.presets:
            others = tuple(other for other in each.models if other != model)
            presets.append(replace(each, models=(*others, model) if on and each is chosen else others))
        self._settings.change_values(presets=tuple(presets))

    def _change_item(self) -> None:
        """Change the chosen item to what its fields show, and save it after a pause.

        A preset gets the values of a chat that has it, and these values of its own.
        """
        item = self._item
        if isinstance(item, SavedPrompt):
            self._rows[self.list.currentRow()] = replace(item, text=self.text.toPlainText())
        elif item is not None:
            chat = _chat_with(item).with_own(self.form.options())
            changed = self._replies.order.as_preset(chat, item.name, item.draft)
            self._rows[self.list.currentRow()] = replace(changed, id=item.id, models=item.models)
        self._typing.start()

    def add_prompt(self) -> None:
        """Add a prompt and let the person name it."""
        name = unused_name("New prompt", self._items)
        self._save([*self._rows, SavedPrompt(name, "")])
        self.list.setCurrentRow(len(self._rows) - 1)
        self.list.editItem(self.list.currentItem())

    def _ask_to_delete(self) -> None:
        if (item := self._item) is not None:
            detail = _DELETED if isinstance(item, Preset) else _GONE
            ask(self, f"Delete {item.name}?", detail, "Delete", self._replace, removes=True)

    def _ask_for_files(self) -> None:
        several = QFileDialog.FileMode.ExistingFiles
        ask_to_open(self, "Import Presets", several, self.import_files, _FILES, accept="Import")

    def _ask_where(self) -> None:
        self.save_text()
        settings = self._settings.values
        text = presets_text(settings.presets, settings.prompts)
        ask_to_save_content(self, "Export Presets", "presets.json", _FILES, lambda: text)

    def import_files(self, paths: list[str]) -> None:
        """Add what files hold, and say what was not understood."""
        before = self._items
        items = list(before)
        problems: list[str] = []
        for path in map(Path, paths):
            try:
                presets, prompts, not_understood = read_presets(path)
            except StorageError as error:
                problems.append(str(error))
                continue
            new: list[_Item] = [*presets, *prompts]
            names = unused_names([each.name for each in new], items)
            items += [replace(each, name=name) for each, name in zip(new, names, strict=True)]
            if not_understood:
                problems.append(f"Not understood in {path.name}: {listed(not_understood, _MOST_LISTED)}.")
        added = counted(len(items) - len(before), "entry", "entries")
        self._save(items)
        self.result.show_text(" ".join([f"Imported {added}.", *problems]))


def _chat_with(preset: Preset) -> Conversation:
    return replace(NEW_CHAT, own=OwnOptions(preset=preset.id))


def _row_text(row: _Row) -> str:
    """Return a heading, a preset's name, or a prompt's name as it is typed: with a slash."""
    if isinstance(row, str):
        return row
    return row.name if isinstance(row, Preset) else f"/{row.name}"


def _list_item(row: _Row) -> QListWidgetItem:
    item = QListWidgetItem(_row_text(row))
    if isinstance(row, str):
        item.setFlags(Qt.ItemFlag.NoItemFlags)
        item.setFont(control_font(-1, bold=True))
    else:
        item.setFlags(item.flags() | Qt.ItemFlag.ItemIsEditable)
    return item
