"""Cases of the conversations' database: trees that are none, odd versions and tables, values out of range."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile.case import Call, Case, Kind
from tests.hostile.data import expanded, read
from tests.hostile.harm import ODD_FILES, cut, flipped, with_odd_file
from tests.stores import connect_by_hand

Spoil = Callable[[Path], object]  # takes the database's path
_CHATS = 12
_TURNS = 8


def good_store(path: Path) -> Path:
    """Make a database of some chats, with alternatives, through the store itself."""
    from rdchat.chat.store import ConversationStore
    from rdchat.inference.api import Role

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


def odd_beside(suffix: str, what: str) -> Spoil:
    """Put one of `ODD_FILES` in the place of a file, or of one that belongs to it, which has its name and a suffix."""
    return lambda path: with_odd_file(path.name + suffix, what)(path.parent)


def _noise_beside(suffix: str) -> Spoil:
    return lambda path: path.with_name(path.name + suffix).write_bytes(bytes(range(256)) * 500)


def _listed(written: Any) -> Spoil:
    """Return what a case of `cases/stores.json` does: its statements, which may write to the schema itself."""
    schema = isinstance(written, dict)
    return _sql(*expanded(written["schema"] if schema else written), schema=schema)


SPOILED: Mapping[str, Spoil] = {
    **{name: _listed(written) for name, written in read("stores").items()},
    "values of other types": _in_turn(
        _sql("UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = 'messages'", schema=True),
        _sql("UPDATE messages SET created_at = 'soon', activated = 'x', seed = 'y' WHERE id > 3"),
        _sql("UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE name = 'messages'", schema=True),
    ),
    "a log of noise": _noise_beside("-wal"),
    "a shared memory file of noise": _noise_beside("-shm"),
    "a journal of noise": _noise_beside("-journal"),
    "a folder as the log": odd_beside("-wal", "a folder"),
    "a folder as the lock": odd_beside(".lock", "a folder"),
    "a FIFO as the lock": odd_beside(".lock", "a FIFO"),
    "a database of text": lambda path: path.write_text("no database"),
    **{f"bytes changed ({seed})": partial(flipped, seed=seed, count=64) for seed in range(12)},
    **{f"the first page changed ({seed})": partial(flipped, seed=seed, count=3, within=120) for seed in range(8)},
    **{f"cut short ({seed})": partial(cut, seed=seed) for seed in range(6)},
}  # fmt: skip


def _make(spoil: Spoil, folder: Path) -> Call:
    store = good_store(folder / "data" / "conversations.db")
    spoil(store)
    return Call(store=store, data=store.parent)


def store_cases() -> Iterator[Case]:
    """Yield all cases of databases."""
    for name, spoil in SPOILED.items():
        yield Case(Kind.STORES, name, partial(_make, spoil))
    for what in ODD_FILES:
        yield Case(Kind.STORES, f"{what} as the database", partial(_make, odd_beside("", what)))
