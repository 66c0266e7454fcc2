"""Data of earlier chats that speeds up later replies: an index to draft from, and KV caches on disk and in memory."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat import paths
from rdchat.chat.conversation import Conversation
from rdchat.chat.reply_tokens import ALL, ReplyTokens
from rdchat.chat.settings import Settings
from rdchat.chat.store import ConversationStore
from rdchat.errors import RdchatError, StorageError
from rdchat.files import cache_folders
from rdchat.inference.api.events import ModelInfo, PrefixCacheFacts
from rdchat.inference.api.requests import CacheFolder
from rdchat.inference.models.model_locations import tokenizer_key
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.engine.engine_request import EngineEvent, LimitPrefixCaches
from rdchat.services.storage_watch import SettingsControl, StorageWatch
from rdchat.work.job import Job

if TYPE_CHECKING:
    from rdchat.inference.drafting.reply_index import ReplyIndex

_LOG = logging.getLogger(__name__)
# After a change of the chats.
_CHECK_MS = 15_000
_TIDY_MS = 500


class EarlierReplyIndex(QObject):
    """Builds the index when a model is loaded, and again when replies were deleted, restored or imported.

    Args:
        tokens: The stored token ids of replies.
        storage: Reports that the chats cannot be read.
        settings: Whether earlier replies are used, and which of them.
        model: The loaded model, whose tokenizer counts.

    Attributes:
        index: The replies to draft from; None without a model, or where they are not used.
    """

    changed = Signal()

    def __init__(self, tokens: ReplyTokens, storage: StorageWatch, settings: SettingsControl, model: ModelSlot) -> None:
        super().__init__(settings)
        self._tokens = tokens
        self._storage = storage
        self._settings = settings
        self._model = model
        self.index: ReplyIndex | None = None
        self._after = self._forgotten
        self._work = BackgroundWork("earlier replies", self)
        self._timer = QTimer(self, singleShot=True, interval=_CHECK_MS)
        self._timer.timeout.connect(self.check_index)
        model.loaded.connect(self.rebuild)
        model.unload_started.connect(self.rebuild)
        settings.changed.connect(self._on_settings)

    @property
    def bytes(self) -> int:
        """Bytes of the token ids on disk."""
        return self._storage.read_or_default(lambda: self._tokens.bytes, 0)

    @property
    def _forgotten(self) -> int:
        """The id up to which replies are not used."""
        settings = self._settings.values
        return settings.earlier_replies_after if settings.earlier_replies else ALL

    def add_reply(self, message_id: int, ids: Sequence[int]) -> None:
        """Store the token ids of a reply that has ended, and draft from it too."""
        if self.index is not None:
            with suppress(StorageError):  # The next check tries again.
                self._tokens.save_tokens(message_id, self.index.tokenizer, ids)
                self.index.add_reply(message_id, ids)
                self.changed.emit()

    def check_soon(self) -> None:
        """Check soon whether the index has the replies of the chats."""
        if not self._timer.isActive():
            self._timer.start()

    def check_index(self) -> None:
        """Check now, and build the index again where it is out of date. An earlier check ends; what it stored stays."""
        work = partial(_updated, self._tokens, self._model.info, self._after, self.index)
        self._work.replace(work, self._use, self._on_failed)

    def rebuild(self) -> None:
        """Build the index again, and use none meanwhile."""
        self._use(None)
        self.check_index()

    def forget_replies(self) -> None:
        """Forget all replies so far, for good."""
        with self._storage.reading():
            self._settings.change_values(earlier_replies_after=self._tokens.newest_message)

    def end_work(self) -> None:
        """End the work."""
        self._timer.stop()
        self._work.finish_work()

    def _on_settings(self) -> None:
        if self._after != self._forgotten:
            self._after = self._forgotten
            self.rebuild()

    def _use(self, index: "ReplyIndex | None") -> None:
        self.index = index
        self.changed.emit()

    def _on_failed(self, error: RdchatError) -> None:
        _LOG.warning("Drafting goes on without earlier replies: %s", error)
        self._use(None)


def _updated(
    tokens: ReplyTokens, model: ModelInfo | None, after: int, index: "ReplyIndex | None", job: Job[Any]
) -> "ReplyIndex | None":
    """Return the index of the stored replies: the present one, or a new one where it is out of date. Runs on a thread.

    Args:
        tokens: The stored token ids. Those that the model's tokenizer did not make are made.
        model: The loaded model; None without one.
        after: The id up to which replies are forgotten.
        index: The present index.
        job: Ends the work when it is cancelled.
    """
    from rdchat.inference.drafting.reply_index import BUILT_TOKENS, MAX_TOKENS, ReplyIndex  # noqa: PLC0415  loads OpenBLAS
    from rdchat.inference.prompts.tokenizer_process import shared_tokenizers  # noqa: PLC0415  only where it is needed

    tokens.delete_tokens(after)
    key = tokenizer_key(model.path) if model is not None and after < ALL else ""
    if model is None or not key:
        return None
    replies = dict[int, Sequence[int]]()
    count = 0
    for message_id, stored, text in tokens.newest(key, after):
        job.check_cancelled()
        ids = shared_tokenizers().encode_text(model.path, text) if stored is None else stored
        if stored is None:
            tokens.save_tokens(message_id, key, ids)
        replies[message_id] = [token for token in ids if token < model.vocabulary_size]
        count += 1 + len(replies[message_id])
        if count >= MAX_TOKENS:
            break
    if index is not None:
        oldest = min(index.messages, default=0) if count >= BUILT_TOKENS else 0  # A full index lacks older replies.
        if index.messages == {message_id for message_id in replies if message_id >= oldest}:
            return index
    return ReplyIndex(replies, key)


# After a change of the chats.
_TIDY_MS = 500


class KeptCacheControl(QObject):
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

    def folder(self, chat: Conversation) -> CacheFolder | None:
        """Return where the caches of a chat are kept, and create the folder; None for nowhere. On any thread."""
        if not (self._settings.values.keep_caches and chat.own.keep_cache):
            return None
        folder = self._path(chat.id, chat.created_at)
        with suppress(OSError):  # Without the folder nothing is kept.
            cache_folders.make_folder(folder)
        return CacheFolder(folder, self._settings.values.kept_caches_gb * 10**9)

    def _path(self, chat_id: int, created_at: float | None) -> Path:
        return paths.chat_caches_dir() / cache_folders.folder_name(self._store.path, chat_id, created_at)

    def remove_chat(self, chat: Conversation) -> None:
        """Remove the caches of a chat."""
        self._work.do(
            partial(cache_folders.remove_folder, self._path(chat.id, chat.created_at)), lambda _: self.tidy_soon()
        )

    def remove_all(self) -> None:
        """Remove the caches of all chats."""
        self._work.do(partial(cache_folders.remove_folders, paths.chat_caches_dir()), lambda _: self.tidy())

    def tidy_soon(self) -> None:
        """Call `tidy` soon."""
        if not self._timer.isActive():
            self._timer.start()

    def tidy(self) -> None:
        """Remove what must not be kept any more, and look at the size; `changed` follows."""
        top = paths.chat_caches_dir()
        settings = self._settings.values

        def kept() -> list[str]:
            chats = self._store.chats_with_caches() if settings.keep_caches else []
            return [self._path(*chat).name for chat in chats]

        def tidy() -> int:
            cache_folders.remove_folders(top, self._store.path, kept)
            if settings.keep_caches and top.exists():
                cache_folders.make_room(top, settings.kept_caches_gb * 10**9)
            return cache_folders.used_bytes(top)

        self._work.do(tidy, self._take)

    def _take(self, size: int | RdchatError) -> None:
        if isinstance(size, int):
            self.bytes = size
            self.changed.emit()

    def end_work(self) -> None:
        """End the work."""
        self._timer.stop()
        self._work.finish_work()


class PrefixCacheControl(QObject):
    """Limits the memory of the KV caches to the value in the settings.

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

    def _on_settings(self, settings: Settings) -> None:
        if settings.prefix_cache_bytes != self._limit:
            self._limit = settings.prefix_cache_bytes
            self.ask_for_caches()

    def _take(self, event: EngineEvent) -> None:
        if isinstance(event, PrefixCacheFacts):
            self.facts = event
            self.changed.emit()
