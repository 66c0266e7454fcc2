"""Logging to a small rotating file; nothing a person wrote is ever logged."""

import contextlib
import copy
import logging
import logging.handlers
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from rdchat import paths

_LOG = logging.getLogger(__name__)
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogFile(logging.handlers.RotatingFileHandler):
    """A log that drops lines it cannot write, so that a full disk causes no tracebacks."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002  the log has nowhere else to go
        """Drop the line and close the file, which the next line opens again.

        An open file would try to write the rest of the line again at exit.
        """
        stream = self.stream
        self.stream = None
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:
                stream.close()


class WordlessFormatter(logging.Formatter):
    """Writes of each error its type and where it was raised, not its text, which may quote what a person wrote."""

    def format(self, record: logging.LogRecord) -> str:
        shown = copy.copy(record)
        # Another handler may have put the whole text of the error there.
        shown.exc_text = None
        if isinstance(shown.args, tuple):
            shown.args = tuple(map(_wordless, shown.args))
        return super().format(shown)

    def formatException(self, ei: Any) -> str:
        lines = list[str]()
        for error in _causes(ei[1]):
            lines.append(_named(error))
            lines += (f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in _frames(error))
        return "\n".join(lines)


def _named(error: BaseException) -> str:
    """Return an error's type, the system's reason, and the line that raised it."""
    name = type(error).__name__
    if isinstance(error, OSError) and error.errno:
        name += f" ({os.strerror(error.errno)})"
    for frame in _frames(error)[-1:]:
        name += f" at {Path(frame.filename).name}:{frame.lineno}"
    return name


def _wordless(argument: object) -> object:
    return " after ".join(map(_named, _causes(argument))) if isinstance(argument, BaseException) else argument


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return traceback.extract_tb(error.__traceback__)


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error, and those that led to it, the newest first."""
    found = list[BaseException]()
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


def log_to_parent(stream: IO[str]) -> None:
    """Write what rdchat logs in a child process to a stream; the messages of libraries may quote anything."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(WordlessFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.getLogger("rdchat").addHandler(handler)


@contextlib.contextmanager
def errors_logged(what: str) -> Iterator[None]:
    """Log an unexpected error of the block and continue after it; `what` is what the block does.

    It is for steps of closing and for work while idle: one that fails must not keep the others from being done.
    """
    try:
        yield
    except Exception:
        _LOG.exception("%s failed unexpectedly", what)


def set_up_logging() -> None:
    """Write rdchat's log to `paths.log_path()`; if that is impossible, continue without a log."""
    logger = logging.getLogger("rdchat")
    logger.setLevel(logging.INFO)
    if logger.handlers:
        return
    try:
        paths.log_path().parent.mkdir(parents=True, exist_ok=True)
        handler: logging.Handler = LogFile(
            paths.log_path(), maxBytes=1_000_000, backupCount=2, encoding="utf-8", delay=True
        )
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(WordlessFormatter(_FORMAT))
    logger.addHandler(handler)
    logger.propagate = False
