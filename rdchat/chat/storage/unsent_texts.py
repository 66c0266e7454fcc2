"""What was typed and neither sent nor saved."""

from rdchat.chat.storage.database import Database
from rdchat.chat.storage.rows import text_column


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
        """Store a text in the place of the last one; an empty one is none. Of what is gone, nothing is stored."""
        with self._database.writing() as connection:
            place = (conversation_id, message_id)
            connection.execute("DELETE FROM unsent_texts WHERE conversation_id IS ? AND message_id IS ?", place)
            if text:
                connection.execute(
                    "INSERT INTO unsent_texts (conversation_id, message_id, text) SELECT ?1, ?2, ?3"
                    " WHERE (?1 IS NULL OR EXISTS (SELECT 1 FROM conversations WHERE id = ?1))"
                    " AND (?2 IS NULL OR EXISTS (SELECT 1 FROM messages WHERE id = ?2))",
                    (*place, text_column(text)),
                )
