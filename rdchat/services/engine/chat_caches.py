"""Controls the KV caches of chats, which spare a chat from being read again.

The engine makes and uses them. `DiskCacheControl` says where those on disk are kept, and removes them;
`MemoryCacheControl` limits the memory of the others. Both live on the main thread.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat import paths
from rdchat.chat.conversation import Conversation, is_temporary
from rdchat.chat.notes import Note
from rdchat.chat.projects import Folder
from rdchat.chat.settings import Settings
from rdchat.chat.storage import chats_with_caches
from rdchat.chat.store import ConversationStore
from rdchat.errors import RdchatError
from rdchat.files import cache_folders
from rdchat.inference.api import CacheFolder, PrefixCacheFacts
from rdchat.inference.vision.image_process import shared_images
from rdchat.services.background_work import BackgroundWork
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.engine.engine_request import EngineEvent, LimitPrefixCaches
from rdchat.services.storage_watch import SettingsControl

# Changes of the chats within this time are tidied up after together.
_TIDY_MS = 500


class DiskCacheControl(QObject):
    """Says where the engine keeps the KV caches of chats, and removes those of chats that are deleted or have it off.

    Args:
        store: The chats.
        settings: Whether caches are kept, and how much.

    Attributes:
        bytes: Size of all caches when they were looked at last.
    """

    changed = Signal()

    def __init__(self, store: ConversationStore, settings: SettingsControl) -> None:
        super().__init__(settings)
        self._store = store
        self._settings = settings
        self.bytes = 0
        self._work = BackgroundWork("kept caches", self)
        self._timer = QTimer(self, singleShot=True, interval=_TIDY_MS)
        self._timer.timeout.connect(self.tidy)
        settings.changed.connect(self.tidy_soon)

    def folder(
        self, chat: Conversation, project: Folder | None = None, notes: Iterable[Note] | None = None
    ) -> CacheFolder | None:
        """Return where the caches of a chat are kept, and create the folders; None for nowhere. On any thread.

        What the chat shares with others is kept in a folder of its project, if that has files.

        Args:
            chat: The chat.
            project: Its project.
            notes: The notes in its prompt; None for all of its project.
        """
        if is_temporary(chat.id) or not (self._settings.values.keep_caches and chat.own.keep_cache):
            return None
        folder = self._path(chat.id, chat.created_at)
        shared = self._project_path(project) if project is not None and project.files else None
        projects = [project] if project is not None else []
        if notes is None:
            notes = _notes_of(projects, self._store.organiser.notes())
        try:
            cache_folders.make_folder(folder)
            cache_folders.note_sources(folder, _sources(projects, notes))
            if shared is not None:
                cache_folders.make_folder(shared)
        except OSError:
            return None
        return CacheFolder(folder, self._settings.values.kept_caches_gb * 10**9, shared)

    def _project_path(self, project: Folder) -> Path:
        """Return the folder of a project's caches: another one after each change of its files or options."""
        version = (project.project, [(file.digest, file.name) for file in project.files])
        return self._path(f"project {project.id}", version)

    def _path(self, owner: int | str, version: object) -> Path:
        """Return the folder of the caches of a chat, by its id and date, or of a project."""
        return paths.chat_caches_dir() / cache_folders.folder_name(self._store.path, owner, version)

    def remove_chat(self, chat: Conversation) -> None:
        """Remove the caches of a chat; call it before the text goes that they are computed with, in case of a crash."""
        cache_folders.set_apart(self._path(chat.id, chat.created_at))
        self.tidy_soon()

    def remove_all(self) -> None:
        """Remove the caches of all chats."""
        self._work.do(partial(cache_folders.remove_folders, paths.chat_caches_dir()), lambda _: self.tidy())

    def tidy_soon(self) -> None:
        """Call `tidy` soon."""
        if not self._timer.isActive():
            self._timer.start()

    def tidy(self) -> None:
        """Remove the caches that must not be kept any more, and measure the rest; `changed` follows.

        Kept are those of chats and of projects. Of the chats' only those whose every source is still there: notes,
        files and instructions of projects. Nothing at all is kept if the settings say so.
        """
        top = paths.chat_caches_dir()
        settings = self._settings.values

        def remaining() -> list[str]:
            """Return the names of the folders to keep."""
            if not settings.keep_caches:
                return []
            # The sources come first: a text that is added meanwhile is then not taken for one that is gone.
            sources = cache_folders.sources_in(top)
            organiser = self._store.organiser
            folders = organiser.folders()
            there = _sources(folders, _notes_of(folders, organiser.notes()))
            chats = (self._path(*chat).name for chat in chats_with_caches(self._store.rows))
            projects = [self._project_path(each).name for each in folders if each.files]
            return [*projects, *(each for each in chats if sources.get(each, there) <= there)]

        def tidy() -> int:
            cache_folders.remove_folders(top, self._store.path, remaining)
            if settings.keep_caches and top.exists():
                cache_folders.make_room(top, settings.kept_caches_gb * 10**9)
            return cache_folders.used_bytes(top)

        self._work.do(tidy, self._take)

    def _take(self, size: int | RdchatError) -> None:
        if isinstance(size, int):
            self.bytes = size
            self.changed.emit()

    def end_work(self) -> None:
        """End the work; what is to be removed soon is removed now."""
        if self._timer.isActive():
            self._timer.stop()
            self.tidy()
        self._work.finish_work()


def _notes_of(folders: Iterable[Folder], notes: Iterable[Note]) -> list[Note]:
    """Return the notes that chats of folders have, and those of all chats."""
    ids = {None, *(folder.id for folder in folders)}
    return [note for note in notes if note.kept and note.folder_id in ids]


def _sources(folders: Iterable[Folder], notes: Iterable[Note]) -> set[str]:
    """Return hashes of the texts of projects, and of notes."""
    texts: list[object] = [(note.id, note.text) for note in notes]
    for folder in folders:
        files = ((file.digest, file.name) for file in folder.files)
        texts += ((folder.id, each) for each in (folder.project.instructions, *files) if each)
    return {cache_folders.hash_of(each) for each in texts}


class MemoryCacheControl(QObject):
    """Limits the memory of the KV caches that the engine holds to the value in the settings.

    Args:
        slot: The model.
        settings: The settings.

    Attributes:
        facts: The last answer of the engine; None before that.
    """

    changed = Signal()

    def __init__(self, slot: ModelSlot, settings: SettingsControl) -> None:
        super().__init__(settings)
        self._slot = slot
        self._settings = settings
        self._limit = settings.values.prefix_cache_bytes
        self.facts: PrefixCacheFacts | None = None
        slot.loaded.connect(self.ask_for_caches)
        settings.changed.connect(self._on_settings)

    def ask_for_caches(self) -> None:
        """Set the engine's limit and ask how much memory the caches have; `changed` follows."""
        if self._slot.info is not None:
            self._slot.engine.submit(LimitPrefixCaches(self._limit), self._take)

    def drop_caches(self) -> None:
        """Drop the caches of all chats: what was computed from one of them must not stay."""
        shared_images().forget_images()
        if self._slot.info is not None:
            self._slot.engine.submit(LimitPrefixCaches(0), lambda _event: None)
            self.ask_for_caches()

    def _on_settings(self, settings: Settings) -> None:
        if settings.prefix_cache_bytes != self._limit:
            self._limit = settings.prefix_cache_bytes
            self.ask_for_caches()

    def _take(self, event: EngineEvent) -> None:
        if isinstance(event, PrefixCacheFacts):
            self.facts = event
            self.changed.emit()
