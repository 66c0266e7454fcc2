"""The line below the messages with a note that waits for the person."""

from functools import partial

from PySide6.QtCore import Signal

from rdchat.chat.conversation import Message, Notice
from rdchat.chat.notes import LONGEST_NOTE, Note
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.conversation.notices import Banner, BannerArea
from rdchat.ui.settings.note_list import NoteSheet
from rdchat.ui.style import Theme, cut, visible_text

_NO_NOTES = Notice(
    "This chat has no notes", "Its project, its options and Settings > Chats decide whether it has some."
)


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
