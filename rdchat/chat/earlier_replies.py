"""Makes the file of earlier replies to draft from, from the stored chats, in a child process: `rdchat --child replies`.

Only the child reads the replies' texts; the file has token ids. Deleted chats and messages are left out.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.chat.storage.connections import reading
from rdchat.chat.storage.message_tree import KEPT
from rdchat.files.foreign_files import read_bytes
from rdchat.files.privacy import private_folder
from rdchat.work.child_limits import Limits
from rdchat.work.child_process import ChildProcess
from rdchat.work.job import Job
from rdchat.work.served import serve

_COUNTED = f"""
    FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE m.role = 'assistant' AND m.{KEPT} AND c.deleted_at IS NULL AND c.unlisted = 0 AND m.id > ? AND m.id <= ?
"""
_NEWEST = 2**62  # larger than any id
_LIMITS = Limits(seconds=120.0, memory_bytes=1 << 30)
_IDLE_S = 5.0
_NAME = re.compile(r"([0-9a-f]{16})-(\d+)-(\d+)-(\d+)\.replies")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "merges.txt", "tekken.json")
_MOST_BYTES = 1 << 28  # of a tokenizer's file


@dataclass(frozen=True, slots=True)
class ReplyCount:
    """What is needed of some replies to see that others are there now."""

    newest: int  # the highest id; 0 without replies
    count: int
    total: int  # of the ids

    @classmethod
    def of(cls, database: Path, after: int, up_to: int = _NEWEST) -> "ReplyCount":
        """Count the replies with ids beyond `after`. Raises StorageError."""
        with reading(database) as connection:
            sql = f"SELECT coalesce(max(m.id), 0), count(*), coalesce(sum(m.id), 0) {_COUNTED}"
            return cls(*connection.execute(sql, (after, up_to)).fetchone())


def all_stored(database: Path, after: int, ids: Collection[int]) -> bool:
    """Return whether some replies are all still there, not deleted. Raises StorageError."""
    with reading(database) as connection:
        sql = f"SELECT count(*) {_COUNTED} AND m.id IN (SELECT value FROM json_each(?))"
        count: int = connection.execute(sql, (after, _NEWEST, json.dumps(sorted(ids)))).fetchone()[0]
    return count == len(ids)


def newest_message(database: Path) -> int:
    """Return the highest id of all messages, deleted ones too; 0 without any. Raises StorageError."""
    with reading(database) as connection:
        newest: int = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
    return newest


@dataclass(frozen=True, slots=True)
class ReplyFile:
    """A file of earlier replies. Its name says for which tokenizer, and which replies it has."""

    tokenizer: str  # from `tokenizer_key`
    counted: ReplyCount

    @property
    def path(self) -> Path:
        counted = self.counted
        return paths.replies_dir() / f"{self.tokenizer}-{counted.newest}-{counted.count}-{counted.total}.replies"

    @property
    def bytes(self) -> int:
        """Its size; 0 where it is missing."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    @classmethod
    def find(cls) -> "ReplyFile | None":
        """Return the newest file that was made."""
        named = (_NAME.fullmatch(path.name) for path in paths.replies_dir().glob("*.replies"))
        found = [cls(name[1], ReplyCount(int(name[2]), int(name[3]), int(name[4]))) for name in named if name]
        return max(found, key=lambda each: each.counted.newest, default=None)

    def is_true(self, database: Path, after: int) -> bool:
        """Return whether its replies are all still there, and no older ones. Raises StorageError."""
        return ReplyCount.of(database, after, self.counted.newest) == self.counted


def remove_reply_files(keep: ReplyFile | None = None) -> None:
    """Remove all files of earlier replies but one."""
    for path in paths.replies_dir().glob("*.replies"):
        if keep is None or path != keep.path:
            with suppress(OSError):
                path.unlink()


def tokenizer_key(folder: Path) -> str:
    """Return a name for a model's tokenizer: models with the same files have the same; empty without such files."""
    digest, files = hashlib.sha256(), [folder / name for name in _TOKENIZER_FILES if (folder / name).exists()]
    for file in files:
        digest.update(file.name.encode() + read_bytes(file, "Download the model again.", _MOST_BYTES))
    return digest.hexdigest()[:16] if files else ""


class ReplyFileMaker:
    """The app's side of the child."""

    def __init__(self) -> None:
        self._child = ChildProcess("replies", idle_s=_IDLE_S)

    def make(self, database: Path, model: Path, file: ReplyFile, after: int) -> Job[int]:
        """Make a file; the job's result is its number of tokens.

        Args:
            database: The chats.
            model: The folder with the tokenizer.
            file: What to make.
            after: Replies with ids up to this one are left out.
        """
        private_folder(paths.replies_dir())
        arguments = {"database": str(database), "model": str(model), "path": str(file.path)}
        span = {"after": after, "up_to": file.counted.newest}
        return self._child.submit("make", arguments | span, _LIMITS, read=int)

    def close(self) -> None:
        """End the child."""
        self._child.close()


def _make(job: Job[Any], *, database: str, model: str, path: str, after: int, up_to: int) -> int:
    from rdchat.inference.drafting.reply_store import write_store  # noqa: PLC0415  the app does not need NumPy for it

    return write_store(Path(path), _replies(job, Path(database), Path(model), after, up_to))


def _replies(job: Job[Any], database: Path, model: Path, after: int, up_to: int) -> Iterator[list[int]]:
    """Yield the token ids of each reply, newest first."""
    from rdchat.inference.prompts.model_prompts import TokenizerProcess  # noqa: PLC0415  as above

    tokenizers = TokenizerProcess()
    with reading(database) as connection:
        for (text,) in connection.execute(f"SELECT m.text {_COUNTED} ORDER BY m.id DESC", (after, up_to)):
            job.report_progress(None)  # restarts the time limit, and ends a cancelled job
            yield tokenizers.encode_text(model, text)


def main() -> int:
    """Answer requests until the parent ends."""
    return serve({"make": _make})
