"""What a person asked in the stored chats, read without changing anything, while the app is open or not."""

import sqlite3
from pathlib import Path

from rdchat.chat.storage.file_check import has_schema, is_special, refuse_surprises
from rdchat.chat.storage.message_tree import KEPT
from rdchat.chat.storage.schema import APPLICATION_ID, MIGRATIONS, schema_version
from rdchat.errors import StorageError

_OPEN_ONCE = "Open the app once, then try again."
_HAS_UNLISTED, _HAS_DELETED = 5, 8  # versions of the schema
_WAIT_S = 5.0  # the app writes for a moment now and then
_QUESTIONS = """
    SELECT m.text FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE m.role = 'user' AND m.parent_id IS NULL AND c.deleted_at IS NULL{listed} ORDER BY m.id
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
    if is_special(path):
        raise _no_chats(path)
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_WAIT_S)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            refuse_surprises(connection)
            if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise _no_chats(path)
            if not _is_known(connection):
                raise StorageError(f"The stored chats in {path} are damaged, or of a newer version.", _OPEN_ONCE)
            version = schema_version(connection)
            listed = " AND c.unlisted = 0" if version >= _HAS_UNLISTED else ""
            listed += f" AND m.{KEPT}" if version >= _HAS_DELETED else ""
            texts = [str(row[0]).strip() for row in connection.execute(_QUESTIONS.format(listed=listed))]
        finally:
            connection.close()
    except sqlite3.Error as error:
        what = f"The stored chats in {path} cannot be read: {error}."
        raise StorageError(what, "Close the app and try again.") from error
    questions = [text for text in texts if text]
    if not questions:
        raise _nothing()
    return questions


def _is_known(connection: sqlite3.Connection) -> bool:
    """Tell whether the tables are those of a version that this one knows: reading others could run anything."""
    version = schema_version(connection)
    return 0 < version <= len(MIGRATIONS) and has_schema(connection, MIGRATIONS[:version])


def _no_chats(path: Path) -> StorageError:
    return StorageError(f"{path} holds no chats of rdchat.", _OPEN_ONCE)


def _nothing() -> StorageError:
    return StorageError("There are no questions in stored chats.", "Leave --from-my-chats out.")
