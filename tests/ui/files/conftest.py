"""Files beside the message field, as a person sees them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.ui.files.chips import FileChip
from rdchat.ui.window.main_window import MainWindow


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text("apples,3\npears,4\n")
    return path


def chips(window: MainWindow) -> Sequence[FileChip]:
    return window.conversation.composer.files.row.chips


def chip_names(window: MainWindow) -> list[str]:
    """Return what a screen reader says of the files."""
    return [chip.accessibleName() for chip in chips(window)]


def wait_for_chips(qtbot: QtBot, window: MainWindow, number: int) -> None:
    """Wait until so many files were read and counted."""
    qtbot.waitUntil(lambda: len(chips(window)) == number and all("token" in name for name in chip_names(window)))
