"""Keeps the file of earlier replies, from which drafts may come, in step with the chats."""

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from rdchat.chat.earlier_replies import (
    ReplyCount,
    ReplyFile,
    ReplyFileMaker,
    all_stored,
    newest_message,
    remove_reply_files,
    tokenizer_key,
)
from rdchat.errors import RdchatError
from rdchat.inference.api.requests import EarlierReplies
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.chat.storage_watch import SettingsControl, StorageWatch
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.work.job import Job

_LOG = logging.getLogger(__name__)
_CHECK_MS = 15_000  # after a change: a deletion takes the tokens out within a minute
_MOST_SINCE = 100  # replies that are not in the file, beyond which it is made anew


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the file should hold."""

    database: Path  # the chats
    used: bool  # whether earlier replies are used
    model: Path | None  # its folder; None without one
    after: int  # replies with ids up to this one are left out
    most_since: int  # replies that may be missing from the file
    since: frozenset[int]  # ids of those that the engine has besides


class ReplyKeeper(QObject):
    """Makes the file when a model is loaded, and anew when replies were deleted or many were added.

    Args:
        database: The file of the chats.
        storage: Reports where they cannot be read.
        preferences: Whether earlier replies are used, and which of them.
        model: The loaded model, whose tokenizer counts.
    """

    changed = Signal()  # the file is another one

    def __init__(self, database: Path, storage: StorageWatch, preferences: SettingsControl, model: ModelSlot) -> None:
        super().__init__(preferences)
        self._database, self._storage, self._preferences, self._model = database, storage, preferences, model
        self._file: ReplyFile | None = None
        self._since: set[int] = set()  # ids of the replies that were asked for with the file
        self._made = 0  # files used so far
        self._maker = ReplyFileMaker()
        self._work = BackgroundWork("earlier replies", self)
        self._timer = QTimer(self, singleShot=True, interval=_CHECK_MS)
        self._timer.timeout.connect(self.check)
        self._using = preferences.settings.earlier_replies
        model.loaded.connect(lambda: self._begin(fresh=True))
        preferences.changed.connect(self._on_preferences)

    @property
    def request(self) -> EarlierReplies:
        """What a reply's request says of earlier replies."""
        return EarlierReplies(str(self._file.path) if self._file else "", made=self._made)

    def request_for(self, reply_id: int) -> EarlierReplies:
        """Return `request` for a reply, which the engine adds to those that it has."""
        self._since.add(reply_id)
        return self.request

    @property
    def bytes(self) -> int:
        """The size of the file; 0 without one."""
        return self._file.bytes if self._file else 0

    @property
    def busy(self) -> bool:
        """Whether a check is under way."""
        return self._work.busy

    @Slot()
    def look(self) -> None:
        """Check soon whether the chats are still those in the file."""
        if not self._timer.isActive():
            self._timer.start()

    @Slot()
    def check(self) -> None:
        """Check now, and make the file anew where it is needed; later if it is being made."""
        if self.busy:
            self.look()
        else:
            self._begin(fresh=False)

    def clear(self) -> None:
        """Forget all replies so far, for good."""
        with self._storage.reading():
            newest = newest_message(self._database)
            self.use(None)
            self._preferences.change(replace(self._preferences.settings, earlier_replies_after=newest))
            self._begin(fresh=False)

    def close(self) -> None:
        """End the work and the child."""
        self._timer.stop()
        self._work.close()
        self._maker.close()

    def _on_preferences(self) -> None:
        if self._using != self._preferences.settings.earlier_replies:
            self._using = not self._using
            if not self._using:
                self.use(None)
            self._begin(fresh=False)

    def _begin(self, fresh: bool) -> None:
        settings, info = self._preferences.settings, self._model.info
        most_since, since = 0 if fresh else _MOST_SINCE, frozenset(self._since)
        model, after = info.path if info else None, settings.earlier_replies_after
        wanted = _Wanted(self._database, settings.earlier_replies, model, after, most_since, since)
        self._work.replace(partial(_keep, self._maker, wanted), self.use, self._on_failed, self.use)

    def use(self, file: ReplyFile | None) -> None:
        """Draft from a file from now on, or from none. Whatever the engine has besides is forgotten then."""
        if file != self._file:
            self._file = file
            self._made += 1
            self._since.clear()
            self.changed.emit()

    def _on_failed(self, error: RdchatError) -> None:
        _LOG.warning("Drafting goes on without earlier replies: %s", error)
        self.use(None)


def _keep(maker: ReplyFileMaker, wanted: _Wanted, job: Job[Any]) -> ReplyFile | None:
    """Return the file for the present replies, made if there is none; on a thread.

    Args:
        maker: Makes it.
        wanted: What it should hold.
        job: Reports None where the old file is out of date. The next check cancels it.
    """
    key = tokenizer_key(wanted.model) if wanted.model else ""
    found = ReplyFile.find() if wanted.used and (key or wanted.model is None) else None
    if found is not None and not found.is_true(wanted.database, wanted.after):
        found = None
    if found is None:
        remove_reply_files()  # first, so that nothing is drafted from what was deleted, whatever happens next
    if not wanted.used or wanted.model is None or not key:  # the tokenizer of the next model tells more
        return None
    now = ReplyCount.of(wanted.database, wanted.after)
    if found is None or found.tokenizer != key or not all_stored(wanted.database, wanted.after, wanted.since):
        job.report_progress(None)
    if found is not None and found.tokenizer == key and now.count - found.counted.count <= wanted.most_since:
        return found
    if not now.count:
        return None
    file = ReplyFile(key, now)
    maker.make(wanted.database, wanted.model, file, wanted.after).result(job.check)
    remove_reply_files(file)
    return file
