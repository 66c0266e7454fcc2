"""Stores the reading position in each chat, and texts that were typed but not sent."""

import sqlite3
from dataclasses import dataclass

from rdchat.chat.storage.database import Database
from rdchat.chat.storage.rows import text_column


@dataclass(frozen=True, slots=True)
class ReadingPosition:
    """A reading position in a chat.

    Attributes:
        message_id: The first message in view.
        above: Pixels of it that are above the view.
    """

    message_id: int
    above: int


class ReadingPositions:
    """Stored reading positions; raises StorageError as `ConversationStore` does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, conversation_id: int) -> ReadingPosition | None:
        """Return the reading position; None for the chat's end."""
        rows = self._database.rows(
            "SELECT message_id, above FROM reading_places WHERE conversation_id = ?", conversation_id
        )
        return ReadingPosition(*rows[0]) if rows else None

    def save(self, conversation_id: int, position: ReadingPosition | None) -> None:
        """Store a position; None for the chat's end. Nothing is stored for a message that no longer exists."""

        def save(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM reading_places WHERE conversation_id = ?", (conversation_id,))
            if position is not None:
                connection.execute(
                    "INSERT INTO reading_places (conversation_id, message_id, above)"
                    " SELECT conversation_id, id, ? FROM messages WHERE id = ? AND conversation_id = ?",
                    (position.above, position.message_id, conversation_id),
                )

        self._database.write(save)


class UnsentTexts:
    """Stored texts of message fields and editors; raises StorageError as `ConversationStore` does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, conversation_id: int | None, message_id: int | None) -> str:
        """Return a text; empty where there is none.

        Args:
            conversation_id: The chat; None for a new one, which only has a message field.
            message_id: The message being edited; None for the chat's message field.
        """
        sql = "SELECT text FROM unsent_texts WHERE conversation_id IS ? AND message_id IS ?"
        rows = self._database.rows(sql, conversation_id, message_id)
        return rows[0][0] if rows else ""

    def save(self, conversation_id: int | None, message_id: int | None, text: str) -> None:
        """Replace the stored text. It is not stored if it is empty, or its chat or message no longer exists."""
        key = (conversation_id, message_id)

        def save(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM unsent_texts WHERE conversation_id IS ? AND message_id IS ?", key)
            if text:
                connection.execute(
                    "INSERT INTO unsent_texts (conversation_id, message_id, text) SELECT ?1, ?2, ?3"
                    " WHERE (?1 IS NULL OR EXISTS (SELECT 1 FROM conversations WHERE id = ?1))"
                    " AND (?2 IS NULL OR EXISTS (SELECT 1 FROM messages WHERE id = ?2))",
                    (*key, text_column(text)),
                )

        self._database.write(save)
