"""Organises the list of chats: pins, folders with their notes, the archive, the Trash and copies."""

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import Conversation
from rdchat.chat.notes import Note
from rdchat.chat.projects import Folder, Project
from rdchat.chat.storage import (
    FOLDER_COLUMNS,
    Database,
    erase_message,
    erasing_messages,
    expiry_limit,
    folder_from,
    folders_listed,
    insert_in_steps,
    listed_chats,
    read_chat,
    set_folder_files,
    store_project,
    text_column,
)
from rdchat.chat.summaries import SUMMARY_NOTE
from rdchat.chat.titles import NEW_FOLDER, tidy_title
from rdchat.errors import StorageError
from rdchat.work import Job

# Chats whose title was made from the prompt, so that the model may still write one.
_WITHOUT_TITLE = """
    SELECT id FROM conversations WHERE title_by = 'prompt' AND deleted_at IS NULL AND unlisted = 0
    ORDER BY updated_at DESC LIMIT 20
"""

# The kinds of text by others that a note may come from: ?1 is the chat, ?2 the folder, ?3 the note before a summary. A
# reply's `server` is empty for this computer.
_NOTE_SOURCE = """
    SELECT coalesce(group_concat(name, ' or '), '') FROM (
        SELECT 'a file' AS name WHERE EXISTS (SELECT 1 FROM message_files WHERE conversation_id = ?1)
            OR EXISTS (SELECT 1 FROM folder_files WHERE folder_id = ?2)
        UNION ALL SELECT 'a result of a tool' WHERE EXISTS (
            SELECT 1 FROM messages WHERE conversation_id = ?1 AND role = 'tool')
        UNION ALL SELECT 'a remote reply' WHERE EXISTS (
            SELECT 1 FROM messages
            WHERE conversation_id = ?1 AND text <> ''
                AND iif(json_valid(drafting), json_extract(drafting, '$.server'), '') <> '')
        UNION ALL SELECT DISTINCT origin FROM messages WHERE conversation_id = ?1 AND origin IS NOT NULL
        UNION ALL SELECT 'imported instructions' WHERE EXISTS (
            SELECT 1 FROM folders
            WHERE id = ?2 AND json_valid(project)
                AND json_extract(project, '$.imported') AND json_extract(project, '$.instructions') <> '')
        UNION ALL SELECT 'a summary of another chat' WHERE EXISTS (
            SELECT 1 FROM conversations WHERE id = ?1 AND instr(system_prompt, ?3)
            UNION ALL SELECT 1 FROM messages
            WHERE conversation_id = ?1 AND parent_id IS NULL AND context_cut IS NOT NULL)
        UNION ALL SELECT 'an earlier note' WHERE EXISTS (
            SELECT 1 FROM notes WHERE (folder_id IS ?2 OR folder_id IS NULL) AND source <> '' AND kept)
    )
"""
_ALL_NOTES = """
    SELECT n.text, n.folder_id, n.conversation_id, n.source,
        coalesce('the project “' || substr(f.name, 1, 1000) || '”', 'all chats'),
        coalesce(date(n.created_at, 'unixepoch', 'localtime'), 'an unknown day'),
        coalesce('the chat “' || substr(c.title, 1, 1000) || '”', iif(n.conversation_id, 'a deleted chat', '')),
        n.id, n.kept
    FROM notes n
    LEFT JOIN folders f ON f.id = n.folder_id
    LEFT JOIN conversations c ON c.id = n.conversation_id AND c.deleted_at IS NULL AND c.unlisted = 0
    ORDER BY n.id
"""
_KEEP_NOTE = """
    INSERT INTO notes (folder_id, conversation_id, created_at, source, text)
    SELECT ?1, (SELECT id FROM conversations WHERE id = ?2), ?3, ?4, ?5
    WHERE ?5 <> '' AND NOT EXISTS (SELECT 1 FROM notes WHERE folder_id IS ?1 AND text = ?5 AND kept)
"""
_NO_PROJECT = Project()


class ChatOrganiser:
    """Changes the list of chats, each time in one transaction. Raises StorageError as `ConversationStore` does.

    Args:
        database: The store's database.
        clock: Returns seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    # Chats

    def set_pinned(self, conversation_id: int, pinned: bool) -> None:
        """Pin or unpin a chat; a pin takes it out of the archive."""
        if pinned:
            self._set("pinned_at = coalesce(pinned_at, ?), archived_at = NULL", self._clock(), conversation_id)
        else:
            self._set("pinned_at = NULL", conversation_id)

    def set_archived(self, conversation_id: int, archived: bool) -> None:
        self._set("archived_at = ?", self._clock() if archived else None, conversation_id)

    def move(
        self, conversation_id: int, folder_id: int | None, pinned_at: float | None = None, *, archived: bool = False
    ) -> None:
        """Put a chat into a folder, or outside; by default it is unpinned and leaves the archive.

        Args:
            conversation_id: The chat.
            folder_id: The folder; None for outside.
            pinned_at: When it was pinned, by which pinned chats are sorted; None for not pinned.
            archived: Whether it is in the archive afterwards.
        """
        if folder_id is not None:
            self.read_folder(folder_id)
        archived_at = self._clock() if archived else None
        self._set("folder_id = ?, pinned_at = ?, archived_at = ?", folder_id, pinned_at, archived_at, conversation_id)

    def set_title_by_model(self, conversation_id: int, title: str) -> bool:
        """Set a title made by the model, unless it is empty; return whether the title changed.

        A title given by the person stays. The model is not asked again.
        """
        tidy = text_column(tidy_title(title))
        changed = self._database.execute(
            "UPDATE conversations SET title_by = 'model', title = coalesce(?, title)"
            " WHERE id = ? AND title_by = 'prompt' AND deleted_at IS NULL",
            tidy or None,
            conversation_id,
        )
        return changed > 0 and bool(tidy)

    def without_title(self) -> list[int]:
        """Return the newest chats whose title the model may still make, newest first."""
        return [row[0] for row in self._database.rows(_WITHOUT_TITLE)]

    def copy(
        self,
        conversation_id: int,
        title: str,
        last_id: int | None = None,
        on_end: Callable[[Any], object] | None = None,
    ) -> Job[int]:
        """Copy a chat with everything in it, as bulk work; the job's result is the copy's id, which is then listed.

        Args:
            conversation_id: The chat.
            title: Title of the copy.
            last_id: Copy only the path to this message; None copies all.
            on_end: Called on the writer's thread with the id or the error.
        """
        return self._database.run_bulk(self._copying(conversation_id, title, last_id), on_end)

    def _copying(self, conversation_id: int, title: str, last_id: int | None) -> Generator[object, None, int]:
        connection = self._database.connection
        now = self._clock()
        try:
            chat = read_chat(connection, conversation_id, last_id)
        except StorageError as error:
            raise StorageError("This chat no longer exists.", "Choose another one.") from error
        conversation = replace(
            chat.conversation,
            title=tidy_title(title),
            created_at=now,
            updated_at=now,
            pinned_at=None,
            archived=False,
        )
        # A message's `context_cut` hides it and those before it from the model. On the last message it would hide all
        # of the copy, so it is left out. The visible path ends with the message of the highest `activated`, so the last
        # message gets a number above all others; `insert_in_steps` numbers them anew from 1.
        if last_id is not None:
            end = replace(chat.messages[-1], context_cut=None, activated=1 << 62)
            chat = replace(chat, messages=(*chat.messages[:-1], end))
        copy_id = yield from insert_in_steps(connection, replace(chat, conversation=conversation))
        connection.execute("UPDATE conversations SET unlisted = 0 WHERE id = ?", (copy_id,))
        return copy_id

    # The Trash

    def deleted_chats(self) -> list[Conversation]:
        """Return the chats in the Trash, the last deleted first."""
        where = "deleted_at IS NOT NULL AND unlisted = 0 ORDER BY deleted_at DESC, id DESC"
        return listed_chats(self._database.rows, where)

    def schedule_erase(self, conversation_ids: Sequence[int]) -> None:
        """Delete chats for good: they disappear now, and `erase` frees their space."""
        sql = "UPDATE conversations SET unlisted = 1 WHERE id = ? AND deleted_at IS NOT NULL"
        self._database.write(lambda connection: connection.executemany(sql, [(each,) for each in conversation_ids]))

    def expire(self) -> None:
        """Delete for good the chats and folders that have been in the Trash for `TRASH_DAYS`."""

        def expire(connection: sqlite3.Connection) -> None:
            limit = expiry_limit(connection, self._clock(), "conversations", "folders")
            # The first two conditions are those of an index.
            too_old = "deleted_at IS NOT NULL AND unlisted = 0 AND deleted_at < ?"
            connection.execute(f"UPDATE conversations SET unlisted = 1 WHERE {too_old}", (limit,))
            connection.execute("DELETE FROM folders WHERE deleted_at < ?", (limit,))

        self._database.write(expire)

    def erase(self, on_end: Callable[[Any], object] | None = None) -> Job[None]:
        """Erase chats and messages that were deleted for good, and remains of a crash, as bulk work."""

        def end(outcome: Any) -> None:
            # SQLite's write-ahead log would keep their texts until rdchat quits.
            with suppress(sqlite3.Error):
                self._database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if on_end is not None:
                on_end(outcome)

        return self._database.run_bulk(self._erasing(), end)

    def _erasing(self) -> Generator[None]:
        database = self._database
        # With `unlisted <> 0` SQLite uses the partial index of hidden chats.
        rows = database.connection.execute("SELECT id FROM conversations WHERE unlisted = 1 AND unlisted <> 0")
        for chat in rows.fetchall():
            yield from erasing_chat(database, chat[0])
            database.connection.execute("DELETE FROM conversations WHERE id = ? AND unlisted = 1", chat)
            yield
        yield from erasing_messages(database, self._clock())
        digests = database.connection.execute("SELECT digest FROM file_images")
        database.images.keep_only(digest for (digest,) in digests)

    # Folders

    def folders(self) -> list[Folder]:
        """Return the folders by name; one whose parent is gone or nested itself is shown at the top."""
        return folders_listed(self._database.rows)

    def deleted_folders(self) -> list[Folder]:
        """Return the folders in the Trash, the last one deleted first."""
        where = "deleted_at IS NOT NULL ORDER BY deleted_at DESC, id DESC"
        return [folder_from(row) for row in self._database.rows(f"SELECT {FOLDER_COLUMNS} FROM folders WHERE {where}")]

    def read_folder(self, folder_id: int) -> Folder:
        """Return one folder; StorageError where it is deleted or never was."""
        folder = self.find_folder(folder_id)
        if folder is None:
            raise StorageError("This folder no longer exists.", "Choose another one.")
        return folder

    def find_folder(self, folder_id: int) -> Folder | None:
        """Return one folder; None where it is deleted or never was. Others may have megabytes, and are not read."""
        return next(iter(folders_listed(self._database.rows, "deleted_at IS NULL AND id = ?", folder_id)), None)

    def create_folder(
        self,
        name: str = NEW_FOLDER,
        parent_id: int | None = None,
        project: Project = _NO_PROJECT,
        files: Sequence[tuple[AttachedFile, str]] = (),
    ) -> Folder:
        """Make a folder, at the top or in another one; StorageError if it would be nested twice.

        Args:
            name: Its name.
            parent_id: The folder that it is in.
            project: What its chats share.
            files: Their files, each with its text.
        """
        if parent_id is not None and self.read_folder(parent_id).parent_id is not None:
            raise StorageError("A folder in a folder cannot hold others.", "Move it out first.")
        values = (parent_id, text_column(tidy_title(name)) or NEW_FOLDER, self._clock())
        sql = "INSERT INTO folders (parent_id, name, created_at) VALUES (?, ?, ?) RETURNING id"

        def create(connection: sqlite3.Connection) -> int:
            (folder_id,) = connection.execute(sql, values).fetchone()
            store_project(connection, folder_id, project)
            set_folder_files(connection, folder_id, files)
            return int(folder_id)

        return self.read_folder(self._database.write(create))

    def rename_folder(self, folder_id: int, name: str) -> None:
        """Rename a folder; an empty name changes nothing."""
        if tidy := text_column(tidy_title(name)):
            self._set_folder("name = ?", tidy, folder_id)

    def move_folder(self, folder_id: int, parent_id: int | None) -> None:
        """Move a folder into another one, or to the top; StorageError if it would be nested twice."""
        if parent_id is not None:
            holds = any(folder.parent_id == folder_id for folder in self.folders())
            if holds or parent_id == folder_id or self.read_folder(parent_id).parent_id is not None:
                raise StorageError("Folders can be nested only once.", "Choose a folder that is not in another one.")
        self._set_folder("parent_id = ?", parent_id, folder_id)

    def set_project(
        self, folder_id: int, project: Project, files: Sequence[tuple[AttachedFile, str]] | None = None
    ) -> None:
        """Replace what the chats of a folder share; the files, each with its text, where they are given.

        Then images that no chat or folder has any more are erased.
        """
        # Undo may still hold an erased folder. For it this raises: no text of it may come back.
        self.read_folder(folder_id)

        def set_project(connection: sqlite3.Connection) -> None:
            store_project(connection, folder_id, project)
            if files is not None:
                set_folder_files(connection, folder_id, files)

        self._database.write(set_project)
        self.erase()

    def set_expanded(self, folder_id: int, expanded: bool) -> None:
        self._set_folder("expanded = ?", int(expanded), folder_id)

    def delete_folder(self, folder_id: int) -> None:
        """Move a folder to the Trash; its chats stay in the list, and return to it when it is restored."""
        self._set_folder("deleted_at = ?", self._clock(), folder_id)

    def restore_folder(self, folder_id: int) -> None:
        self._set_folder("deleted_at = NULL", folder_id)

    def erase_folder(self, folder_id: int) -> None:
        """Delete a folder in the Trash for good, with its files and notes; its former chats stay outside of folders."""
        self._database.execute("DELETE FROM folders WHERE id = ? AND deleted_at IS NOT NULL", folder_id)

    # Notes

    def notes(self) -> list[Note]:
        """Return all notes, the newest last, with those from imports that nobody has kept."""
        return [Note(*row) for row in self._database.rows(_ALL_NOTES)]

    def keep_note(self, note: Note) -> None:
        """Store a note of any length as it is, unless it is blank or its project has one with the same text."""
        values = note.folder_id, note.chat_id, self._clock(), note.source, text_column(note.text.strip())

        def keep(connection: sqlite3.Connection) -> None:
            connection.execute(_KEEP_NOTE, values)
            connection.execute("DELETE FROM notes WHERE id = ? AND NOT kept", (note.id,))

        self._database.write(keep)

    def change_note(self, note_id: int, text: str) -> None:
        """Replace a note's text; a blank one deletes the note."""
        tidy = text_column(text.strip())
        sql = "UPDATE notes SET text = ?1 WHERE id = ?2" if tidy else "DELETE FROM notes WHERE ?1 = '' AND id = ?2"
        self._database.execute(sql, tidy, note_id)

    def note_source(self, chat_id: int, folder_id: int | None) -> str:
        """Return the source of a note that a model makes in a chat, perhaps of the project of a folder."""
        return str(self._database.rows(_NOTE_SOURCE, chat_id, folder_id, SUMMARY_NOTE)[0][0])

    def _set(self, assignment: str, *parameters: object) -> None:
        self._database.execute(f"UPDATE conversations SET {assignment} WHERE id = ?", *parameters)

    def _set_folder(self, assignment: str, *parameters: object) -> None:
        self._database.execute(f"UPDATE folders SET {assignment} WHERE id = ?", *parameters)


def erasing_chat(database: Database, conversation_id: int) -> Generator[None]:
    """Erase a chat's messages one by one, as bulk work."""
    # The newest come first, since a message is newer than its parent, except in trees made by hand.
    sql = "SELECT id FROM messages WHERE conversation_id = ? ORDER BY id DESC"
    for (message_id,) in database.connection.execute(sql, (conversation_id,)).fetchall():
        erase_message(database.connection, message_id)
        yield
