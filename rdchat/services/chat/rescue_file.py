"""Writes replies that the store has not saved into a file, so that quitting does not lose them."""

import logging
import os
import tempfile
from datetime import datetime
from pathlib import Path

from rdchat.chat.conversation import Notice
from rdchat.errors import StorageError
from rdchat.files import atomic_file
from rdchat.services.chat.reply_recorder import ReplyRecorder

_LOG = logging.getLogger(__name__)
_PREFIX = "unsaved-replies-"


class RescueFile:
    """The file with the replies that quitting would lose.

    Args:
        recorder: Knows the unsaved replies.
        folder: The folder of the chats.
    """

    def __init__(self, recorder: ReplyRecorder, folder: Path) -> None:
        self._recorder = recorder
        self._folder = folder
        self._path: Path | None = None

    def write_replies(self) -> Path | None:
        """Write unsaved replies into a file of Markdown as the app ends; None if all is stored, or no disk has room.

        The folder of the chats is tried first, then the home folder and the system's temporary one. A later call writes
        the same file again, or deletes it if all is stored by then.
        """
        replies = self._recorder.unsaved
        if not replies:
            if self._path is not None:
                self._path.unlink(missing_ok=True)  # The store has taken the replies after all.
            return None
        self._recorder.read_titles()
        text = "\n".join(f"# {reply.conversation.title}\n\n{reply.message.text.rstrip()}\n" for reply in replies)
        name = f"{_PREFIX}{datetime.now().astimezone():%Y%m%d-%H%M%S}-{os.getpid()}.md"
        folders = (self._folder, Path.home(), Path(tempfile.gettempdir()))
        for path in [self._path] if self._path else [folder / name for folder in folders]:
            try:
                with atomic_file(path, f"The text cannot be saved to {path}") as new:
                    new.touch(mode=0o600, exist_ok=False)
                    new.write_text(text, encoding="utf-8", errors="replace")
            except StorageError as error:
                _LOG.error("%s", error)
            else:
                _LOG.warning("The text that could not be saved is in %s", path)
                self._path = path
                return path
        return None


def rescued_notice(folder: Path) -> Notice | None:
    """Return a notice of a rescue file that an earlier run left in the folder of the chats; None without one."""
    files = sorted(folder.glob(f"{_PREFIX}*.md"))
    if not files:
        return None
    return Notice(
        "A reply could not be saved when rdchat was quit",
        f"Its text is in {files[-1]}. Move or delete that file, and this notice does not come again.",
    )
