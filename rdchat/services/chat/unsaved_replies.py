"""Replies that the store does not take, and the file that rescues them."""

import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rdchat.chat.conversation import Notice
from rdchat.errors import StorageError
from rdchat.files.atomic_file import atomic_file
from rdchat.services.chat.reply_recorder import ReplyRecorder

_LOG = logging.getLogger(__name__)
_BEGINNING = "unsaved-replies-"


@dataclass(frozen=True, slots=True)
class UnsavedReply:
    """A reply that the store has in part."""

    title: str  # of its chat
    text: str  # all of it
    missing: int  # characters that the store lacks


class UnsavedReplies:
    """The replies that quitting would lose.

    Args:
        recorder: Has the replies.
        title_of: Gives the title of a chat by its id, without the store.
        folder: Where the chats are stored.
    """

    def __init__(self, recorder: ReplyRecorder, title_of: Callable[[int], str], folder: Path) -> None:
        self._recorder, self._title_of, self._folder = recorder, title_of, folder
        self._file: Path | None = None  # that has the unsaved replies
        self._chosen = False  # the person chose the file: it stays
        self._given_up = False

    @property
    def trouble(self) -> Notice | None:
        """Why the store does not take them."""
        return self._recorder.trouble

    def replies(self) -> list[UnsavedReply]:
        """Return the replies that are not stored whole."""
        return [
            UnsavedReply(self._title_of(reply.message.conversation_id), reply.message.text, reply.missing)
            for reply in self._recorder.unsaved
        ]

    def save(self) -> bool:
        """Try to store everything; False where that failed."""
        self._recorder.save()
        return not self._recorder.unsaved

    def save_elsewhere(self, path: Path) -> None:
        """Write the replies as they are now into a file of Markdown, and at the end once more as they are then.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If the file cannot be written.
        """
        _write(path, self.replies())
        self._file, self._chosen = path, True

    def give_up(self) -> None:
        """Let the replies be lost: the person wants to quit without them."""
        self._given_up = True

    def rescue(self) -> Path | None:
        """Write unsaved replies into a file beside the chats as the app ends; None where all is stored."""
        replies = self.replies()
        if not replies and not self._chosen and self._file is not None:
            self._file.unlink(missing_ok=True)  # the store has taken it after all
            self._file = None
        if not replies or self._given_up:
            return None
        places = (self._folder, Path.home(), Path(tempfile.gettempdir()))
        name = f"{_BEGINNING}{datetime.now().astimezone():%Y%m%d-%H%M%S}-{os.getpid()}.md"
        for path in [self._file] if self._file else [place / name for place in places]:
            try:
                _write(path, replies)
            except StorageError as error:
                _LOG.error("%s", error)
            else:
                _LOG.warning("The text that could not be saved is in %s", path)
                self._file = path
                return path
        return None


def left_behind(folder: Path) -> Notice | None:
    """Return a notice of the file of an earlier run beside the chats; None where there is none."""
    found = sorted(folder.glob(f"{_BEGINNING}*.md"))
    if not found:
        return None
    return Notice(
        "A reply could not be saved when rdchat was quit",
        f"Its text is in {found[-1]}. Move or delete that file, and this is not said again.",
    )


def _write(path: Path, replies: Iterable[UnsavedReply]) -> None:
    text = "\n".join(f"# {reply.title}\n\n{reply.text.rstrip()}\n" for reply in replies)
    with atomic_file(path, f"The text cannot be saved to {path}") as new:
        new.touch(mode=0o600, exist_ok=False)
        new.write_text(text, encoding="utf-8", errors="replace")
