"""Errors that a person can act on: what happened, and what to do about it."""

_LONGEST_LINE = 1000  # characters: a name can have thousands


def one_line(text: object) -> str:
    """Return words for a terminal: strangers' names in them cannot break the line, nor control the terminal."""
    words = "".join(letter if letter.isprintable() else " " for letter in str(text))
    words = " ".join(words.split())
    if len(words) <= _LONGEST_LINE:
        return words
    half = _LONGEST_LINE // 2
    return f"{words[:half]} ... {words[-half:]}"  # the hint is at the end


class RdchatError(Exception):
    """Something went wrong that the person in front of the app can mend.

    Attributes:
        message: One sentence in plain words: what happened, naming the file, model or setting.
        hint: One sentence that says what to do next; empty where the message already does.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class InvalidSettingError(RdchatError, ValueError):
    """A value that the arguments or a form alone show to be wrong (exit status 2 on the command line)."""


class ModelError(RdchatError):
    """A model folder is missing, damaged, of an unknown architecture, or does not fit."""


class OutOfMemoryError(ModelError):
    """This machine's memory is not enough."""


class DeviceError(RdchatError):
    """The device could not compute something, or a file that it reads late is damaged."""


class DoesNotFitError(OutOfMemoryError):
    """Something was not begun, as it needs more memory than there is; the person may have it begun all the same."""


class PromptTooLongError(RdchatError):
    """The conversation does not fit into the model's context."""


class NetworkError(RdchatError):
    """Something had to be fetched and could not be."""


class StorageError(RdchatError):
    """The conversations database or a settings file cannot be read or written."""


class StorageLockedError(StorageError):
    """Another process holds the conversations database."""


class StorageFullError(StorageError):
    """The disk that holds rdchat's data is full."""
