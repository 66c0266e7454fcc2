"""Checks whether a file can be used as rdchat's database, migrates it, moves others aside, and writes a lost one again.

A file may have been made by hand: views, triggers and generated columns are code that SQLite runs. So a schema that is
not exactly what the migrations make is refused before any table is read. Nothing is ever overwritten.
"""

import sqlite3
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from importlib import resources
from pathlib import Path

from rdchat.chat.conversation import LARGEST_ID, Notice
from rdchat.files import companion, flush_to_disk, set_aside

APPLICATION_ID = 0x52444331
""""RDC1" identifies rdchat's databases, but not those of its development before 0.1.0."""
_FOLDER = resources.files("rdchat.chat.storage").joinpath("migrations")
_SCRIPTS = sorted(each.name for each in _FOLDER.iterdir() if each.name.endswith(".sql"))
MIGRATIONS = tuple(_FOLDER.joinpath(name).read_text("utf-8") for name in _SCRIPTS)
"""Script N-1 turns version N-1 into version N. A released script never changes: a new version adds a file."""
# This checks that the search indexes of titles, messages, summaries and names of files accept a word: triggers write to
# them when these rows are added. Nothing of the rows stays. FTS5 keeps new words in memory until the next savepoint, so
# `written` has it write them; without that, some damaged indexes would not fail here.
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
"""
LONGEST_VALUE = 64 << 20
"""Largest size of one text or trace, in bytes; SQLite's own limit is 1 GB."""
_LARGEST_COUNTER = 1 << 53
# Codes of errors that show a damaged file. SQLITE_ERROR is one: the statements here are right, so the file is wrong.
_DAMAGE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_TOOBIG,
}
# Whether an id or a counter is out of range. SQLite looks up each end of the messages' ids by itself, without a scan.
_NUMBERS_OUT_OF_RANGE = f"""
    SELECT EXISTS (SELECT 1 FROM sqlite_sequence WHERE typeof(seq) <> 'integer' OR seq NOT BETWEEN 0 AND {LARGEST_ID})
        OR EXISTS (SELECT 1 FROM conversations WHERE id NOT BETWEEN 1 AND {LARGEST_ID})
        OR EXISTS (SELECT 1 FROM messages WHERE id < 1)
        OR EXISTS (SELECT 1 FROM messages WHERE id > {LARGEST_ID})
        OR EXISTS (SELECT 1 FROM messages WHERE activated NOT BETWEEN 0 AND {_LARGEST_COUNTER})
"""
# Statements of every start: a value longer than `LONGEST_VALUE`, or an index of an unknown format, fails in the check.
_READ_AT_EVERY_START = (
    "SELECT max(length(title)), max(length(system_prompt)), max(length(sampling)) FROM conversations",
    "SELECT max(length(text)) FROM messages WHERE status = 'streaming'",
    "SELECT count(*) FROM titles_index WHERE titles_index MATCH 'a'",
    "SELECT 1 FROM messages_index WHERE messages_index MATCH 'a' LIMIT 1",
)
COMPANIONS = ("-wal", "-shm", "-journal")
"""Endings of a database's companion files."""
# Pages of a database that are copied before the next check for cancelling.
_PAGES = 2000


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the database's version; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Migrate the database to the newest version, each step in one transaction."""
    for version in range(schema_version(connection) + 1, len(migrations) + 1):
        script = f"BEGIN IMMEDIATE; {migrations[version - 1]}; PRAGMA user_version = {version}; COMMIT;"
        try:
            connection.executescript(script)
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def harden(connection: sqlite3.Connection) -> None:
    """Limit the size of values, and keep all statements, ours included, from changing the schema's own tables."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    # Until `trust`: SQLite before 3.41 considers the search index in our own triggers unsafe.
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, False)


def trust(connection: sqlite3.Connection) -> None:
    """Allow the triggers of a schema that was checked."""
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, True)


def address_to_read(path: Path) -> str:
    """Return the address by which SQLite reads a file that no process writes, such as a backup.

    Nothing is written beside it, unless a log is there: then the file alone may contain only a part of the data.
    """
    has_log = any(companion(path, log).exists() for log in ("-wal", "-journal"))
    return f"{path.absolute().as_uri()}?mode=ro{'' if has_log else '&immutable=1'}"


def is_special(path: Path) -> bool:
    """Return whether the path is a pipe, device or socket, also through a link: reading one may never end."""
    try:
        mode = path.stat().st_mode
    except OSError:
        # The file is missing or unreadable; opening it gives the reason.
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def why_unusable(connection: sqlite3.Connection, path: Path) -> str | None:
    """Return why the file cannot be used: `foreign`, `newer` or `damaged`; None if it can be.

    An empty file can be used: it becomes a database. Writes nothing; `harden` has made the connection safe.
    """
    try:
        version = schema_version(connection)
        ours = connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
        if not ours and not (empty and version == 0):
            return "foreign"
        if version > len(MIGRATIONS):
            return "newer"
        if version < 0 or not _is_intact(connection, path) or not has_schema(connection, MIGRATIONS[:version]):
            return "damaged"
        return None if empty or _is_sound(connection) else "damaged"
    except UnicodeDecodeError:
        # SQLite's message quotes a statement of the schema.
        return "damaged"
    except sqlite3.DatabaseError as error:
        if primary_code(error) in _DAMAGE:
            return "damaged"
        raise


def has_schema(connection: sqlite3.Connection, migrations: Sequence[str]) -> bool:
    """Return whether the schema is exactly what these migrations make; takes 4 ms."""
    try:
        present = _schema(connection)
        expected = _fresh_schema(tuple(migrations))
    except UnicodeDecodeError:
        # SQLite's message quotes a statement of the schema.
        return False
    # In a file made by hand, two tables may begin on the same page.
    roots = connection.execute("SELECT rootpage FROM sqlite_schema WHERE rootpage <> 0").fetchall()
    return present == expected and len(set(roots)) == len(roots)


def primary_code(error: sqlite3.Error) -> int:
    """Return the primary code of an SQLite error."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


@cache
def _fresh_schema(migrations: tuple[str, ...]) -> Mapping[tuple[str, str, str], str]:
    """Return what `_schema` returns for a new database."""
    with closing(sqlite3.connect(":memory:", autocommit=True)) as connection:
        migrate(connection, migrations)
        return _schema(connection)


def _schema(connection: sqlite3.Connection) -> dict[tuple[str, str, str], str]:
    """Return the statements of the schema by type, name and table, without statistics, which any tool may add."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat_'")
    return {(kind, name, table): " ".join((sql or "").split()) for kind, name, table, sql in rows}


def _is_intact(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file ends with a full page: SQLite reads a missing part of the last page as zeros.

    Half a page is normal if the app died during a checkpoint; then the log still has all of it.
    """
    log = companion(path, "-wal")
    if log.exists() and log.stat().st_size > 0:
        return True
    return bool(path.stat().st_size % connection.execute("PRAGMA page_size").fetchone()[0] == 0)


def _is_sound(connection: sqlite3.Connection) -> bool:
    """Check the pages of every table, the statements of every start, and the range of ids and counters.

    It takes 0.1 s for 100,000 messages.

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


def file_id(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at `path`, or None if there is none; takes 2 µs."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def restore_file(connection: sqlite3.Connection, path: Path, log: tuple[int, int] | None) -> Notice:
    """Write all data of `connection` to a new file at `path`, and close the connection.

    Args:
        connection: Connection to the file that was at `path`.
        path: Its folder exists.
        log: The `file_id` of the connection's own `-wal` file.

    Returns:
        A notice for the person.

    Raises:
        sqlite3.Error, OSError: If the new file cannot be written. Then the connection still works.
        StorageError: If the other file cannot be moved. Then the connection still works.
    """
    copy = path.with_name(f"{path.stem}-brought-back{path.suffix}")
    try:
        copy.unlink(missing_ok=True)
        copy_database(connection, copy)
        flush_to_disk(copy)
        # The copy contains our own log, and SQLite would replay it into any file at its path.
        wal = companion(path, "-wal")
        if file_id(wal) == log:
            wal.unlink(missing_ok=True)
        companion(path, "-shm").unlink(missing_ok=True)
        replaced = path.exists()
        # Without another file, only companions that are left over are moved.
        other = set_aside(path, "replaced", COMPANIONS)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    connection.close()  # SQLite sees that its file was moved, and leaves files at the old paths alone
    copy.replace(path)
    detail = f"{path} was deleted or moved while rdchat was open. rdchat wrote it again, and nothing is lost."
    if replaced:
        detail = (
            f"{path} was replaced while rdchat was open. Your chats were restored; the other file was kept as {other}."
        )
    return Notice("The file of your chats was restored", detail)


def copy_database(
    connection: sqlite3.Connection, path: Path, report: Callable[[float], object] = lambda _share: None
) -> None:
    """Copy a database as it is at one moment; an exception from `report`, which gets the share copied, ends it."""

    def step(_status: int, remaining: int, total: int) -> None:
        report(1 - remaining / max(total, 1))

    with closing(sqlite3.connect(path, autocommit=True)) as target:
        connection.execute("BEGIN")
        # From here on, what others write is not copied.
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        try:
            connection.backup(target, pages=_PAGES, progress=step, sleep=0)
        finally:
            connection.execute("ROLLBACK")
        # This makes it one file, without a log beside it.
        target.execute("PRAGMA journal_mode = DELETE")
