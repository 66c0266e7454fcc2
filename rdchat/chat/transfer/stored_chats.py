"""Finds and reads chats in another database of rdchat, such as one that an older version moved aside."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from rdchat.chat.storage.connections import COMPANIONS, reading
from rdchat.chat.storage.file_check import is_special
from rdchat.chat.storage.set_aside import put_aside, set_aside
from rdchat.chat.storage.whole_chat import DamagedChatError, WholeChat, read_chat, visible_ids
from rdchat.chat.transfer.backup_file import DATABASE
from rdchat.chat.transfer.reports import TaskProgress
from rdchat.chat.transfer.restore import PREPARED, prepare_in
from rdchat.chat.transfer.source_files import UnreadableFileError
from rdchat.errors import StorageError, StorageFullError

_TITLE = "SELECT substr(title, 1, 200) FROM conversations WHERE id = ?"
_MAGIC = b"SQLite format 3\0"


def is_database(path: Path) -> bool:
    """Tell whether a file is a database, of whomever."""
    if is_special(path) or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:  # reading it says what is wrong
        return False


def stored_chats(path: Path, progress: TaskProgress) -> Iterator[tuple[float, str, Callable[[], WholeChat]]]:
    """Yield the chats of a database that are not in its bin, as `importing.Chats`; nothing is written to it.

    Args:
        path: The database, of this version or an older one.
        progress: Of the import; it stops where that is cancelled.

    Raises:
        UnreadableFileError: If it is damaged, none of ours, or of a newer version.
        StorageFullError: If the disk for temporary files is full.
    """
    with tempfile.TemporaryDirectory(prefix="rdchat-") as folder:
        try:
            prepare_in(path, Path(folder), TaskProgress(progress.job, silent=True))  # a copy, of this version
        except StorageFullError:
            raise
        except StorageError as error:
            raise UnreadableFileError(error.message) from error
        with reading(Path(folder) / PREPARED / DATABASE) as connection:
            ids = visible_ids(connection)
            for place, conversation in enumerate(ids):
                title = connection.execute(_TITLE, (conversation,)).fetchone()[0]
                yield place / len(ids), title, partial(_read, connection, conversation)


def _read(connection: sqlite3.Connection, conversation: int) -> WholeChat:
    try:
        return read_chat(connection, conversation)
    except (sqlite3.Error, StorageError) as error:
        raise DamagedChatError("It cannot be read") from error


def readable_again(database: Path) -> list[Path]:
    """Return the files that an older version has put aside as too new for it, and that this one can read.

    Args:
        database: The store beside which they are; it need not be open.
    """
    return [each for each in put_aside(database, "newer") if _is_readable(each)]


def leave_aside(database: Path, path: Path) -> None:
    """Keep a file of `readable_again` under a name by which it is not found any more.

    Raises:
        StorageError: If it cannot be renamed.
    """
    set_aside(path, "kept", COMPANIONS, named_as=database)


def _is_readable(path: Path) -> bool:
    with suppress(StorageError, UnicodeDecodeError), reading(path, older=True):
        return True
    return False
