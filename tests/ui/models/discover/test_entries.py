"""Entries of what a search found, and how the list takes changed ones."""

from PySide6.QtCore import QModelIndex
from pytestqt.qtbot import QtBot

from rdchat.hub.found_models import FoundModel
from rdchat.ui.models.discover.entries import found_entries
from rdchat.ui.models.model_list import Entries
from tests.services.models.macs import MAC_16

ONE, TWO, THREE = (
    FoundModel(f"org/{name}-4bit", 10, 1, "2026-11-01", False, "mit", "llama", "4-bit", size)
    for name, size in (("One", 4_000_000_000), ("Two", 5_000_000_000), ("Three", 40_000_000_000))
)
NOTHING: frozenset[str] = frozenset()


def test_marks_say_what_is_here_and_what_is_too_large() -> None:
    entries = found_entries((ONE, TWO, THREE), MAC_16, NOTHING)
    assert ("Too large", "muted") in entries[2].marks
    assert ("Here", "success") in found_entries((ONE,), MAC_16, frozenset({ONE.repository}))[0].marks
    assert found_entries((THREE,), None, NOTHING)[0].marks == ()
    assert entries[0].item is ONE


def test_entries_that_stay_are_not_drawn_anew(qtbot: QtBot) -> None:
    model = Entries()
    model.set_entries(found_entries((ONE, TWO), MAC_16, NOTHING))
    changed: list[QModelIndex] = []
    model.dataChanged.connect(lambda first, _last: changed.append(first))
    model.set_entries(found_entries((ONE, TWO, THREE), MAC_16, NOTHING))
    assert (model.rowCount(), changed) == (3, [])
    model.set_entries(found_entries((ONE, TWO, THREE), MAC_16, frozenset({TWO.repository})))
    assert (model.rowCount(), len(changed)) == (3, 1)
