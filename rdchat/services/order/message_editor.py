"""Deletes and restores messages, and branches chats."""

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject

from rdchat.chat.conversation import Notice
from rdchat.chat.storage.message_bin import DeletedMessage
from rdchat.inference.api.messages import Role
from rdchat.services.chat.reply_recorder import ReplyRecorder
from rdchat.services.order.chat_list import ChatList

_BEING_WRITTEN = Notice(
    "A reply is being written below it", "Stop the reply or wait until it ends, then delete the message."
)


class MessageEditor(QObject):
    """Runs the commands on single messages. A deletion can be undone; a branch is a copy of the chat.

    Args:
        chats: The list of chats, with the undo history.
        recorder: Has the replies that are being written.
        notify: Shows a notice to the person.
    """

    def __init__(self, chats: ChatList, recorder: ReplyRecorder, notify: Callable[[Notice], object]) -> None:
        super().__init__(chats)
        self._chats, self._recorder, self._notify = chats, recorder, notify
        self._store, self._storage, self._chat = chats.store, chats.storage, chats.chat

    def delete_message(self, message_id: int) -> None:
        """Delete a message and all messages after it; `ChatList.undo` restores them."""
        chat = self._chat.conversation
        if chat is None:
            return
        with self._storage.writing():
            self._recorder.flush()
            if self._is_written_below(message_id):
                self._notify(_BEING_WRITTEN)
                return
            role = self._store.message(message_id).role
            deleted = self._store.message_bin.delete(message_id)
            restore = partial(self._store.message_bin.restore, deleted)
            self._chats.order.history.add(partial(self._show_again, chat.id, restore))
            self._chat.read_path()
            self._chats.order.offered_undo.emit(_deletion_text(role, deleted))

    @property
    def has_deleted(self) -> bool:
        """Whether deleted messages of the open chat can be restored."""
        chat, last = self._chat.conversation, self._store.message_bin.last
        return chat is not None and self._storage.read(lambda: last(chat.id), None) is not None

    def restore_deleted(self) -> None:
        """Restore the last deleted message of the open chat and the messages after it."""
        if (chat := self._chat.conversation) is None:
            return
        with self._storage.writing():
            message_id = self._store.message_bin.restore_last(chat.id)
            if message_id is not None:
                delete = partial(self._store.message_bin.delete, message_id)
                self._chats.order.history.add(partial(self._show_again, chat.id, delete))
            self._chat.read_path()

    def _is_written_below(self, message_id: int) -> bool:
        paths = (self._store.path_to(reply.message.id) for reply in self._recorder.live)
        return any(path.index_of(message_id) is not None for path in paths)

    def _show_again(self, conversation_id: int, change: Callable[[], object]) -> None:
        change()
        if self._chat.id == conversation_id:
            self._chat.read_path()
        else:
            self._chat.open(conversation_id)

    def branch(self, message_id: int) -> None:
        """Copy the chat up to a message, with its settings and folder, and open the copy."""
        if (chat := self._chat.conversation) is not None:
            with self._storage.writing():
                self._recorder.flush()  # the store makes the copy
                self._chats.order.branch(chat, message_id)


def _deletion_text(role: Role, deleted: DeletedMessage) -> str:
    what = "your message" if role is Role.USER else "the reply"
    more = deleted.count - 1
    if not more:
        return f"Deleted {what}"
    return f"Deleted {what} and {'the one message' if more == 1 else f'the {more:,} messages'} after it"
