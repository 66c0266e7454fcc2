"""The database's tables. Version 1 is that of the first release, 0.1.0; later versions migrate from there."""

import sqlite3
from collections.abc import Sequence
from importlib import resources

APPLICATION_ID = 0x52444331
""""RDC1" identifies rdchat's databases, but not those of its development before 0.1.0."""

_FOLDER = resources.files("rdchat.chat.storage").joinpath("migrations")
_SCRIPTS = sorted(each.name for each in _FOLDER.iterdir() if each.name.endswith(".sql"))
MIGRATIONS = tuple(_FOLDER.joinpath(name).read_text("utf-8") for name in _SCRIPTS)
"""Script N-1 turns version N-1 into version N. A released script never changes: a new version adds a file."""


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
