"""The log's file, as the app writes it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat import log


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The log's file, at the level of everything."""
    logger = logging.getLogger("rdchat")
    before = logger.handlers[:], logger.level, logger.propagate
    logger.handlers = []
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(tmp_path / "data"))
    log.set_up_logging()
    logger.setLevel(logging.DEBUG)
    logger.info("It is written")
    yield tmp_path / "data/logs/rdchat.log"
    for handler in logger.handlers:
        handler.close()
    logger.handlers, logger.level, logger.propagate = before


def text_of(file: Path) -> str:
    text = file.read_text()
    assert "It is written" in text
    return text
