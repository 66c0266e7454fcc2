"""The index is made once, in the background, and a search is complete meanwhile."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat import store as store_module
from rdchat.chat.storage import Database, SearchQuery, SearchReader, index_messages
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role
from tests.stores import connect_by_hand, old_store, written_by_hand

COUNT = 230


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of version 2."""
    path = tmp_path / "old.db"
    with old_store(path, 2) as connection:
        connection.execute("INSERT INTO conversations (title, created_at, updated_at) VALUES ('Übungen', 1, 1)")
        connection.executemany(
            "INSERT INTO messages (conversation_id, activated, role, status, created_at, text)"
            " VALUES (1, ?, 'user', 'complete', 1, ?)",
            ((number, f"使用API{number}接口") for number in range(1, COUNT + 1)),
        )
    return path


@pytest.fixture
def no_indexing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_database: Database) -> Generator[None]:
        yield

    monkeypatch.setattr(store_module, "index_messages", nothing)


def found(store: ConversationStore, words: str) -> int:
    """Return how many messages a search finds."""
    hits = SearchReader(store.path).search_chats(SearchQuery(words)).hits
    assert [hit.conversation for hit in hits] == store.conversations(words)
    return hits[0].messages if hits else 0


def indexed_from(store: ConversationStore) -> int:
    return int(store.rows("SELECT indexed_from FROM search_state")[0][0])


def check(store: ConversationStore) -> None:
    """Raise where index and texts differ."""
    with closing(connect_by_hand(store.path)) as connection:
        for index in ("messages_index", "titles_index", "files_index", "summaries_index"):
            connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")


def test_an_older_store_is_searched_whole_before_its_index_is_made(old: Path, no_indexing: None) -> None:
    with closing(ConversationStore(old)) as store:
        assert indexed_from(store) == COUNT + 1
        assert (found(store, "api"), found(store, "api 接口"), found(store, "api7"), found(store, "nothing")) == (
            COUNT, COUNT, 11, 0,
        )  # fmt: skip
        assert [chat.title for chat in store.conversations("ubung")] == ["Übungen"]
        assert SearchReader(old).messages_with(1, "api7接口").ids == (7,)
        store.run_bulk(index_messages(store)).result()
        assert (indexed_from(store), found(store, "api"), found(store, "api7")) == (0, COUNT, 11)
        check(store)


def test_messages_change_while_the_index_is_made(old: Path, no_indexing: None) -> None:
    with closing(ConversationStore(old)) as store:
        steps = index_messages(store)
        store.write(lambda _connection: next(steps))
        assert 0 < indexed_from(store) < COUNT
        for message_id in (1, COUNT):
            store.execute("UPDATE messages SET text = 'изменено' WHERE id = ?", message_id)
            store.execute("DELETE FROM messages WHERE id = ?", message_id + (1 if message_id == 1 else -1))
        store.add_message(1, None, Role.USER, "new API")
        assert (found(store, "изменено"), found(store, "api")) == (2, COUNT - 3)
        store.run_bulk(steps).result()
        assert (indexed_from(store), found(store, "изменено"), found(store, "api")) == (0, 2, COUNT - 3)
        check(store)


def test_the_index_is_finished_after_the_next_start(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(ConversationStore(old)) as store:
        store.indexing.result()
        assert indexed_from(store) == 0
        check(store)
        with written_by_hand(store) as connection:
            connection.execute("UPDATE search_state SET version = 'older'")
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "index_messages", iter_once)
        with closing(ConversationStore(old)) as store:
            store.indexing.result()
            assert 0 < indexed_from(store) < COUNT
    with closing(ConversationStore(old)) as store:
        store.indexing.result()
        assert (indexed_from(store), found(store, "api")) == (0, COUNT)
        check(store)


def iter_once(database: Database) -> Generator[None]:
    yield next(index_messages(database))


def test_a_damaged_text_is_indexed_too(old: Path) -> None:
    with old_store(old, 4) as connection:
        connection.execute("UPDATE messages SET text = CAST(x'6170ff69' AS TEXT) WHERE id = 3")
    with closing(ConversationStore(old)) as store:
        store.indexing.result()
        assert (indexed_from(store), found(store, "ap")) == (0, COUNT)
        store.execute("DELETE FROM messages WHERE id = 3")
        check(store)
