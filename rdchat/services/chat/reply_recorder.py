"""Stores replies while they are written, and rescues those that the store lacks into a file."""

import logging
import math
import os
import tempfile
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Qt, QTimer, Slot

from rdchat.chat.conversation import Message, MessageStatus, Notice
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.files.atomic_file import atomic_file
from rdchat.services.chat.reply import Reply
from rdchat.services.chat.storage_watch import StorageWatch

_LOG = logging.getLogger(__name__)
# A crash may lose half a second of text, and a busy machine is late.
_SAVE_AFTER_S = 0.3
_RETRY_INTERVAL_MS = 1000
_RESCUE_PREFIX = "unsaved-replies-"


class ReplyRecorder(QObject):
    """Stores the text of replies within half a second, and tries again where the disk does not take it.

    Args:
        store: The conversations.
        storage: Reports that the store does not take the text, and when it does again.
        parent: The Qt parent.

    Attributes:
        clock: Returns seconds, as in `ReplyProgress.written_at`.
        held: Replies that the store does not have as they are, oldest first.
        trouble: Why the store does not take them; None while it does.
    """

    def __init__(self, store: ConversationStore, storage: StorageWatch, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store, self._storage, self.clock = store, storage, time.monotonic
        self.held: list[Reply] = []
        self.trouble: Notice | None = None
        self._closed = self._given_up = False
        # The file with unsaved replies; one that the person chose is never deleted.
        self._rescue_file: Path | None = None
        self._chosen = False
        self._timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self.save)

    @property
    def live(self) -> list[Reply]:
        """The replies that have not ended, oldest first."""
        return [reply for reply in self.held if not reply.ended]

    @property
    def unsaved(self) -> list[Reply]:
        """The replies with text that the store does not have, oldest first."""
        return [reply for reply in self.held if reply.missing]

    def completed(self, message: Message) -> Message:
        """Return a stored message with the text that the store does not have yet."""
        unsaved = (reply.message for reply in reversed(self.held) if reply.message.id == message.id)
        return next(unsaved, message).with_siblings_of(message)

    def begin(self, message: Message, **fields: Any) -> Reply:
        """Return a reply, to be stored from now on, that continues the text that a message has."""
        reply = Reply.continuing(message, **fields)
        self.held.append(reply)
        return reply

    def add_text(self, reply: Reply, text: str, written_at: float | None = None) -> None:
        """Append what was written from `written_at` on, by default just now; it is stored soon."""
        reply.writing = True
        if not text:
            return
        at = self.clock() if written_at is None else written_at
        reply.grow(text, at)
        if reply.unsaved_since is None:
            reply.unsaved_since = at
        left_s = reply.unsaved_since + _SAVE_AFTER_S - self.clock()
        if self.trouble is not None:
            return
        if left_s <= 0:  # A busy event loop may hold the timer up, but not while text comes in.
            self.save()
        elif not self._timer.isActive():
            self._timer.start(math.ceil(left_s * 1000))

    @Slot()
    def save(self) -> bool:
        """Bring the store up to date, or try again later; return whether it has all texts."""
        try:
            self.flush()
        except StorageError as error:
            self._on_failure(error)
        return not self.unsaved

    def flush(self) -> None:
        """Bring the store up to date, or raise StorageError."""
        for reply in self.held[:]:
            self._save(reply)
            if reply.ended:
                self.held.remove(reply)
        self._timer.stop()
        if self.trouble is not None:
            self.trouble = None
            self._storage.recovered.emit()

    def _save(self, reply: Reply) -> None:
        message = reply.message
        if reply.ended:
            self._store.finish_message(message)
        elif message.text != reply.saved_text:
            self._store.save_text(message.id, message.text, message.thinking)
        reply.saved_text, reply.unsaved_since = message.text, None

    def close(self) -> None:
        """End open replies as interrupted and save for the last time."""
        self._closed = True
        self._timer.stop()
        for reply in self.live:
            reply.break_off(MessageStatus.INTERRUPTED)
        self.save()
        if self.held:
            _LOG.error("%d replies could not be saved", len(self.held))

    # Replies that quitting would lose

    def save_elsewhere(self, path: Path) -> None:
        """Write the unsaved replies into a file of Markdown; `rescue` writes it once more at the end.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If the file cannot be written.
        """
        _write(path, self.unsaved)
        self._rescue_file, self._chosen = path, True

    def give_up(self) -> None:
        """Let the unsaved replies be lost: the person wants to quit without them."""
        self._given_up = True

    def rescue(self) -> Path | None:
        """Write unsaved replies into a file in the folder of the chats as the app ends; None if all is stored."""
        replies = self.unsaved
        if not replies and not self._chosen and self._rescue_file is not None:
            self._rescue_file.unlink(missing_ok=True)  # The store has taken the replies after all.
            self._rescue_file = None
        if not replies or self._given_up:
            return None
        folders = (self._store.path.parent, Path.home(), Path(tempfile.gettempdir()))
        name = f"{_RESCUE_PREFIX}{datetime.now().astimezone():%Y%m%d-%H%M%S}-{os.getpid()}.md"
        for path in [self._rescue_file] if self._rescue_file else [folder / name for folder in folders]:
            try:
                _write(path, replies)
            except StorageError as error:
                _LOG.error("%s", error)
            else:
                _LOG.warning("The text that could not be saved is in %s", path)
                self._rescue_file = path
                return path
        return None

    def _on_failure(self, error: StorageError) -> None:
        is_new, self.trouble = self.trouble is None, Notice(error.message, error.hint)
        if not self._closed:
            self._timer.start(_RETRY_INTERVAL_MS)
        if is_new:
            self._storage.failed.emit(self.trouble)


def rescued_notice(folder: Path) -> Notice | None:
    """Return a notice of a rescue file that an earlier run left in the folder of the chats; None without one."""
    files = sorted(folder.glob(f"{_RESCUE_PREFIX}*.md"))
    if not files:
        return None
    return Notice(
        "A reply could not be saved when rdchat was quit",
        f"Its text is in {files[-1]}. Move or delete that file, and this notice does not come again.",
    )


def _write(path: Path, replies: Iterable[Reply]) -> None:
    text = "\n".join(f"# {reply.conversation.title}\n\n{reply.message.text.rstrip()}\n" for reply in replies)
    with atomic_file(path, f"The text cannot be saved to {path}") as new:
        new.touch(mode=0o600, exist_ok=False)
        new.write_text(text, encoding="utf-8", errors="replace")
