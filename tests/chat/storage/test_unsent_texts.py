from pathlib import Path

from rdchat.chat.store import ConversationStore
from rdchat.inference.api.messages import Role


def test_what_was_typed_is_kept_over_a_restart_and_goes_with_its_place(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "chats.db")
    chat, other = store.create_conversation("One"), store.create_conversation("Two")
    message = store.add_message(chat.id, None, Role.USER, "Hello")
    store.save_unsent_text(None, None, "a new chat")
    store.save_unsent_text(chat.id, None, "typed")
    store.save_unsent_text(chat.id, None, "typed on\0\ud800")
    store.save_unsent_text(chat.id, message.id, "edited")
    store.save_unsent_text(other.id, None, "for the other")
    store.save_unsent_text(other.id + 1, None, "for none")
    store.save_unsent_text(chat.id, message.id + 1, "of none")
    store.close()
    store = ConversationStore(tmp_path / "chats.db")
    find = store.unsent_text
    assert find(None, None) == "a new chat"
    assert (find(chat.id, None), find(chat.id, message.id)) == ("typed on\0?", "edited")
    assert (find(other.id + 1, None), find(chat.id, message.id + 1)) == ("", "")
    store.save_unsent_text(None, None, "")
    assert find(None, None) == ""
    store.delete_conversation(chat.id)
    store.organiser.schedule_erase([chat.id])
    store.organiser.erase().result()
    assert (find(chat.id, None), find(chat.id, message.id)) == ("", "")
    assert find(other.id, None) == "for the other"
    store.close()
