"""Errors of the file system in words for people."""

import errno

from rdchat.errors import StorageError, StorageFullError


def file_error(error: OSError, what: str, hint: str) -> StorageError:
    """Return the error to raise: a full disk is told apart, because the person mends it in another way.

    Args:
        error: What the system said.
        what: What could not be done, naming the file: a sentence without its full stop.
        hint: What to do where the disk is not full.
    """
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageFullError(f"{what}: the disk is full.", "Free some space. What was saved before is safe.")
    return StorageError(f"{what}: {error.strerror}.", hint)
