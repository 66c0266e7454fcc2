"""Reading the stored questions changes nothing in the store, even while the app has it open."""

from pathlib import Path

import pytest

from rdchat.chat.reply_tokens import first_questions
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api import Role


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.sqlite"


def chat(store: ConversationStore, *texts: str) -> int:
    """Store a chat in which question and answer take turns."""
    conversation = store.create_conversation()
    parent = None
    for place, text in enumerate(texts):
        role = Role.ASSISTANT if place % 2 else Role.USER
        parent = store.add_message(conversation.id, parent, role, text).id
    return conversation.id


def test_the_first_question_of_each_chat_is_read(path: Path) -> None:
    store = ConversationStore(path)
    chat(store, "Warum ist der Himmel blau?", "Streuung.", "And at night?")
    chat(store, "  \n", "Yes?")
    chat(store, "What is tea?")
    assert first_questions(path) == ["Warum ist der Himmel blau?", "What is tea?"]  # while the app has it
    store.close()
    assert first_questions(path) == ["Warum ist der Himmel blau?", "What is tea?"]


def test_deleted_chats_do_not_count_and_can_still_be_restored(path: Path) -> None:
    store = ConversationStore(path)
    deleted = chat(store, "a secret")
    store.delete_conversation(deleted)
    store.close()
    before = path.read_bytes()
    with pytest.raises(StorageError, match="no questions"):
        first_questions(path)
    assert path.read_bytes() == before


def test_another_programs_file(path: Path) -> None:
    path.write_text("no database, but long enough to look like one " * 30)
    with pytest.raises(StorageError, match="cannot be read"):
        first_questions(path)
