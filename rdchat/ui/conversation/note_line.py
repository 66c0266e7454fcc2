"""The line at a chat's end that proposes a note."""

from functools import partial

from rdchat.chat.notes import Note
from rdchat.services.chat_controller import ChatController
from rdchat.ui.conversation.notices import Banner, BannerArea
from rdchat.ui.style import ConsentPause, Theme, edit_text, visible_text


class NoteLine(BannerArea):
    """Shows the first of the notes that wait in the open chat; hidden without any."""

    def __init__(self, controller: ChatController, theme: Theme) -> None:
        super().__init__()
        self._chat = controller.chat
        self._notes = controller.notes
        self._theme = theme
        self._shown: list[Note] = []
        self._chat.opened.connect(self.show_note)
        self._chat.options_changed.connect(self.show_note)

    def show_note(self) -> None:
        """Show the first note that waits; one that is shown stays as it is."""
        shown = self._notes.proposed(self._chat.conversation)[:1]
        if shown == self._shown:
            return
        self._shown = shown
        self.close_banner("note")
        for note in shown:
            title = f"Keep this note for {visible_text(note.scope)}?"
            banner = Banner(self._theme, title, visible_text(note.marked), "edit")
            banner.cross.hide()
            keep = partial(self._notes.keep, note)
            edit = partial(edit_text, self.window(), self._theme, "Edit Note", note.text, keep)
            banner.add_action("No", partial(self._notes.dismiss, note), closes=False)
            banner.add_action("Edit…", edit, closes=False)
            banner.add_action("Keep", partial(keep, note.text), closes=False)
            ConsentPause(*banner.buttons)
            self.show_banner(banner, "note")
