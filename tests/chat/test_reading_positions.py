from pathlib import Path

from rdchat.chat.conversation import ReadingPosition
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role


def test_a_place_is_kept_over_a_restart_and_goes_with_its_chat(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "chats.db")
    chat = store.create_conversation("One")
    other = store.create_conversation("Two")
    message = store.add_message(chat.id, None, Role.USER, "Hello")
    assert store.reading_position(chat.id) is None
    store.save_reading_position(chat.id, ReadingPosition(message.id, 40))
    store.save_reading_position(other.id, ReadingPosition(message.id, 40))  # it has no such message
    store.close()
    store = ConversationStore(tmp_path / "chats.db")
    assert store.reading_position(chat.id) == ReadingPosition(message.id, 40)
    assert store.reading_position(other.id) is None
    store.save_reading_position(chat.id, None)
    assert store.reading_position(chat.id) is None
    store.close()
