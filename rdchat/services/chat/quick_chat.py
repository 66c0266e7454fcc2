"""The exchange of the quick window, which is not stored until it becomes a chat."""

from dataclasses import replace
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.chat.attachments.attached_file import AttachedFile, image_data
from rdchat.chat.conversation import NEW_CHAT, Conversation, MadeWith, Message, MessagePath, MessageStatus
from rdchat.chat.store import ENDING, ConversationStore
from rdchat.chat.titles import title_from_prompt
from rdchat.inference.api import FinishReason, Role
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.unsent_memory import WaitingMessage
from rdchat.services.files.pending_files import PendingFiles
from rdchat.services.storage_watch import StorageWatch


class QuickChat(QObject):
    """Asks with the options of a new chat. A question waits while another reply is written or a benchmark runs.

    Its messages have negative ids and no chat, so that replies to them are not stored.

    Args:
        store: The conversations.
        storage: Reports that the exchange cannot be stored.
        chat: The open chat, with the replies.

    Attributes:
        path: The messages. Views hold it until `path_changed`.
        waiting: Whether the last question waits.
        files: The images of the next question.

    Signals:
        path_changed: There is another exchange, or another question with its empty reply.
        changed: More of the last message has changed than its text.
        grew: The last message has gained this text.
    """

    path_changed = Signal()
    changed = Signal(Message)
    grew = Signal(int, str)

    def __init__(self, store: ConversationStore, storage: StorageWatch, chat: OpenChat) -> None:
        super().__init__(chat)
        self._store = store
        self._storage = storage
        self._chat = chat
        self._replies = chat.replies
        self.path = MessagePath()
        self.waiting = False
        # Id of the last message; each has one less than the one before.
        self._last_id = 0
        # NEW_CHAT's id, with the servers that the exchange may go to; `open_as_chat` makes a chat like it.
        self._conversation = NEW_CHAT
        self.files = PendingFiles(self._replies.model, self._replies.drafting.control)
        # The texts of the images (their bytes in base64), by digest.
        self._texts: dict[str, str] = {}
        self._replies.chat_allowed.connect(self._on_allowed)
        self._replies.grew.connect(self._on_grew)
        for changed in (self._replies.changed, self._replies.ended):
            changed.connect(self._on_changed)

    @property
    def busy(self) -> bool:
        """Whether the last question waits, or its reply is being written."""
        return bool(self.path) and self.path[-1].status is MessageStatus.STREAMING

    def ask_question(self, text: str) -> None:
        """Ask a question while it is not busy; without a model, the chosen one is loaded."""
        self._replies.load_model()
        files = self.files.to_send()
        if not self.path:
            # As in a chat, files go to a server after a question only.
            self._conversation = NEW_CHAT if files else self._replies.new_chat()
        for file, data in files:
            self._texts[file.digest] = data
            # The engine finds it there, although it is not stored.
            with self._storage.writing():
                self._store.images.path_of(file.digest, partial(image_data, data))
        self._add(Role.USER, text, files=tuple(file for file, _ in files))
        self.files.remove_files()
        model = self._replies.model.name
        seed = self._chat.reply_seed(len(self.path))
        self._add(Role.ASSISTANT, "", status=MessageStatus.STREAMING, model=model, seed=seed, made_with=MadeWith())
        self.waiting = True
        self.path_changed.emit()
        self.write_next()

    def file_text(self, file: AttachedFile) -> str:
        """Return the text of an image of the exchange; any thread may call this."""
        return self._texts.get(file.digest, "")

    def _with_texts(self, message: Message) -> tuple[tuple[AttachedFile, str], ...]:
        """Return the images of a message, each with its text."""
        return tuple((file, self._texts[file.digest]) for file in message.files)

    def _add(self, role: Role, text: str, **fields: Any) -> None:
        self._last_id -= 1
        self.path.append(Message(self._last_id, NEW_CHAT.id, None, role, text, **fields))

    def write_next(self) -> None:
        """Have the question answered that waits, if the engine is free."""
        if self.waiting and self._replies.free:
            self.waiting = False
            self._replies.write_reply(self.path[-1], self._conversation, self.path[:-1])

    def stop_reply(self) -> None:
        """Stop the reply; one that waits ends at once."""
        if self.waiting:
            self.waiting = False
            end = FinishReason.CANCELLED
            self._on_changed(replace(self.path[-1], status=MessageStatus.COMPLETE, finish_reason=end))
        # Only the quick window's replies have this id: they are in no chat.
        self._replies.stop_replies(NEW_CHAT.id)

    def forget_exchange(self) -> None:
        """Forget the exchange, and delete the copies of its images."""
        self.stop_reply()
        self.path = MessagePath()
        if self._texts:
            self._texts = {}
            self._store.organiser.erase()
        self.path_changed.emit()

    def open_as_chat(self) -> None:
        """Store the exchange as a chat and open it there, where its reply goes on; then begin anew.

        A question that waits is not stored with the others, nor is its empty reply: it waits in the chat.
        """
        with self._storage.writing():
            title = title_from_prompt(self.path[0].text or self.path[0].files[0].name)
            chat = self._store.create_conversation(title, from_prompt=True, like=self._conversation)
            parent: int | None = None
            for message in self.path[: -2 if self.waiting else len(self.path)]:
                fields = {name: getattr(message, name) for name in ("seed", *ENDING)}
                fields["files"] = self._with_texts(message)
                fields["origin"] = self._chat.unsent.origin_of(message.text)
                stored = self._store.add_message(chat.id, parent, message.role, **fields)
                self._replies.recorder.continue_reply(message.id, stored, chat)
                parent = stored.id
            self._chat.open_chat(chat.id)
            if self.waiting:
                self.waiting = False
                self._chat.unsent.queue_message(
                    WaitingMessage(chat.id, self.path[-2].text, self._with_texts(self.path[-2]))
                )
            self._chat.stored.emit()
            self.forget_exchange()

    def _on_allowed(self, conversation: Conversation) -> None:
        """Take over that the exchange, which is no stored chat, may go to a server."""
        if conversation.id == NEW_CHAT.id:
            self._conversation = conversation

    def _on_grew(self, message: Message, text: str) -> None:
        if self.path.update_message(message) is not None:
            self.grew.emit(message.id, text)

    def _on_changed(self, message: Message) -> None:
        if self.path.update_message(message) is not None:
            self.changed.emit(message)
