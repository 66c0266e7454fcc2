"""Token ids of stored replies, from which later replies are drafted, and stored questions, to train drafters on."""

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from rdchat.chat.storage import NOT_DELETED, Database, reading
from rdchat.errors import StorageError

ALL = 2**62
"""Larger than any message's id: if the replies up to it are forgotten, all are."""
_SAVE = "INSERT OR REPLACE INTO reply_tokens (message_id, tokenizer, ids) SELECT id, ?, ? FROM messages WHERE id = ?"
_NEWEST = f"""
    SELECT m.id, t.ids, iif(t.ids IS NULL, m.text, '') FROM messages m JOIN conversations c ON c.id = m.conversation_id
    LEFT JOIN reply_tokens t ON t.message_id = m.id AND t.tokenizer = ? AND length(t.ids) % 4 = 0
    WHERE m.role = 'assistant' AND m.status <> 'streaming' AND m.{NOT_DELETED}
        AND c.deleted_at IS NULL AND c.unlisted = 0 AND m.id > ?
    ORDER BY m.id DESC
"""
# It reads only the first question of a chat, because later ones depend on what came before.
_QUESTIONS = f"""
    SELECT m.text FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE m.role = 'user' AND m.parent_id IS NULL AND c.deleted_at IS NULL AND c.unlisted = 0 AND m.{NOT_DELETED}
    ORDER BY m.id
"""


class ReplyTokens:
    """Stored token ids of replies; raises StorageError as `ConversationStore` does. Any thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save_tokens(self, message_id: int, tokenizer: str, ids: Sequence[int]) -> bool:
        """Store the ids of a reply, unless the file has no such reply; return whether it has.

        A change of its text deletes them.
        """
        return self._database.execute(_SAVE, tokenizer, array("I", ids).tobytes(), message_id) > 0

    def newest(self, tokenizer: str, after: int) -> Iterator[tuple[int, Sequence[int] | None, str]]:
        """Yield id, token ids and text of the replies that may be drafted from, newest first.

        These are the replies after a message that are not deleted, in chats that are listed. The token ids are None
        where those of the tokenizer are not stored; otherwise the text is empty.
        """
        with reading(self._database.path) as connection:
            for message_id, ids, text in connection.execute(_NEWEST, (tokenizer, after)):
                yield message_id, None if ids is None else array("I", ids), text

    def delete_tokens(self, up_to: int) -> None:
        """Delete the token ids of the messages up to this one."""
        self._database.execute("DELETE FROM reply_tokens WHERE message_id <= ?", up_to)

    @property
    def newest_message(self) -> int:
        """The highest id of all messages, deleted ones too; 0 without any."""
        return int(self._database.rows("SELECT coalesce(max(id), 0) FROM messages")[0][0])

    @property
    def bytes(self) -> int:
        """Bytes of all token ids on disk."""
        return int(self._database.rows("SELECT coalesce(sum(length(ids)), 0) FROM reply_tokens")[0][0])


def first_questions(path: Path) -> list[str]:
    """Return the first question of every chat that is not deleted, with its edited versions.

    Args:
        path: The database of `ConversationStore`.

    Raises:
        StorageError: If there is no question, or the database cannot be read.
    """
    questions: list[str] = []
    if path.exists():
        with reading(path) as connection:
            texts = (str(row[0]).strip() for row in connection.execute(_QUESTIONS))
            questions = list(filter(None, texts))
    if not questions:
        raise StorageError("There are no questions in stored chats.", "Leave --from-my-chats out.")
    return questions
