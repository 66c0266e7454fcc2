"""Reads the questions of the stored chats, to train a drafter on them; the app may be open meanwhile."""

from pathlib import Path

from rdchat.chat.storage.connections import reading
from rdchat.chat.storage.message_tree import NOT_DELETED
from rdchat.errors import StorageError

_QUESTIONS = f"""
    SELECT m.text FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE m.role = 'user' AND m.parent_id IS NULL AND c.deleted_at IS NULL AND c.unlisted = 0 AND m.{NOT_DELETED}
    ORDER BY m.id
"""  # only the first question of a chat: later ones depend on what came before


def answered_questions(path: Path) -> list[str]:
    """Return the first question of every chat that is not deleted, with its edited versions.

    Args:
        path: The database of `ConversationStore`.

    Raises:
        StorageError: If there is no question, or the database cannot be read.
    """
    questions: list[str] = []
    if path.exists():
        with reading(path) as connection:
            texts = [str(row[0]).strip() for row in connection.execute(_QUESTIONS)]
            questions = [text for text in texts if text]
    if not questions:
        raise StorageError("There are no questions in stored chats.", "Leave --from-my-chats out.")
    return questions
