"""What a person asked in the stored chats, read without changing anything, while the app is open or not."""

import sqlite3
from pathlib import Path

from rdchat.chat.schema import APPLICATION_ID
from rdchat.errors import StorageError

_WAIT_S = 5.0  # the app writes for a moment now and then
_QUESTIONS = """
    SELECT m.text FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE m.role = 'user' AND m.parent_id IS NULL AND c.deleted_at IS NULL ORDER BY m.id
"""  # only what came first in a chat: later questions need what came before them


def asked_questions(path: Path) -> list[str]:
    """Return the first question of every chat, edited ones as often as they were edited; deleted chats do not count.

    Args:
        path: The database of `ConversationStore`.

    Raises:
        StorageError: If there is no question, or the database cannot be read.
    """
    if not path.exists():
        raise _nothing()
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_WAIT_S)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise StorageError(f"{path} holds no chats of rdchat.", "Open the app once, then try again.")
            texts = [str(row[0]).strip() for row in connection.execute(_QUESTIONS)]
        finally:
            connection.close()
    except sqlite3.Error as error:
        what = f"The stored chats in {path} cannot be read: {error}."
        raise StorageError(what, "Close the app and try again.") from error
    questions = [text for text in texts if text]
    if not questions:
        raise _nothing()
    return questions


def _nothing() -> StorageError:
    return StorageError("There are no questions in stored chats.", "Leave --from-my-chats out.")
