"""`NoteList` shows the notes of a project, or all notes; `NoteSheet` has a field for one."""

from dataclasses import replace
from functools import partial

from PySide6.QtWidgets import QListWidget, QWidget

from rdchat.chat.notes import LONGEST_NOTE, Note
from rdchat.chat.projects import Folder
from rdchat.chat.storage import WordMatcher
from rdchat.services.chat.note_control import NoteControl
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.style import (
    SMALL,
    Sheet,
    Theme,
    ask,
    ask_to_save_content,
    choice_box,
    column,
    cut,
    nothing,
    push_button,
    row,
    small_text,
    text_field,
    visible_text,
)

_GONE = "Its text is overwritten, and the caches of chats on disk are cleared. This cannot be undone."

type Scope = tuple[str, int | None]
"""What a note is for: its name, and the folder; None for all chats."""


class NoteSheet(Sheet):
    """A field for a note; it says how long the note is, and saves none that is blank or too long.

    It stays open where the note cannot be stored. Signs that cannot be seen are named, as where it is proposed, and
    saved as they were.

    Args:
        window: The sheet stands in front of it.
        theme: The appearance to follow.
        notes: Stores the note.
        note: The note, a proposed one, or a new one.
        *scopes: The choice of what a new one is for.
    """

    def __init__(self, window: QWidget, theme: Theme, notes: NoteControl, note: Note, *scopes: Scope) -> None:
        self._notes = notes
        self._note = note
        self.field = text_field(5, "", "Note")
        self._hidden = {mark: sign for sign in note.text if (mark := visible_text(sign)) != sign}
        self.field.setPlainText(visible_text(note.text))
        self.scope = choice_box("What the note is for", "", scopes)
        self.length = small_text(theme)
        self.scope.setVisible(bool(scopes))
        title = visible_text(f"Note for {note.scope}") if note.scope else "Add Note"
        answers = ("Cancel", nothing), ("Save", self._save)
        super().__init__(window, theme, title, "", answers, parts=(self.field, self.length, self.scope), stays=True)
        self.field.textChanged.connect(self._show_length)
        self._show_length()

    @property
    def typed(self) -> str:
        """The note as it is saved."""
        text = self.field.toPlainText()
        for mark, sign in self._hidden.items():
            text = text.replace(mark, sign)
        return text

    def _show_length(self) -> None:
        length = len(self.typed.strip())
        color = "danger" if length > LONGEST_NOTE else "muted"
        self.length.show_text(f"{length:,} of at most {LONGEST_NOTE:,} characters", color)
        self.buttons[-1].setEnabled(0 < length <= LONGEST_NOTE)

    def _save(self) -> None:
        if self.scope.count():
            self._note = replace(self._note, folder_id=self.scope.currentData())
        store = self._notes.change if self._note.id else self._notes.keep
        if store(self._note, self.typed):
            self.done(0)


class NoteList(QWidget):
    """Lists notes, the newest first, with buttons to add, edit and delete some. All of it acts at once.

    Notes from an import are listed too; they count once they are kept.

    Args:
        theme: The appearance to follow.
        controller: Has the notes.
        folder: The project whose notes are listed; None for all notes.

    Attributes:
        listed: The notes in the list.
        buttons: Those that are enabled while a note is listed.
        keep: Keeps the chosen note, where that is from an import.
    """

    def __init__(self, theme: Theme, controller: ChatController, folder: Folder | None = None) -> None:
        super().__init__()
        self._theme = theme
        self._notes = controller.notes
        self._replies = controller.replies
        self._order = controller.chats.order
        self._folder = folder
        self._matcher = WordMatcher("")
        self.listed: list[Note] = []
        self.list = QListWidget()
        self.list.setWordWrap(True)
        self.list.setSpacing(2)
        self.list.setAccessibleName("Kept notes")
        self.list.setFixedHeight(110)
        self.add = push_button("Add…", "A note for a project, or for all chats if these have some", self._add)
        self.buttons = (
            push_button("Edit…", act=self._edit),
            push_button("Delete…", act=self._ask_to_delete),
            push_button("Export…", "Write these notes to a file", self._ask_where),
        )
        self.keep = push_button("Keep", "Let this note from an import count", self._keep)
        self.list.currentRowChanged.connect(self._offer_to_keep)
        column(self.list, row(self.add, *self.buttons, self.keep, None), within=self, spacing=SMALL)
        for changed in (self._notes.changed, controller.settings.changed):
            changed.connect(self.show_notes)
        self.show_notes()

    def search(self, search: str) -> None:
        """List the notes with all words of a search, in any form, as the search of chats finds them."""
        self._matcher = WordMatcher(search, beginnings=True)
        self.show_notes()

    def show_notes(self) -> None:
        """List the notes as they are now."""
        notes = self._replies.notes()[::-1]
        if self._folder:
            notes = [each for each in notes if each.folder_id == self._folder.id]
        if self._matcher:
            notes = [each for each in notes if self._matcher.is_in(entry_text(each))]
        if notes != self.listed:
            self.listed = notes
            self.list.clear()
            self.list.addItems([visible_text(cut(entry_text(each))) for each in notes])
            self.list.setCurrentRow(0)
        self._offer_to_keep(self.list.currentRow())
        for button in self.buttons:
            button.setEnabled(bool(notes))
        self.add.setEnabled(bool(self._scopes))

    @property
    def _scopes(self) -> list[Scope]:
        """What a new note can be for; nothing without projects, unless notes are for all chats too."""
        if self._folder:
            return [(self._folder.name, self._folder.id)]
        everywhere = [("All chats", None)] if self._replies.order.settings.notes_everywhere else []
        return everywhere + [(visible_text(each.name), each.id) for each in self._order.folders if each.is_project]

    def _offer_to_keep(self, number: int) -> None:
        self.keep.setEnabled(0 <= number < len(self.listed) and not self.listed[number].kept)

    def _keep(self) -> None:
        self._notes.keep(self._chosen, self._chosen.text)

    def _add(self) -> None:
        NoteSheet(self.window(), self._theme, self._notes, Note("", None, None), *self._scopes).open()

    def _edit(self) -> None:
        NoteSheet(self.window(), self._theme, self._notes, self._chosen).open()

    def _ask_to_delete(self) -> None:
        title = f"Delete “{visible_text(self._chosen.text)}”?"
        # `change` without a text deletes the note.
        ask(self, title, _GONE, "Delete", partial(self._notes.change, self._chosen, ""), removes=True)

    def _ask_where(self) -> None:
        content = "\n\n".join(map(entry_text, self.listed))
        ask_to_save_content(self, "Export Notes", "notes.txt", ("Text (*.txt)",), lambda: content)

    @property
    def _chosen(self) -> Note:
        """The chosen note; the buttons are enabled only if one is listed."""
        return self.listed[self.list.currentRow()]


def entry_text(note: Note) -> str:
    """Return a note, and in a second line where it counts and comes from."""
    if not note.kept:
        return f"{note.text}\nFrom an import, not used, for {note.scope}"
    chat = f" from {note.chat}" if note.chat else ""
    return f"{note.marked}\nFor {note.scope}, kept {note.date}{chat}"
