"""The bar above a temporary chat."""

from PySide6.QtCore import Signal

from rdchat.services.chat.open_chat import OpenChat
from rdchat.ui.style import LARGE, SMALL, Ground, Theme, ThemedLabel, column, push_button, row, small_text

_NOT_STORED = "This chat is not stored. Tools, servers and the system may keep parts of it."


class TemporaryBar(Ground):
    """Says what may keep something of the chat, with a button that makes it a chat; hidden above other chats.

    Attributes:
        shown: Emitted with whether the chat is temporary.
    """

    shown = Signal(bool)

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
        is_temporary = self._chat.temporary
        self.setVisible(is_temporary)
        self.shown.emit(is_temporary)
        self.keep.setEnabled(bool(self._chat.path))
