"""Notes of chats: proposes some after a reply, and carries out what the person decides on each."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.chat.conversation import Conversation, Message
from rdchat.chat.notes import NOTES_WISH, Note, asked_notes, note_digest, notes_from_model, notes_text
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api import ChatMessage, ReplyEnd, Role
from rdchat.services.chat.replies import Replies
from rdchat.services.engine.engine_request import EngineEvent
from rdchat.services.storage_watch import StorageWatch

# The most notes that wait in a chat; while as many wait, none is proposed, and the model is not asked.
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
        waiting: The notes that wait for the person, each with the message that it comes from: the question that asks to
            remember it, or the reply after which the model proposed it. While that is not in its chat's visible path,
            since it was corrected or deleted, the note is not shown.

    Signals:
        changed: Notes were stored, changed, proposed or dismissed.
        decided: A chat has the digest of one more note that was kept or dismissed.
    """

    changed = Signal()
    decided = Signal(Conversation)

    def __init__(self, store: ConversationStore, replies: Replies, storage: StorageWatch) -> None:
        super().__init__(replies)
        self._organiser = store.organiser
        self._store = store
        self._replies = replies
        self._storage = storage
        self.waiting: dict[Note, Message] = {}
        replies.ended.connect(self._on_ended)

    def proposed(self, chat: Conversation) -> list[Note]:
        """Return the notes that wait for the person in a chat, if it may have them."""
        folders = self._replies.order.note_folders(chat)
        notes = [note for note in self.waiting if note.chat_id == chat.id and note.folder_id in folders]
        ids = self._storage.read_or_default(lambda: self._store.messages(chat.id).ids, ()) if notes else ()
        return [note for note in notes if self.waiting[note].id in ids]

    def note_from(self, chat: Conversation, message: Message, text: str) -> Note | None:
        """Return a note with a text of a chat's message; None if the chat has no notes. Raises StorageError."""
        folders = self._replies.order.note_folders(chat)
        if not folders:
            return None
        folder = self._replies.order.project_folder(chat)
        scope = f"the project “{folder.name}”" if folder else "all chats"
        is_own = message.role is Role.USER and not message.origin
        source = "" if is_own else self._organiser.note_source(chat.id, folders[-1])
        return Note(text, folders[-1], chat.id, source, scope)

    def keep(self, note: Note, text: str) -> bool:
        """Store a proposed or a new note, perhaps with another text; return whether it is stored."""
        is_stored = False
        with self._storage.writing():
            self._organiser.keep_note(replace(note, text=text))
            self.dismiss(note)
            is_stored = True
        return is_stored  # noqa: RET504  a failure skips the line above

    def dismiss(self, note: Note) -> None:
        """Propose a note no longer: its chat stores a digest of it."""
        if message := self.waiting.pop(note, None):
            with self._storage.writing():
                chat = self._store.conversation(message.conversation_id)
                digests = map(note_digest, {note.text, _wish(note.text, message)})
                own = replace(chat.own, decided_notes=(*chat.own.decided_notes, *digests))
                chat = self._store.set_chat_options(replace(chat, own=own))
                self.decided.emit(chat)
        self.changed.emit()

    def change(self, note: Note, text: str = "") -> bool:
        """Replace a note's text, or delete it, and return whether that worked.

        The old text is overwritten, and goes with the caches that have it.
        """
        is_stored = False
        with self._storage.writing():
            self._organiser.change_note(note.id, text)
            self._organiser.erase()
            self.changed.emit()
            is_stored = True
        return is_stored  # noqa: RET504  a failure skips the line above

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
            question = next((each for each in reversed(path) if each.role is Role.USER), None)
            if question:
                self._propose(question, asked_notes(question.text))
                QTimer.singleShot(_QUIET_MS, self, partial(self._ask, chat, question, reply))

    def _ask(self, chat: Conversation, question: Message, reply: Message) -> None:
        """Ask the model what to note of an exchange, if it is idle."""
        if len(self.proposed(chat)) >= _MAX_NOTES or not self._replies.may_write_aside:
            return
        messages = (
            ChatMessage(Role.USER, question.text[:_MAX_CHARACTERS]),
            ChatMessage(Role.ASSISTANT, reply.parts.answer[:_MAX_CHARACTERS]),
            ChatMessage(Role.USER, f"{NOTES_WISH}\n\n{notes_text(self._replies.notes(chat)[-_KNOWN:])}".rstrip()),
        )
        on_event = partial(self._on_event, reply)
        self._replies.ask_aside(messages, _TOKENS, on_event, thinking_tokens=0, leaves_cache=False)

    def _on_event(self, reply: Message, event: EngineEvent) -> None:
        if isinstance(event, ReplyEnd) and event.is_whole:
            with suppress(StorageError):
                self._propose(reply, notes_from_model(event.told.answer))

    def _propose(self, message: Message, texts: list[str]) -> None:
        """Add notes from a message to those that wait, if fewer than `_MAX_NOTES` do; raises StorageError.

        Those that were decided are left out. A question that asks anew for one is another one, unless it is another
        version of that question.
        """
        chat = self._store.conversation(message.conversation_id)
        # After a restore, another message may have its id.
        if self._store.message(message.id).created_at != message.created_at:
            return
        room = _MAX_NOTES - len(self.proposed(chat))
        for text in texts:
            note = self.note_from(chat, message, text)
            wish = _wish(text, message)
            if note and not any(note_digest(wish, each) == each for each in chat.own.decided_notes):
                room -= note not in self.waiting
                if room < 0:
                    break
                self.waiting[note] = message
        self.changed.emit()


def _wish(text: str, message: Message) -> str:
    """Return what a note is known by: a model's by its text, and a question's with the place of the question too."""
    return f"{message.parent_id} {text}" if message.role is Role.USER else text
