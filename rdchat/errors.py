"""Errors that a person can act on: what happened, and what to do about it.

All code raises these. The window shows them as notices, the commands print them in one line.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST_LINE = 1000
_FREE_SPACE = "Free some space. What was saved before is safe."
# Tab and line feed are not among these control characters.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def one_line(text: object) -> str:
    """Return a text for a terminal: foreign names in it cannot break the line or control the terminal."""
    line = "".join(letter if letter.isprintable() else " " for letter in str(text))
    line = " ".join(line.split())
    if len(line) <= _LONGEST_LINE:
        return line
    half = _LONGEST_LINE // 2
    # The end is the hint, so it stays.
    return f"{line[:half]} ... {line[-half:]}"


def without_controls(text: str) -> str:
    """Return a text without control characters: in a terminal, or pasted into one, they could run a model's code."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def reason_of(error: Exception) -> str:
    """Return what foreign code says of its error, as the end of a sentence."""
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


class RdchatError(Exception):
    """Something went wrong that the person using the app can fix.

    Attributes:
        message: One plain sentence: what happened, with the file, model or setting.
        hint: One sentence: what to do next; empty if the message includes it.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class InvalidSettingError(RdchatError, ValueError):
    """A value that is wrong in itself, in arguments or a form (exit status 2 on the command line)."""


class ModelError(RdchatError):
    """A model is missing, damaged, unsupported, or does not fit."""


class TemplateRefusedError(ModelError):
    """A model's chat template refuses the conversation."""


class ImageRefusedError(RdchatError):
    """A file cannot be read as an image."""


class ShapeRefusedError(ModelError):
    """An answer cannot have the requested format."""


class OutOfMemoryError(ModelError):
    """This machine does not have enough memory."""


class DeviceError(RdchatError):
    """The device could not compute something, or a file that it reads late is damaged."""


class DeviceStoppedError(DeviceError):
    """The system ended work on the GPU, mostly because it took too long; the same work may succeed later."""


class DoesNotFitError(OutOfMemoryError):
    """Something needs more memory than there is, so it was not started; the person may start it anyway."""


class RanksError(RdchatError):
    """Several Macs cannot compute one model together, or lost each other."""


class PromptTooLongError(RdchatError):
    """The conversation does not fit into the model's context."""


class NetworkError(RdchatError):
    """A download was necessary and failed."""


class UntrustedCertificateError(NetworkError):
    """The system does not trust a server's certificate; the person may accept it by its `fingerprint`."""

    def __init__(self, message: str, hint: str, fingerprint: str) -> None:
        super().__init__(message, hint)
        self.fingerprint = fingerprint


class StorageError(RdchatError):
    """The chats or a settings file cannot be read or written."""


class StorageLockedError(StorageError):
    """Another process has the chats open."""


class StorageFullError(StorageError):
    """The disk with rdchat's data is full."""


def file_error(error: OSError, what: str, hint: str, full: str = _FREE_SPACE) -> StorageError:
    """Return the error to raise where a file cannot be read or written.

    Args:
        error: The system's error.
        what: What could not be done, naming the file: a sentence without its full stop.
        hint: What to do.
        full: What to do if the disk is full.
    """
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageFullError(f"{what}: the disk is full.", full)
    return StorageError(f"{what}: {error.strerror}.", hint)


@contextmanager
def file_errors(what: str, hint: str, full: str = _FREE_SPACE) -> Iterator[None]:
    """Raise `file_error` for an OSError in the block; the arguments are its own.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If a file cannot be read or written.
    """
    try:
        yield
    except OSError as error:
        raise file_error(error, what, hint, full) from error
