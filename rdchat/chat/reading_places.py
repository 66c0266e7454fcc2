"""Where the person was reading in each chat."""

from dataclasses import dataclass

from rdchat.chat.storage.database import Database


@dataclass(frozen=True, slots=True)
class ReadingPlace:
    """A place in a chat.

    Attributes:
        message_id: The first message in view.
        above: How many pixels of it are above the view.
    """

    message_id: int
    above: int


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
        """Store a place; None for the chat's end. Of a message that is gone, nothing is stored."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM reading_places WHERE conversation_id = ?", (conversation_id,))
            if place is not None:
                connection.execute(
                    "INSERT INTO reading_places (conversation_id, message_id, above)"
                    " SELECT conversation_id, id, ? FROM messages WHERE id = ? AND conversation_id = ?",
                    (place.above, place.message_id, conversation_id),
                )
