"""Cases of the conversations' database: trees that are none, odd versions and tables, values out of range."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.hostile.case import Call, Case, Kind
from tests.hostile.harm import ODD_FILES, cut, flipped, with_odd_file
from tests.stores import connect_by_hand

Spoil = Callable[[Path], object]  # takes the database's path
_CHATS, _TURNS = 12, 8
_DEEP = "[" * 100_000


def good_store(path: Path) -> Path:
    """Make a database of some chats, with alternatives, through the store itself."""
    from rdchat.chat.store import ConversationStore
    from rdchat.inference.api.messages import Role

    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(ConversationStore(path)) as store:
        for number in range(_CHATS):
            chat = store.create_conversation(f"Chat {number}")
            parent = None
            for turn in range(_TURNS):
                role = (Role.USER, Role.ASSISTANT)[turn % 2]
                parent = store.add_message(chat.id, parent, role, f"word {turn} " * 40).id
            store.add_message(chat.id, None, Role.USER, "Another beginning")
    return path


def _sql(*statements: str, schema: bool = False) -> Spoil:
    """Run statements that no store would; `schema` lets them write to the schema itself."""

    def spoil(path: Path) -> None:
        with closing(connect_by_hand(path)) as connection:
            connection.execute(f"PRAGMA writable_schema = {int(schema)}")
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return spoil


def _in_turn(*spoils: Spoil) -> Spoil:
    """Spoil a database in steps, each on a connection of its own: one keeps the schema that it has read."""

    def spoil(path: Path) -> None:
        for each in spoils:
            each(path)

    return spoil


def _beside(suffix: str, what: str) -> Spoil:
    """Put one of `ODD_FILES` in the place of a file that belongs to the database."""
    return lambda path: with_odd_file(path.name + suffix, what)(path.parent)


def _noise_beside(suffix: str) -> Spoil:
    return lambda path: path.with_name(path.name + suffix).write_bytes(bytes(range(256)) * 500)


_ROW = "(SELECT max(id) FROM messages)"
SPOILED: Mapping[str, Spoil] = {
    "a message that is its own parent": _sql(f"UPDATE messages SET parent_id = id WHERE id = {_ROW}"),
    "every message is its own parent": _sql("UPDATE messages SET parent_id = id"),
    "a circle of two": _sql("UPDATE messages SET parent_id = 3 - id WHERE id IN (1, 2)"),
    "a circle of all": _sql("UPDATE messages SET parent_id = (SELECT max(id) FROM messages) WHERE id = 1"),
    "a circle through the root of each chat": _sql(
        "UPDATE messages SET parent_id = (SELECT max(id) FROM messages m WHERE m.conversation_id ="
        " messages.conversation_id) WHERE parent_id IS NULL"
    ),
    "a parent in another chat": _sql("UPDATE messages SET parent_id = 1 WHERE id > 20"),
    "a parent that is not there": _sql("UPDATE messages SET parent_id = 999999 WHERE id > 20"),
    "a parent that is younger": _sql("UPDATE messages SET parent_id = id + 1 WHERE id % 2 = 0"),
    "messages of a chat that is not there": _sql("UPDATE messages SET conversation_id = 999999"),
    "chats without messages": _sql("DELETE FROM messages"),
    "messages without chats": _sql("DELETE FROM conversations"),
    **{f"version {number}": _sql(f"PRAGMA user_version = {number}") for number in (-1, 0, 1, 2, 4, 2**31 - 1)},
    **{f"application {number}": _sql(f"PRAGMA application_id = {number}") for number in (0, -1, 1)},
    "version 0 without an application": _sql("PRAGMA user_version = 0", "PRAGMA application_id = 0"),
    **{
        f"no table {name}": _sql(f"DROP TABLE {name}")
        for name in ("messages", "conversations", "messages_index", "titles_index", "message_traces")
    },
    "no tables": _sql("DROP TABLE messages_index", "DROP TABLE titles_index", "DROP TABLE message_traces",
                      "DROP TABLE messages", "DROP TABLE conversations"),
    "no triggers": _sql("DROP TRIGGER messages_added", "DROP TRIGGER messages_changed"),
    "a trigger that deletes": _sql("CREATE TRIGGER evil AFTER INSERT ON messages BEGIN DELETE FROM conversations; END"),
    "a trigger that raises": _sql(
        "CREATE TRIGGER evil BEFORE INSERT ON messages BEGIN SELECT RAISE(FAIL, 'evil'); END"
    ),
    "a view in the place of a table": _sql("DROP TABLE message_traces",
                                           "CREATE VIEW message_traces AS SELECT 1 AS message_id, 2 AS trace"),
    "a column that is missing": _sql("ALTER TABLE messages DROP COLUMN error"),
    "a column under another name": _sql("ALTER TABLE messages RENAME COLUMN role TO evil"),
    "an index over an odd table": _sql("INSERT INTO messages_index (messages_index) VALUES ('delete-all')"),
    **{
        f"dates of {value}": _sql(f"UPDATE conversations SET created_at = {value}, updated_at = {value}",
                                  f"UPDATE messages SET created_at = {value}")
        for value in ("1e300", "-1e300", "9e999", "-9e999", "1e18", "-1e12", "0")
    },
    "a role nobody knows": _sql("UPDATE messages SET role = 'evil'"),
    "a status nobody knows": _sql("UPDATE messages SET status = 'evil'"),
    "an end nobody knows": _sql("UPDATE messages SET finish_reason = 'evil'"),
    "statistics that are no JSON": _sql("UPDATE messages SET statistics = '{' , drafting = '[1]'"),
    "statistics nested too deeply": _sql(f"UPDATE messages SET statistics = '{_DEEP}', drafting = '{_DEEP}'"),
    "statistics of odd types": _sql(
        """UPDATE messages SET statistics = '{"prompt_tokens": "x", "generated_tokens": 1e999}'"""
    ),
    "sampling out of range": _sql("""UPDATE conversations SET sampling = '{"temperature": -5, "max_tokens": 1e999}'"""),
    "sampling nested too deeply": _sql(f"UPDATE conversations SET sampling = '{_DEEP}'"),
    "texts that are no text": _sql("UPDATE messages SET text = CAST(x'fffeff00ff' AS TEXT)"),
    "texts with zero bytes": _sql("UPDATE messages SET text = 'a' || char(0) || 'b'"),
    "a title of 10 MB": _sql("UPDATE conversations SET title = hex(zeroblob(5000000)) WHERE id = 1"),
    "a title of controls": _sql("UPDATE conversations SET title = char(27, 10, 8238, 0, 65)"),
    "a text of 50 MB": _sql("UPDATE messages SET text = hex(zeroblob(25000000)) WHERE id = 9"),
    "a seed out of range": _sql("UPDATE messages SET seed = -9223372036854775808"),
    "an activation out of range": _sql("UPDATE messages SET activated = 9223372036854775807"),
    "ids at their end": _sql("INSERT INTO sqlite_sequence SELECT 'messages', 9223372036854775807 WHERE 0",
                             "UPDATE sqlite_sequence SET seq = 9223372036854775807"),
    "a trace of noise": _sql("INSERT INTO message_traces VALUES (2, randomblob(100000))"),
    "a trace of nothing": _sql("INSERT INTO message_traces VALUES (2, x'')"),
    "values of other types": _in_turn(
        _sql("UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = 'messages'", schema=True),
        _sql("UPDATE messages SET created_at = 'soon', activated = 'x', seed = 'y' WHERE id > 3"),
        _sql("UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE name = 'messages'", schema=True),
    ),
    "a schema that is no SQL": _sql("UPDATE sqlite_schema SET sql = 'evil' WHERE name = 'messages'", schema=True),
    "a schema that points elsewhere": _sql(
        "UPDATE sqlite_schema SET rootpage = 99999 WHERE name = 'messages'", schema=True
    ),
    "a path of 20,000 messages": _sql(
        "INSERT INTO messages (id, conversation_id, parent_id, activated, role, status, created_at, text)"
        " WITH RECURSIVE n (i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 21000)"
        " SELECT i, 1, CASE i WHEN 1000 THEN NULL ELSE i - 1 END, i, 'user', 'complete', 0, 'a' FROM n"
    ),
    "20,000 alternatives": _sql(
        "INSERT INTO messages (conversation_id, parent_id, activated, role, status, created_at, text)"
        " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        " SELECT 1, 1, i, 'assistant', 'complete', 0, 'a' FROM n"
    ),
    "a log of noise": _noise_beside("-wal"),
    "a shared memory file of noise": _noise_beside("-shm"),
    "a journal of noise": _noise_beside("-journal"),
    "a folder as the log": _beside("-wal", "a folder"),
    "a folder as the lock": _beside(".lock", "a folder"),
    "a FIFO as the lock": _beside(".lock", "a FIFO"),
    "a database of text": lambda path: path.write_text("no database"),
    **{f"bytes changed ({seed})": partial(flipped, seed=seed, count=64) for seed in range(12)},
    **{f"the first page changed ({seed})": partial(flipped, seed=seed, count=3, within=120) for seed in range(8)},
    **{f"cut short ({seed})": partial(cut, seed=seed) for seed in range(6)},
}  # fmt: skip


def _make(spoil: Spoil, folder: Path) -> Call:
    store = good_store(folder / "data" / "conversations.db")
    spoil(store)
    return Call(store=store, data=store.parent)


def _odd(put: Spoil, folder: Path) -> Call:
    store = folder / "data" / "conversations.db"
    store.parent.mkdir()
    put(store)
    return Call(store=store, data=store.parent)


def store_cases() -> Iterator[Case]:
    """Yield all cases of databases."""
    for name, spoil in SPOILED.items():
        yield Case(Kind.STORES, name, partial(_make, spoil))
    for what, put in ODD_FILES.items():
        yield Case(Kind.STORES, f"{what} as the database", partial(_odd, put))
