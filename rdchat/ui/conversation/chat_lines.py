"""Lines around the messages of a chat: its project, what a temporary chat may leave, a note that the model proposes."""

from functools import partial

from PySide6.QtCore import Signal

from rdchat.chat.conversation import Message, Notice
from rdchat.chat.notes import LONGEST_NOTE, Note
from rdchat.chat.projects import Folder
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat_controller import ChatController
from rdchat.ui.conversation.notices import Banner, BannerArea
from rdchat.ui.settings.note_list import NoteSheet
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TIGHT,
    ElidedLabel,
    Ground,
    TextButton,
    Theme,
    ThemedLabel,
    column,
    cut,
    push_button,
    row,
    small_text,
    visible_text,
)
from rdchat.wording import counted

_NO_NOTES = Notice(
    "This chat has no notes", "Its project, its options and Settings > Chats decide whether it has some."
)
_NOT_STORED = "This chat is not stored. Tools, servers and the system may keep parts of it."


class NoteLine(BannerArea):
    """Shows the first of the notes that wait in the open chat; hidden without any. A long one has to be shortened.

    Attributes:
        decided: Emitted when the person has decided on a note with the keyboard in its banner.
    """

    decided = Signal()

    def __init__(self, controller: ChatController, theme: Theme) -> None:
        super().__init__()
        self._controller = controller
        self._chat = controller.chat
        self._notes = controller.notes
        self._theme = theme
        self._visible_notes: list[Note] = []
        for changed in (self._chat.opened, self._chat.path_changed, self._chat.options_changed):
            changed.connect(self.show_note)

    def show_note(self) -> None:
        """Show the first note that waits; one that is shown stays as it is."""
        notes = self._notes.proposed(self._chat.conversation)[:1]
        if notes == self._visible_notes:
            return
        self._visible_notes = notes
        if self.isAncestorOf(self.window().focusWidget()):
            self.decided.emit()
        self.close_banner("note")
        for note in notes:
            is_long = len(note.text) > LONGEST_NOTE
            what = f"Shorten this note to {LONGEST_NOTE:,} characters" if is_long else "Keep this note"
            banner = Banner(
                self._theme, visible_text(f"{what} for {note.scope}?"), visible_text(cut(note.marked)), "edit"
            )
            banner.cross.hide()
            banner.add_action("No", partial(self._notes.dismiss, note), closes=False)
            banner.add_action("Edit…", partial(self._edit, note), closes=False)
            if not is_long:
                banner.add_action("Keep", partial(self._notes.keep, note, note.text), closes=False)
            self.show_banner(banner, "note")

    def add_note(self, message: Message, text: str) -> None:
        """Let the person add a text of a message to the notes, unless its chat has none."""
        with self._controller.storage.reading():
            note = self._notes.note_from(self._chat.conversation, message, text)
            if note:
                self._edit(note)
            else:
                self._controller.chat_notice_raised.emit(_NO_NOTES)

    def _edit(self, note: Note) -> None:
        NoteSheet(self.window(), self._theme, self._notes, note).open()


class TemporaryBar(Ground):
    """Says what may keep something of the chat, with a button that makes it a chat; hidden above other chats."""

    def __init__(self, chat: OpenChat, theme: Theme) -> None:
        super().__init__(theme, "raised")
        self._chat = chat
        self.keep = push_button("Keep This Chat", "Store this chat, and show it in the sidebar", chat.keep_temporary)
        text = small_text(theme, _NOT_STORED)
        texts = column(ThemedLabel(theme, "Temporary chat", bold=True), text, spacing=2)
        row((texts, 1), self.keep, within=self, margins=(LARGE, SMALL) * 2)
        for changed in (chat.opened, chat.path_changed, chat.message_added):
            changed.connect(self._show_state)
        self.hide()

    def _show_state(self) -> None:
        self.setVisible(self._chat.temporary)
        self.keep.setEnabled(bool(self._chat.path))


class ProjectLine(Ground):
    """Names the project of the open chat, above it; hidden outside of projects.

    Attributes:
        edit_requested: Emitted with the folder of the project.
    """

    edit_requested = Signal(Folder)

    def __init__(self, controller: ChatController, theme: Theme) -> None:
        super().__init__(theme, "surface")
        self._chat = controller.chat
        self.text = ElidedLabel(theme, "", "muted", -1)
        self.settings = TextButton("Project Settings…", theme, self._edit)
        row((self.text, 1), self.settings, within=self, margins=(LARGE, TIGHT, MEDIUM, TIGHT))
        for changed in (self._chat.opened, self._chat.options_changed):
            changed.connect(self.show_project)
        self.show_project()

    def show_project(self) -> None:
        """Show the open chat's project."""
        folder = self._chat.project_folder
        self.setVisible(folder is not None)
        if folder is not None:
            replies = self._chat.replies
            text = f"Project {folder.name}: {folder.description}"
            if notes := replies.notes(self._chat.conversation):
                text += f", {counted(len(notes), 'note')}"
            problem = replies.missing_model(self._chat.conversation)
            self.text.show_text(visible_text(problem or text), "warning" if problem else "muted")

    def _edit(self) -> None:
        if (folder := self._chat.project_folder) is not None:
            self.edit_requested.emit(folder)
