"""Notes of chats: proposes some after a reply, and carries out what the person decides on each."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.chat.conversation import Conversation, Message
from rdchat.chat.notes import NOTES_WISH, Note, asked_notes, notes_from_model, notes_text
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api import ChatMessage, ReplyEnd, Role
from rdchat.services.chat.replies import Replies
from rdchat.services.engine.engine_request import EngineEvent
from rdchat.services.storage_watch import StorageWatch

# The most notes that the model proposes after a reply; while as many wait, it is not asked.
_MAX_NOTES = 3
# The pause after a reply before the model is asked: the person may be about to go on.
_QUIET_MS = 2500
# Characters of the question and of the answer that the model is shown.
_MAX_CHARACTERS = 2000
# The most tokens that it writes.
_TOKENS = 120
# The newest notes, which the model is told not to propose again.
_KNOWN = 20


class NoteControl(QObject):
    """Proposes notes, which are in memory only until the person keeps them.

    What a question asks to remember is proposed when its reply has ended. Then the model is asked once it is idle; a
    small one and a remote one are not, and any other request stops it.

    Args:
        store: The conversations.
        replies: Gives the state of the engine, and the notes of chats.
        storage: Runs what is written.

    Attributes:
        waiting: The notes that were proposed since rdchat began, each with whether it still waits for the person. False
            means kept or dismissed: the model may propose the note again, but it is not shown again.
    """

    # Notes were stored, changed, proposed or dismissed.
    changed = Signal()

    def __init__(self, store: ConversationStore, replies: Replies, storage: StorageWatch) -> None:
        super().__init__(replies)
        self._organiser = store.organiser
        self._store = store
        self._replies = replies
        self._storage = storage
        self.waiting: dict[Note, bool] = {}
        replies.ended.connect(self._on_ended)

    def proposed(self, chat: Conversation) -> list[Note]:
        """Return the notes that wait for the person in a chat, if it may have them."""
        folders = self._replies.order.note_folders(chat)
        return [
            note
            for note, waits in self.waiting.items()
            if waits and note.chat_id == chat.id and note.folder_id in folders
        ]

    def keep(self, note: Note, text: str) -> None:
        """Store a proposed note, perhaps with another text."""
        with self._storage.writing():
            self._organiser.keep_note(replace(note, text=text))
            self.dismiss(note)

    def dismiss(self, note: Note) -> None:
        """Propose a note no longer, until rdchat quits."""
        self.waiting[note] = False
        self.changed.emit()

    def change(self, note: Note, text: str = "") -> None:
        """Replace a note's text, or delete it. The old text is overwritten, and goes with the caches that have it."""
        with self._storage.writing():
            self._organiser.change_note(note.id, text)
            self._organiser.erase()
            self.changed.emit()

    # What is proposed

    def _on_ended(self, reply: Message) -> None:
        """Propose what the question of a reply asks to remember, and ask the model about both in a while.

        Nothing is done for a reply with calls of tools, nor in a chat where notes are off.
        """
        # The store has no chat for a reply of the quick window, or of a chat that is gone: that raises too.
        with suppress(StorageError):
            chat = self._store.conversation(reply.conversation_id)
            if reply.tool_calls or not self._replies.order.note_folders(chat):
                return
            path = self._store.path_to(reply.id)
            question = next((each.text for each in reversed(path) if each.role is Role.USER), "")
            # Only the first reply to a question proposes what the question asks to remember.
            self._propose(chat, asked_notes(question) if path[-1].sibling == 0 else [])
            QTimer.singleShot(_QUIET_MS, self, partial(self._ask, chat, question, reply.parts.answer))

    def _ask(self, chat: Conversation, question: str, answer: str) -> None:
        """Ask the model what to note of an exchange, if it is idle."""
        if len(self.proposed(chat)) >= _MAX_NOTES or not self._replies.may_write_aside:
            return
        messages = (
            ChatMessage(Role.USER, question[:_MAX_CHARACTERS]),
            ChatMessage(Role.ASSISTANT, answer[:_MAX_CHARACTERS]),
            ChatMessage(Role.USER, f"{NOTES_WISH}\n\n{notes_text(self._replies.notes(chat)[-_KNOWN:])}".rstrip()),
        )
        self._replies.ask_aside(messages, _TOKENS, partial(self._on_event, chat), thinking_tokens=0, leaves_cache=False)

    def _on_event(self, chat: Conversation, event: EngineEvent) -> None:
        if isinstance(event, ReplyEnd) and event.is_whole:
            with suppress(StorageError):
                self._propose(chat, notes_from_model(event.told.answer)[:_MAX_NOTES], is_by_model=True)

    def _propose(self, chat: Conversation, texts: list[str], *, is_by_model: bool = False) -> None:
        """Add notes to those that wait in a chat; raises StorageError.

        What the person asked to remember waits each time. What the model proposes again stays as it was: it waits, or
        it was decided.
        """
        folder = self._replies.order.project_folder(chat)
        folder_id = folder.id if folder else None
        scope = f"the project “{folder.name}”" if folder else "all chats"
        source = self._organiser.note_source(chat.id, folder_id) if is_by_model else ""
        for text in texts:
            note = Note(text, folder_id, chat.id, source, scope)
            self.waiting[note] = not is_by_model or self.waiting.get(note, True)
        self.changed.emit()
