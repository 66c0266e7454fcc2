"""Conversations and settings as the window commands them; no engine is needed for any of it."""

from PySide6.QtCore import QObject, Signal

from rdchat.chat.conversation import Conversation, Notice
from rdchat.chat.settings import Settings
from rdchat.chat.settings_store import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.requests import SamplingParams
from rdchat.services.chat.conversation_list import ConversationList
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.storage_watch import StorageWatch


class ConversationDesk(QObject):
    """Lists, opens, renames, deletes and searches conversations, and keeps the settings.

    Args:
        store: The conversations.
        settings: What the person prefers.
        parent: The Qt parent.
    """

    conversations_changed = Signal()
    conversation_opened = Signal()
    conversation_removed = Signal(int)  # its id, before another one is opened in its place
    conversation_deleted = Signal(Conversation)
    settings_changed = Signal(Settings)
    notice_raised = Signal(Notice)
    storage_failed = Signal(Notice)
    storage_recovered = Signal()

    def __init__(self, store: ConversationStore, settings: SettingsStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._settings = settings
        self._chat = OpenChat(store)
        self._list = ConversationList(store)
        self._storage = StorageWatch(self)
        self._storage.failed.connect(self.storage_failed)
        self._storage.recovered.connect(self.storage_recovered)

    def conversations(self) -> list[Conversation]:
        """The conversations that the search leaves, newest first."""
        return list(self._list.shown)

    @property
    def conversation(self) -> Conversation | None:
        """The open conversation; None for a new chat that has no message yet."""
        return self._chat.conversation

    @property
    def chat_system_prompt(self) -> str | None:
        """The open chat's own system prompt; None where it takes the one of the preferences."""
        return self._chat.system_prompt

    @property
    def chat_sampling(self) -> SamplingParams | None:
        """The open chat's own sampling; None where it takes the one of the preferences."""
        return self._chat.sampling

    @property
    def settings(self) -> Settings:
        return self._settings.settings

    def change_settings(self, settings: Settings) -> None:
        with self._storage.reading():
            self._settings.save(settings)
        self.settings_changed.emit(settings)

    def new_chat(self) -> None:
        self._chat.start_new()
        self.conversation_opened.emit()

    def open_conversation(self, conversation_id: int) -> None:
        with self._storage.reading():
            self._chat.open(conversation_id)
            self.conversation_opened.emit()

    def rename_conversation(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title; a blank one leaves it as it is."""
        with self._storage.writing():
            self._chat.update(self._store.rename_conversation(conversation_id, title))
        self._list_conversations()

    def delete_conversation(self, conversation_id: int) -> None:
        """Delete a conversation, until `undo_delete`; where it was open, its neighbour in the list is opened."""
        with self._storage.writing():
            neighbour = self._list.neighbour_of(conversation_id)
            deleted = self._list.delete(conversation_id)
            self.conversation_removed.emit(conversation_id)
            self._list_conversations()
            if self._chat.is_open(conversation_id):
                self._open_or_new(neighbour)
            self.conversation_deleted.emit(deleted)

    def undo_delete(self) -> None:
        """Bring back the conversation that was deleted last, and open it."""
        with self._storage.writing():
            if restored := self._list.restore_last():
                self._list_conversations()
                self.open_conversation(restored.id)

    def search(self, text: str) -> None:
        """List only the conversations that have these words."""
        self._list.search = text
        self._list_conversations()

    def set_chat_options(self, system_prompt: str | None, sampling: SamplingParams | None) -> None:
        """Give the open chat its own system prompt and sampling; None takes those of the preferences."""
        stored = self.conversation is not None
        with self._storage.writing() if stored else self._storage.reading():
            self._chat.set_options(system_prompt, sampling)

    def _open_latest(self) -> None:
        """List the conversations and open the newest one; say what was wrong with the files."""
        for notice in (self._store.notice, self._settings.notice):
            if notice:
                self.notice_raised.emit(notice)
        self._list_conversations()
        self._open_or_new(next(iter(self._list.shown), None))

    def _open_or_new(self, conversation: Conversation | None) -> None:
        if conversation:
            self.open_conversation(conversation.id)
        else:
            self.new_chat()

    def _list_conversations(self) -> None:
        with self._storage.reading():
            self._list.refresh()
        self.conversations_changed.emit()
