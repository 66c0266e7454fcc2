"""Logging to a small rotating file; nothing a person wrote is ever logged."""

import contextlib
import logging
import logging.handlers
from collections.abc import Iterator

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
    handler.setFormatter(logging.Formatter(_FORMAT))
    logger.addHandler(handler)
    logger.propagate = False
