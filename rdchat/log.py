"""Logging to a small rotating file; nothing a person wrote is ever logged."""

import logging
import logging.handlers

from rdchat import paths

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up_logging(level: int = logging.INFO) -> None:
    """Send rdchat's log to `paths.log_path()`; where that cannot be written, carry on without a log."""
    logger = logging.getLogger("rdchat")
    logger.setLevel(level)
    if logger.handlers:
        return
    try:
        paths.log_path().parent.mkdir(parents=True, exist_ok=True)
        handler: logging.Handler = logging.handlers.RotatingFileHandler(
            paths.log_path(), maxBytes=1_000_000, backupCount=2, encoding="utf-8", delay=True
        )
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    logger.addHandler(handler)
    logger.propagate = False
