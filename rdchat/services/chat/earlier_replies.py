"""Keeps the file of earlier replies, from which drafts may come, in step with the chats."""

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from rdchat.chat.earlier_replies import ReplyCount, ReplyFile, ReplyFileMaker, remove_reply_files, tokenizer_key
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
    model: Path | None  # its folder; None without one, or where no earlier replies are used
    after: int  # replies with ids up to this one are left out
    most_since: int  # replies that may be missing from the file


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
        return EarlierReplies(str(self._file.path) if self._file else "")

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
        """Check now, and make the file anew where it is needed."""
        self._begin(fresh=False)

    def clear(self) -> None:
        """Forget all replies so far, for good."""
        with self._storage.reading():
            newest = ReplyCount.of(self._database, 0).newest
            self.use(None)
            self._preferences.change(replace(self._preferences.settings, earlier_replies_after=newest))
            self.check()

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
            self.check()

    def _begin(self, fresh: bool) -> None:
        settings, info = self._preferences.settings, self._model.info
        model = info.path if info and settings.earlier_replies else None
        wanted = _Wanted(self._database, model, settings.earlier_replies_after, 0 if fresh else _MOST_SINCE)
        self._work.replace(partial(_keep, self._maker, wanted), self.use, self._on_failed, self.use)

    def use(self, file: ReplyFile | None) -> None:
        """Draft from a file from now on, or from none."""
        if file != self._file:
            self._file = file
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
    if wanted.model is None or not key:
        remove_reply_files()
        return None
    found = ReplyFile.find()
    now = ReplyCount.of(wanted.database, wanted.after)
    true = found is not None and found.tokenizer == key and found.is_true(wanted.database, wanted.after)
    if found is not None and true and now.count - found.counted.count <= wanted.most_since:
        return found
    if not true:  # first, so that nothing is drafted from what was deleted, whatever happens next
        job.report_progress(None)
        remove_reply_files()
    if not now.count:
        return None
    file = ReplyFile(key, now)
    maker.make(wanted.database, wanted.model, file, wanted.after).result(job.check)
    remove_reply_files(file)
    return file
