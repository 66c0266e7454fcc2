"""Makes the folders, projects and notes of an imported file beside one's own, which stay as they are."""

import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count

from rdchat.chat.projects import Folder, Project
from rdchat.chat.storage import FullChat, file_from, folders_listed, rows_of, store_project, text_column
from rdchat.chat.titles import NEW_FOLDER, tidy_title
from rdchat.wording import counted

_MAKE = "INSERT INTO folders (parent_id, name, created_at) VALUES (?, ?, ?) RETURNING id"
# Gives the files of a hidden chat to a folder.
_TAKE_FILES = """
    INSERT INTO folder_files (folder_id, position, digest, kind, characters, taken, note, name)
    SELECT ?, position, digest, kind, characters, taken, note, name FROM message_files WHERE conversation_id = ?
"""
# Its files as `file_from` reads them: what came of them may be less than the import's file names.
_STORED = """
    SELECT message_id, name, kind, digest, characters, taken, note, NULL, NULL FROM message_files
    WHERE conversation_id = ? ORDER BY position
"""
# The chats of a folder, and of those inside.
_COUNT = """
    SELECT count(*) FROM conversations
    WHERE folder_id = ?1 OR folder_id IN (SELECT id FROM folders WHERE parent_id = ?1)
"""
_ADD_NOTE = """
    INSERT INTO notes (folder_id, text, created_at, source, kept) VALUES (?, ?, ?, 'an import', 0) RETURNING id
"""
_PLAIN = Folder(0, "")
type _Place = tuple[int | None, str]
type _Contents = tuple[bool, str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class ImportedFolder:
    """A folder that an import made.

    Attributes:
        id: The primary key.
        gain: Whose chats have what, in sentences.
    """

    id: int
    gain: str


class ImportedFolders:
    """Finds the folders of a file in the store, or makes them.

    A folder of one's own is taken only if it is plain, as the one in the file, or if it is the same project: one with
    the same name, instructions and files, from an earlier import. Otherwise the new one is called `Work 2`.

    Args:
        connection: The writer's.
        keys: Folders by the keys of projects of this import; those of this file are added.

    Attributes:
        notes: Ids of the notes that were added; they count once the person keeps them.
    """

    def __init__(self, connection: sqlite3.Connection, keys: dict[str, int | None]) -> None:
        self._connection = connection
        self._keys = keys
        # By the id of the folder around them, and their name.
        self._there = defaultdict[_Place, list[Folder]](list)
        for folder in folders_listed(rows_of(connection)):
            self._there[folder.parent_id, folder.name].append(folder)
        # By the folder around them and a name in the file: ids by contents, of the folders with this name alone,
        # and with the numbers up to the next one.
        self._same = defaultdict[_Place, dict[_Contents, int]](dict)
        self._next = defaultdict[_Place, Iterator[int]](partial(count, 1))
        # Ids by the names in the file, the outer one first.
        self._ids: dict[Sequence[str], int] = {}
        # The folders that were made, each with its name in the file.
        self._made: list[tuple[Folder, str]] = []
        self.notes: list[int] = []

    def add_project(self, hidden: int, chat: FullChat) -> None:
        """Make a project with its notes, behind the project of the folder around it.

        Args:
            hidden: Id of the hidden chat that has the project's files.
            chat: The project as it was read. Without a folder it has notes alone.
        """
        folder_id = None
        if chat.folder:
            project = Project(text_column(chat.conversation.system_prompt or ""), imported=True)
            files = tuple(map(file_from, self._connection.execute(_STORED, (hidden,))))
            folder_id = self._find(chat.folder, Folder(0, "", project=project, files=files), hidden)
        self._keys[chat.key] = folder_id
        for key, text in chat.notes:
            note = (self._keys.get(key or chat.key), text_column(text.strip()))
            if note[1] and note not in self._known_notes:
                self._known_notes.add(note)
                self.notes += self._connection.execute(_ADD_NOTE, (*note, time.time())).fetchone()

    def add_chat(self, conversation_id: int, names: Sequence[str]) -> None:
        """Put a chat into the folder with these names, the outer one first."""
        sql = "UPDATE conversations SET folder_id = ? WHERE id = ?"
        self._connection.execute(sql, (self._find(names), conversation_id))

    def made(self) -> Iterator[ImportedFolder]:
        """Yield the folders that were made."""
        for folder, wanted in self._made:
            (chats,) = self._connection.execute(_COUNT, (folder.id,)).fetchone()
            gain = f"“{folder.name}”: {counted(chats, 'imported chat')} with {folder.description or 'nothing shared'}."
            beside = "" if folder.name == wanted else f" Your own “{wanted}” stays as it is."
            yield ImportedFolder(folder.id, gain + beside)

    @cached_property
    def _known_notes(self) -> set[tuple[int | None, str]]:
        """The notes that are stored, each behind its folder."""
        return {*self._connection.execute("SELECT folder_id, text FROM notes")}

    def _find(self, names: Sequence[str], theirs: Folder = _PLAIN, hidden: int = 0) -> int:
        """Return the id of a folder of the file: that of its first project, unless another one is given."""
        if theirs is _PLAIN and names in self._ids:
            return self._ids[names]
        parent_id = self._find(names[:-1]) if names[1:] else None
        wanted = text_column(tidy_title(names[-1])) or NEW_FOLDER
        same = self._same[parent_id, wanted]
        contents = _contents(theirs)
        # A file may have thousands of projects with one name: each name is compared once.
        while contents not in same:
            number = next(self._next[parent_id, wanted])
            name = wanted if number == 1 else f"{wanted} {number}"
            there = self._there[parent_id, name]
            if not there:
                (folder_id,) = self._connection.execute(_MAKE, (parent_id, name, time.time())).fetchone()
                store_project(self._connection, folder_id, theirs.project)
                self._connection.execute(_TAKE_FILES, (folder_id, hidden))
                there.append(replace(theirs, id=folder_id, name=name))
                self._made.append((there[0], wanted))
            for each in there:
                same.setdefault(_contents(each), each.id)
        # Of several projects with a name, the first one has the chats.
        self._ids.setdefault(names, same[contents])
        return same[contents]


def _contents(folder: Folder) -> _Contents:
    """Return what makes a folder of one's own and that of a file the same."""
    return folder.is_project, folder.project.instructions.strip(), frozenset(file.digest for file in folder.files)
