"""A file from before edited replies and deleted messages is migrated."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.conversation import cut_of
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.schema import MIGRATIONS
from rdchat.inference.api.requests import Role
from tests.chat.conftest import OpenStore

OLD = Path(__file__).parents[1] / "fixtures" / "schema_7" / "conversations.db"


@pytest.fixture
def old(database: Path) -> Path:
    database.parent.mkdir()
    shutil.copy(OLD, database)
    return database


def test_a_file_of_schema_7_is_read_whole(old: Path, open_store: OpenStore) -> None:
    store = open_store()
    assert store.notice is None
    titles = {chat.title: chat for chat in store.conversations()}
    assert set(titles) == {"Growing things", "Put aside"}
    chat = titles["Growing things"]
    folders = {folder.name: folder for folder in store.organiser.folders()}
    assert folders["Herbs"].parent_id == folders["Garden"].id
    assert chat.folder_id == folders["Herbs"].id
    assert chat.pinned_at is not None
    assert chat.thinking_choice is not None
    assert titles["Put aside"].archived
    path = store.messages(chat.id)
    assert [message.role for message in path] == [Role.USER, Role.ASSISTANT] * 4
    assert path[1].parts.answer == "Answer 2"
    assert path[1].thinking.ms == 250.0
    assert (path[1].statistics is not None, path[1].edited, path[1].made_with, path[1].files) == (True, False, None, ())
    cut = cut_of(path)
    assert cut is not None
    assert cut.context_cut is not None
    assert (cut.id, cut.context_cut.model) == (path[3].id, "tiny")
    for words in ("basil", "orleans"):  # of a message, and of the summary
        assert [chat.title for chat in store.conversations(words)] == ["Growing things"]
    (deleted,) = store.organiser.bin()
    assert store.restore_conversation(deleted.id).title == "Deleted just before the update"


def test_what_came_since_works_on_it(old: Path, open_store: OpenStore) -> None:
    store = open_store()
    (chat,) = store.conversations("basil")
    last = store.messages(chat.id)[-1]
    edited = store.add_message(chat.id, last.parent_id, Role.ASSISTANT, "Mine", edited=True)
    assert store.messages(chat.id)[-1] == edited
    store.message_bin.restore(store.message_bin.delete(edited.id))
    assert len(store.alternatives(edited.id)) == 2
    store.close()
    with closing(Database(old)) as again:
        assert again.notice is None
        assert again.rows("PRAGMA user_version") == [(len(MIGRATIONS),)]
