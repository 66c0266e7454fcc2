"""Files from before folders, pins and the bin are migrated; older apps set newer files aside."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.schema import MIGRATIONS
from tests.chat.conftest import OpenStore

OLD = Path(__file__).parents[1] / "fixtures" / "schema_4" / "conversations.db"


@pytest.fixture
def old(database: Path) -> Path:
    database.parent.mkdir()
    shutil.copy(OLD, database)
    return database


def test_a_file_of_the_version_before_folders_is_read_whole(old: Path, open_store: OpenStore) -> None:
    store = open_store()
    assert store.notice is None
    named, soup = store.conversations()
    assert (named.title, named.system_prompt, soup.title) == ("Zürich 北京 🎂", "Be brief.", "How do I cook a soup?")
    assert (soup.folder_id, soup.pinned_at, soup.archived, soup.deleted_at) == (None, None, False, None)
    question, reply = store.messages(soup.id)
    assert (question.siblings, reply.siblings, reply.text) == (2, 2, "Chop an onion, then boil it.")
    assert (reply.model, reply.seed, reply.control_offsets) == ("small", 2**63 + 1, (1, 3))
    assert store.trace(reply.id)
    assert store.messages(named.id)[-1].status is MessageStatus.INTERRUPTED
    assert [chat.title for chat in store.conversations("onion")] == [soup.title]
    assert store.organiser.without_title() == []  # whose titles they are is not known
    (deleted,) = store.organiser.bin()
    assert store.restore_conversation(deleted.id).title == "Deleted just before the update"
    store.organiser.move(soup.id, store.organiser.create_folder("Recipes").id)


def test_an_older_app_keeps_a_newer_file_and_says_so(database: Path, open_store: OpenStore) -> None:
    store = open_store()
    store.organiser.create_folder("Only the newer app knows folders")
    store.close()
    with closing(Database(database, MIGRATIONS[:4])) as older:
        assert older.notice is not None
        assert older.notice.title == "Your chats are from a newer version of rdchat"
    (kept,) = database.parent.glob("conversations-newer-*.db")
    kept.replace(database)
    assert [folder.name for folder in open_store().organiser.folders()] == ["Only the newer app knows folders"]
