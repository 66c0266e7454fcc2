"""Builds the index of earlier replies that prompt lookup drafts from, and keeps it up to date with the chats.

The index holds the token ids of replies, in the tokens of the loaded model. They are stored with the chats, so that
only new ones have to be made.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.chat.reply_tokens import ALL, ReplyTokens
from rdchat.errors import RdchatError, StorageError
from rdchat.inference.api import ModelInfo
from rdchat.services.background_work import BackgroundWork
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.storage_watch import SettingsControl, StorageWatch
from rdchat.work import Job

if TYPE_CHECKING:
    from rdchat.inference.drafting.reply_index import ReplyIndex

_LOG = logging.getLogger(__name__)
# A change of the chats is checked after this time, with all changes until then.
_CHECK_MS = 15_000


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
        # What `_forgotten` was when the index was built last; `_on_settings` builds it again where it differs.
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
        """The id up to which replies are not used; `ALL` where the person wants none used."""
        settings = self._settings.values
        return settings.earlier_replies_after if settings.earlier_replies else ALL

    def add_reply(self, message_id: int, ids: Sequence[int]) -> None:
        """Store the token ids of a reply that has ended, and draft from it too; not of one that no file has."""
        if self.index is not None:
            with suppress(StorageError):  # The next check tries again.
                if self._tokens.save_tokens(message_id, self.index.tokenizer, ids):
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
    from rdchat.inference.drafting.reply_index import updated_index  # noqa: PLC0415  loads OpenBLAS

    tokens.delete_tokens(after)
    if model is None or after == ALL:
        return None

    def newest(tokenizer: str) -> Iterator[tuple[int, Sequence[int] | None, str]]:
        for reply in tokens.newest(tokenizer, after):
            job.check_cancelled()
            yield reply

    return updated_index(newest, tokens.save_tokens, model, index)
