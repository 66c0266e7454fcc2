"""The page of notes in Settings."""

from functools import partial

from rdchat.chat.notes import Note
from rdchat.chat.settings import Settings
from rdchat.services.chat_controller import ChatController
from rdchat.ui.settings.settings_pages import SettingsPage
from rdchat.ui.style import SearchField, Theme, ask, ask_to_save_content, edit_text, push_button, visible_text

_PURPOSE = "Facts for all chats of a project. “Remember that …” in a question proposes one. Larger models propose some."
_EVERYWHERE = "Notes that you keep there go to all chats."
_LIMIT = "If the notes have more, the oldest are left out."
_GONE = "Its text is overwritten, and the caches of chats on disk are cleared. This cannot be undone."


class NotesPage(SettingsPage):
    """Lists the kept notes, the newest first."""

    def __init__(self, theme: Theme, controller: ChatController) -> None:
        super().__init__(theme, controller.settings.change_values)
        self._notes = controller.notes
        self._read = controller.replies.notes
        self._shown: list[Note] = []
        self.add_note(_PURPOSE)
        self.add_field("Notes", self.check_box("Also in chats outside of projects", "notes_everywhere"), _EVERYWHERE)
        self.add_field("At most", self.number("notes_tokens", 1, 99_999, " tokens"), _LIMIT)
        self.search = SearchField(theme, "Search", "Search notes")
        self.search.textChanged.connect(self.show_notes)
        self.add_line(self.search)
        self.list = self.add_list("Kept", "Kept notes")
        self.list.setWordWrap(True)
        write = push_button("Export…", "Write these notes to a file", self._ask_where)
        self.buttons = push_button("Edit…", act=self._edit), push_button("Delete…", act=self._ask_to_delete), write
        self.add_line(*self.buttons, None)
        self._notes.changed.connect(self.show_notes)

    def show_settings(self, settings: Settings) -> None:
        super().show_settings(settings)
        self.show_notes()

    def show_notes(self) -> None:
        """Show the notes with all words of the search."""
        words = self.search.text().casefold().split()
        notes = [each for each in self._read() if all(word in entry_text(each).casefold() for word in words)]
        found = notes[::-1]
        if found != self._shown:
            self._shown = found
            self.list.clear()
            self.list.addItems([visible_text(entry_text(each)) for each in found])
            self.list.setCurrentRow(0)
        for button in self.buttons:
            button.setEnabled(bool(found))

    @property
    def _note(self) -> Note:
        return self._shown[self.list.currentRow()]

    def _edit(self) -> None:
        change = partial(self._notes.change, self._note)
        edit_text(self.window(), self._theme, "Edit Note", self._note.text, change)

    def _ask_to_delete(self) -> None:
        note = self._note
        title = f"Delete “{visible_text(note.text)}”?"
        ask(self, title, _GONE, "Delete", lambda: self._notes.change(note), removes=True)

    def _ask_where(self) -> None:
        content = "\n\n".join(map(entry_text, self._shown))
        ask_to_save_content(self, "Export Notes", "notes.txt", ("Text (*.txt)",), lambda: content)


def entry_text(note: Note) -> str:
    """Return a note, and in a second line where it counts and comes from."""
    return f"{note.marked}\nFor {note.scope}, kept {note.date} from {note.chat}"
