"""Checks whether a file can be used as rdchat's database, before anything in it is run or written.

A file may have been made by hand: views, triggers and generated columns are code that SQLite runs. So a schema that is
not exactly what the migrations make is refused before any table is read.
"""

import sqlite3
import stat
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from rdchat.chat.storage.schema import APPLICATION_ID, migrate, schema_version

WRITE_CHECK = """
    SAVEPOINT write_check;
    INSERT INTO conversations (id, title, created_at, updated_at) VALUES (0, 'a', 0, 0);
    INSERT INTO messages (id, conversation_id, activated, role, status, created_at, text, context_cut)
        VALUES (0, 0, 0, 'user', 'complete', 0, 'a', '{"summary":"a"}');
    INSERT INTO file_texts (digest, text) VALUES ('a', 'a');
    INSERT INTO message_files (message_id, conversation_id, position, digest, kind, characters, taken, note, name)
        VALUES (0, 0, 0, 'a', 'text', 1, '', '', 'a');
    SAVEPOINT written;
    ROLLBACK TO write_check;
    RELEASE write_check;
"""  # checks that the search index accepts a word; nothing of it stays

LONGEST_VALUE = 64 << 20  # bytes of one text or trace; SQLite's own limit is 1 GB
_LARGEST_ID = 1 << 30  # Qt's signals carry ids as 32-bit integers
_LARGEST_COUNTER = 1 << 53

# SQLITE_ERROR is included because this module's statements are right: where one fails, the file is wrong
_DAMAGE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_TOOBIG,
}
_NUMBERS_OUT_OF_RANGE = f"""
    SELECT EXISTS (SELECT 1 FROM sqlite_sequence WHERE typeof(seq) <> 'integer' OR seq NOT BETWEEN 0 AND {_LARGEST_ID})
        OR EXISTS (SELECT 1 FROM conversations WHERE id NOT BETWEEN 1 AND {_LARGEST_ID})
        OR EXISTS (SELECT 1 FROM messages WHERE id < 1) OR EXISTS (SELECT 1 FROM messages WHERE id > {_LARGEST_ID})
        OR EXISTS (SELECT 1 FROM messages WHERE activated NOT BETWEEN 0 AND {_LARGEST_COUNTER})
"""
_READ_AT_EVERY_START = (
    "SELECT max(length(title)), max(length(system_prompt)), max(length(sampling)) FROM conversations",
    "SELECT max(length(text)) FROM messages WHERE status = 'streaming'",
    "SELECT count(*) FROM titles_index WHERE titles_index MATCH 'a'",
    "SELECT 1 FROM messages_index WHERE messages_index MATCH 'a' LIMIT 1",
)  # a value longer than `LONGEST_VALUE`, or an index of an unknown format, fails here instead of later


def harden(connection: sqlite3.Connection) -> None:
    """Limit the size of values, and keep all statements, ours included, from changing the schema's own tables."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    # Until `trust`: SQLite before 3.41 considers the search index in our own triggers unsafe.
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, False)


def trust(connection: sqlite3.Connection) -> None:
    """Allow the triggers of a schema that was found to be ours."""
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, True)


def address_to_read(path: Path) -> str:
    """Return the address by which SQLite reads a file without writing beside it, unless a log is there.

    With a log, the file alone may contain only a part of the data.
    """
    has_log = any(path.with_name(f"{path.name}-{log}").exists() for log in ("wal", "journal"))
    return f"{path.absolute().as_uri()}?mode=ro{'' if has_log else '&immutable=1'}"


def is_special(path: Path) -> bool:
    """Return whether the path is a pipe, device or socket, also through a link: reading one may never end."""
    try:
        mode = path.stat().st_mode
    except OSError:  # missing or unreadable: opening it gives the reason
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def why_unusable(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> str | None:
    """Return a word for why the file cannot be used, or None. Writes nothing.

    Args:
        connection: A connection to the file, made safe by `harden`.
        path: The file.
        migrations: The migrations that this version knows.
    """
    try:
        version = schema_version(connection)
        ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
        if not ours and not (empty and version == 0):
            return "foreign"
        if version > len(migrations):
            return "newer"
        if version < 0 or not _is_intact(connection, path) or not has_schema(connection, migrations[:version]):
            return "damaged"
        return None if empty or _is_sound(connection) else "damaged"
    except UnicodeDecodeError:  # in SQLite's message, which quotes a statement of the schema
        return "damaged"
    except sqlite3.DatabaseError as error:
        if primary_code(error) in _DAMAGE:
            return "damaged"
        raise


def has_schema(connection: sqlite3.Connection, migrations: Sequence[str]) -> bool:
    """Return whether the schema is exactly what these migrations make; takes 4 ms."""
    try:
        present, expected = _schema(connection), _fresh_schema(tuple(migrations))
    except UnicodeDecodeError:  # in SQLite's message, which quotes a statement of the schema
        return False
    roots = connection.execute("SELECT rootpage FROM sqlite_schema WHERE rootpage <> 0").fetchall()
    return present == expected and len(set(roots)) == len(roots)


def primary_code(error: sqlite3.Error) -> int:
    """Return the primary code of an SQLite error."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


@cache
def _fresh_schema(migrations: tuple[str, ...]) -> Mapping[tuple[str, str, str], str]:
    connection = sqlite3.connect(":memory:", autocommit=True)
    try:
        migrate(connection, migrations)
        return _schema(connection)
    finally:
        connection.close()


def _schema(connection: sqlite3.Connection) -> dict[tuple[str, str, str], str]:
    """Return the statements of the schema by type, name and table, without statistics, which any tool may add."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat_'")
    return {(kind, name, table): " ".join((sql or "").split()) for kind, name, table, sql in rows}


def _is_intact(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file ends with a full page: SQLite reads a missing part of the last page as zeros.

    Half a page is normal if the app died during a checkpoint; then the log still has all of it.
    """
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > 0:
        return True
    return bool(path.stat().st_size % connection.execute("PRAGMA page_size").fetchone()[0] == 0)


def _is_sound(connection: sqlite3.Connection) -> bool:
    """Check the pages of every table; takes 0.1 s for 100,000 messages.

    A check of the whole file would, in newer versions of SQLite, also read the search index word by word, for 0.8 s.
    """
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    if any(connection.execute(f"PRAGMA quick_check('{name}')").fetchone()[0] != "ok" for (name,) in tables):
        return False
    for statement in _READ_AT_EVERY_START:
        connection.execute(statement).fetchall()
    return not connection.execute(_NUMBERS_OUT_OF_RANGE).fetchone()[0]
