from contextlib import closing
from pathlib import Path

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, attached, image_file
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role


def test_what_was_typed_is_kept_over_a_restart_and_goes_with_its_place(tmp_path: Path) -> None:
    store = ConversationStore(tmp_path / "chats.db")
    chat = store.create_conversation("One")
    other = store.create_conversation("Two")
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


def test_unsent_files_are_kept_over_a_restart_and_go_with_their_chat(tmp_path: Path) -> None:
    with closing(ConversationStore(tmp_path / "chats.db")) as store:
        chat = store.create_conversation("One").id
        other = store.create_conversation("Two").id
        text = "A note\0\ud800"
        note = attached(ReadFile("note.pdf", FileKind.PDF, (text,), "Scanned."), text, "page 1 of 3")
        files = (image_file(b"\x89PNG...", "Image", "", 30, 20), (note, text))
        for each in (None, chat, other, other + 1):
            store.save_unsent_files(each, files)
        store.save_unsent_files(other, files[1:])
        store.delete_conversation(chat)
        store.organiser.schedule_erase([chat])
        store.organiser.erase().result()
        assert store.rows("SELECT count(*) FROM message_files, file_texts") == [(0,)]
    with closing(ConversationStore(tmp_path / "chats.db")) as store:
        stored = (files[0], (note, "A note\0?"))
        assert store.unsent_files(None) == stored
        assert store.unsent_files(other) == stored[1:]
        assert store.unsent_files(chat) == store.unsent_files(other + 1) == ()
        store.save_unsent_files(None, ())
        store.write(lambda _connection: None)
        assert store.unsent_files(None) == ()
