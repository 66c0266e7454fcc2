"""What the person left in a chat: the place where they were reading, and text that they typed and did not send."""

import sqlite3
from dataclasses import dataclass

from rdchat.chat.storage.database import Database
from rdchat.chat.storage.rows import text_column


@dataclass(frozen=True, slots=True)
class ReadingPlace:
    """A place in a chat."""

    message_id: int  # the first message in view
    above: int  # pixels of it above the view


class ReadingPlaces:
    """Stored places; raises StorageError as `ConversationStore` does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, conversation_id: int) -> ReadingPlace | None:
        """Return where the person was; None at the chat's end."""
        rows = self._database.rows(
            "SELECT message_id, above FROM reading_places WHERE conversation_id = ?", conversation_id
        )
        return ReadingPlace(*rows[0]) if rows else None

    def keep(self, conversation_id: int, place: ReadingPlace | None) -> None:
        """Store a place; None for the chat's end. Nothing is stored for a message that is gone."""

        def keep(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM reading_places WHERE conversation_id = ?", (conversation_id,))
            if place is not None:
                connection.execute(
                    "INSERT INTO reading_places (conversation_id, message_id, above)"
                    " SELECT conversation_id, id, ? FROM messages WHERE id = ? AND conversation_id = ?",
                    (place.above, place.message_id, conversation_id),
                )

        self._database.write(keep)


class UnsentTexts:
    """Stored texts of fields and editors; raises StorageError as `ConversationStore` does."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_chat(self, conversation_id: int | None) -> dict[int | None, str]:
        """Return a chat's texts by the message that is edited; None is the chat's field.

        Args:
            conversation_id: The chat; None for a new one, which has a field only.
        """
        rows = self._database.rows(
            "SELECT message_id, text FROM unsent_texts WHERE conversation_id IS ?", conversation_id
        )
        return dict(rows)

    def keep(self, conversation_id: int | None, message_id: int | None, text: str) -> None:
        """Replace the stored text. An empty one is not stored, nor is one of a chat or message that is gone."""
        place = (conversation_id, message_id)

        def keep(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM unsent_texts WHERE conversation_id IS ? AND message_id IS ?", place)
            if text:
                connection.execute(
                    "INSERT INTO unsent_texts (conversation_id, message_id, text) SELECT ?1, ?2, ?3"
                    " WHERE (?1 IS NULL OR EXISTS (SELECT 1 FROM conversations WHERE id = ?1))"
                    " AND (?2 IS NULL OR EXISTS (SELECT 1 FROM messages WHERE id = ?2))",
                    (*place, text_column(text)),
                )

        self._database.write(keep)
