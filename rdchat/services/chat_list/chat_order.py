"""Commands for pins, folders, the archive, copies and the Trash, and their undo history.

They run on the main thread, except for copies and deletions for good, which may be of thousands of messages: the
store's writer thread does these in the background.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import Conversation
from rdchat.chat.projects import Folder, Project
from rdchat.chat.store import ConversationStore
from rdchat.errors import RdchatError, StorageError, StorageFullError, StorageLockedError
from rdchat.services.background_work import MainThread
from rdchat.services.storage_watch import StorageWatch

# An app that stays open for weeks empties its Trash of old items each hour.
_EXPIRY_MS = 3_600_000
# Characters of a title in a sentence about it, and of one that is copied.
_LONGEST_NAMED = 40
_LONGEST_COPIED = 180
# More undo steps than these are forgotten, the oldest first.
_MAX_STEPS = 100

type Step = Callable[[], object]
"""Undoes a command; may raise StorageError."""


class Location(StrEnum):
    """Which conversations the sidebar lists."""

    CHATS = "chats"
    ARCHIVE = "archive"
    TRASH = "trash"


class UndoHistory:
    """The undo steps since the app was started."""

    def __init__(self) -> None:
        # Each with the id of the chat that it is about, if any.
        self._steps: deque[tuple[Step, int | None]] = deque(maxlen=_MAX_STEPS)

    @property
    def last(self) -> Step | None:
        """The next step to undo."""
        return self._steps[-1][0] if self._steps else None

    def add_step(self, undo: Step, chat_id: int | None = None) -> None:
        """Add a step; one of a chat is forgotten with the chat (`forget_chat`)."""
        self._steps.append((undo, chat_id))

    def forget_chat(self, chat_id: int) -> None:
        """Forget the steps of a chat that is gone."""
        self._steps = deque((each for each in self._steps if each[1] != chat_id), _MAX_STEPS)

    def undo(self) -> None:
        """Undo the last step. If the disk is full or the store locked, the step is kept for another try.

        Raises:
            StorageError: If it cannot be undone, for example because the chat was deleted for good.
        """
        if self._steps:
            step = self._steps.pop()
            try:
                step[0]()
            except (StorageFullError, StorageLockedError):
                self._steps.append(step)
                raise


class ChatOrder(QObject):
    """Runs commands on chats and folders. `history` undoes all but expanding a folder and deleting for good.

    Args:
        store: The conversations.
        storage: Runs every command, and reports failures.

    Attributes:
        history: The undo steps since the app was started.
        folders: The folders at the last `read_folders`, by name.
    """

    changed = Signal()
    # The id of the copy.
    copied = Signal(int)
    # Describes a command that removed something from the list.
    undo_offered = Signal(str)

    def __init__(self, store: ConversationStore, storage: StorageWatch) -> None:
        super().__init__(storage)
        self._store = store
        self._storage = storage
        self._organiser = store.organiser
        self.history = UndoHistory()
        self.folders: tuple[Folder, ...] = ()
        self._main = MainThread(self)
        self._expiry = QTimer(self, interval=_EXPIRY_MS)
        self._expiry.timeout.connect(self.tidy_trash)

    def start_emptying_trash(self) -> None:
        """Empty the Trash of old items, now and each hour."""
        self.tidy_trash()
        self._expiry.start()

    def stop_bulk_work(self) -> None:
        """Stop the timer and bulk work, which the next start of the app finishes."""
        self._expiry.stop()
        self._main.refuse_calls()
        self._store.drop_bulk_work()

    def begin_anew(self) -> None:
        """Clear the history, after the store was replaced."""
        self._main.drop_callbacks()
        self.history = UndoHistory()

    def read_folders(self) -> None:
        """Read the folders. Raises StorageError."""
        self.folders = tuple(self._organiser.folders())

    def folder(self, folder_id: int | None) -> Folder | None:
        """Return a folder that is listed."""
        return next((folder for folder in self.folders if folder.id == folder_id), None)

    # Conversations

    def set_pinned(self, chat: Conversation, pinned: bool) -> None:
        self.do(partial(self._organiser.set_pinned, chat.id, pinned), partial(self._put_back, chat))

    def set_archived(self, chat: Conversation, archived: bool) -> None:
        """Put a conversation into the archive, or back into the list."""
        act = partial(self._organiser.set_archived, chat.id, archived)
        if self.do(act, partial(self._put_back, chat)) and archived:
            self.undo_offered.emit(f"Archived {named(chat.title)}")

    def move(self, chat: Conversation, folder_id: int | None) -> None:
        """Move a conversation to a folder or to the top level; it is then neither pinned nor archived."""
        if chat.folder_id != folder_id or chat.pinned_at is not None or chat.archived:
            act = partial(self._organiser.move, chat.id, folder_id)
            self.do(act, partial(self._put_back, chat))

    def _put_back(self, chat: Conversation) -> None:
        """Undo a change of a conversation's folder, pin or archive; without its folder it goes to the top level."""
        folder_id = chat.folder_id if self.folder(chat.folder_id) else None
        self._organiser.move(chat.id, folder_id, chat.pinned_at, archived=chat.archived)

    def duplicate(self, chat: Conversation) -> None:
        """Copy a conversation; `copied` is emitted when the copy is listed."""
        self._copy(chat, _copy_names(chat.title, "{0} copy{1}"))

    def branch(self, chat: Conversation, message_id: int) -> None:
        """Copy a conversation up to a message; `copied` is emitted when the copy is listed."""
        self._copy(chat, _copy_names(chat.title, "Branch{1} of {0}"), message_id)

    def _copy(self, chat: Conversation, names: Iterator[str], last_id: int | None = None) -> None:
        """Copy a conversation, up to a message if one is given, under the first name that is free."""

        def end(copy_id: int | RdchatError) -> None:
            if isinstance(copy_id, RdchatError):
                self._report(copy_id)
            else:
                self.history.add_step(lambda: self._store.delete_conversation(copy_id))
                self.changed.emit()
                self.copied.emit(copy_id)

        title = next(name for name in names if not self._store.has_title(name))
        self._organiser.copy(chat.id, title, last_id, self._main.bring(end, once=True))

    def _report(self, outcome: object) -> None:
        """Report the outcome of work in the background, if it is an error; a cancelled one needs no report."""
        if isinstance(outcome, StorageError):
            self._storage.report(outcome)

    # Folders

    def create_folder(
        self, name: str, parent_id: int | None = None, chat: Conversation | None = None, **shared: Any
    ) -> Folder | None:
        """Create a folder, perhaps with a conversation in it; return None if that failed.

        Args:
            name: Its name.
            parent_id: The folder that it is in.
            chat: The conversation.
            shared: The project and the files that the folder's chats share.
        """
        made: list[Folder] = []

        def act() -> None:
            made.append(self._organiser.create_folder(name, parent_id, **shared))
            if chat is not None:
                self._organiser.move(chat.id, made[0].id, archived=chat.archived)

        def undo() -> None:
            if chat is not None:
                self._put_back(chat)
            self._organiser.delete_folder(made[0].id)

        self.do(act, undo)
        return made[0] if made else None

    def rename_folder(self, folder: Folder, name: str) -> None:
        rename = partial(self._organiser.rename_folder, folder.id)
        self.do(partial(rename, name), partial(rename, folder.name))

    def move_folder(self, folder: Folder, parent_id: int | None) -> None:
        """Move a folder into another one, or to the top level."""
        if folder.parent_id != parent_id:
            move = partial(self._organiser.move_folder, folder.id)
            self.do(partial(move, parent_id), partial(move, folder.parent_id))

    def may_hold(self, parent: Folder, folder: Folder) -> bool:
        """Return whether a folder may be moved into another; folders nest one level deep."""
        holds = any(each.parent_id == folder.id for each in self.folders)
        return parent.parent_id is None and parent.id != folder.id and not holds

    def set_project(
        self, folder: Folder, project: Project, files: Sequence[tuple[AttachedFile, str]] | None = None
    ) -> None:
        """Replace what the chats of a folder share; the files, each with its text, where they are given.

        If the texts of the present files cannot be read, undoing this leaves the files as they are then.
        """
        new = folder.files if files is None else tuple(file for file, _ in files)
        if (project, new) != (folder.project, folder.files):
            change = partial(self._organiser.set_project, folder.id)
            before = self._storage.read_or_default(
                lambda: [(file, self._store.file_text(file)) for file in folder.files], None
            )
            self.do(partial(change, project, files), partial(change, folder.project, before))

    def set_expanded(self, folder: Folder, expanded: bool) -> None:
        with self._storage.writing():
            self._organiser.set_expanded(folder.id, expanded)
        self.changed.emit()

    def delete_folder(self, folder: Folder) -> None:
        """Move a folder to the Trash; its chats stay in the list."""
        organiser = self._organiser
        if self.do(partial(organiser.delete_folder, folder.id), partial(organiser.restore_folder, folder.id)):
            self.undo_offered.emit(f"Deleted the folder {named(folder.name)}; its chats are kept")

    # The Trash

    def restore_chat(self, chat: Conversation) -> None:
        """Restore a conversation from the Trash."""
        store = self._store
        self.do(partial(store.restore_conversation, chat.id), partial(store.delete_conversation, chat.id))

    def restore_folder(self, folder: Folder) -> None:
        """Restore a folder from the Trash, with its chats."""
        organiser = self._organiser
        self.do(partial(organiser.restore_folder, folder.id), partial(organiser.delete_folder, folder.id))

    def erase(self, chats: Sequence[Conversation], folders: Sequence[Folder] = ()) -> None:
        """Delete conversations and folders of the Trash for good."""
        with self._storage.writing():
            self._organiser.schedule_erase([chat.id for chat in chats])
            for folder in folders:
                self._organiser.erase_folder(folder.id)
            self._make_room()
        self.changed.emit()

    def tidy_trash(self) -> None:
        """Delete old items of the Trash for good, and finish deletions that a crash interrupted."""
        with self._storage.writing():
            self._organiser.expire()
            self._make_room()

    def _make_room(self) -> None:
        """Erase what was scheduled for that, in the background."""
        self._organiser.erase(self._main.bring(self._report, once=True))

    def do(self, act: Callable[[], object], undo: Step) -> bool:
        """Run a command and add it to the history; return whether it succeeded."""
        before = self.history.last
        # A failure skips the rest of the block, so that no step is added.
        with self._storage.writing():
            act()
            self.history.add_step(undo)
        self.changed.emit()
        return self.history.last is not before


def named(title: str) -> str:
    """Return a title in quotes, shortened if it is long."""
    return f"“{title}”" if len(title) <= _LONGEST_NAMED else f"“{title[: _LONGEST_NAMED - 1]}…”"


def _copy_names(title: str, form: str) -> Iterator[str]:
    """Yield `Title copy`, `Title copy 2` and so on, for the form `{0} copy{1}`."""
    # The store would cut the end of a longer name.
    title = title[:_LONGEST_COPIED]
    for number in count(1):
        yield form.format(title, f" {number}" if number > 1 else "")
