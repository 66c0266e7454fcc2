"""Rows of what a search found: made once, and told to the view only where they changed."""

from dataclasses import replace

from PySide6.QtCore import QModelIndex
from pytestqt.qtbot import QtBot

from rdchat.hub.found_models import FoundModel
from rdchat.ui.models.discover.results_model import FoundRows, ResultsModel
from tests.services.models.macs import MAC_16

ONE, TWO, THREE = (
    FoundModel(f"org/{name}-4bit", 10, 1, "2026-11-01", False, "mit", "llama", "4-bit", size)
    for name, size in (("One", 4_000_000_000), ("Two", 5_000_000_000), ("Three", 40_000_000_000))
)
NOTHING: frozenset[str] = frozenset()


def test_rows_are_made_once_for_a_machine_and_what_is_here() -> None:
    made = FoundRows()
    first = made.rows((ONE, TWO), MAC_16, NOTHING)
    more = made.rows((ONE, TWO, THREE), MAC_16, NOTHING)
    assert [new is old for new, old in zip(more, first, strict=False)] == [True, True]
    assert ("Too large", "muted") in more[2].marks
    assert ("Here", "success") in made.rows((ONE,), MAC_16, frozenset({ONE.repository}))[0].marks
    assert made.rows((THREE,), None, NOTHING)[0].marks == ()
    newer = replace(ONE, downloads=20)
    assert made.rows((newer,), None, NOTHING)[0].facts_of is newer


def test_rows_that_stay_are_not_drawn_anew(qtbot: QtBot) -> None:
    made, model = FoundRows(), ResultsModel()
    model.set_rows(made.rows((ONE, TWO), MAC_16, NOTHING))
    changed: list[QModelIndex] = []
    model.dataChanged.connect(lambda first, _last: changed.append(first))
    model.set_rows(made.rows((ONE, TWO, THREE), MAC_16, NOTHING))
    assert (model.rowCount(), changed) == (3, [])
    model.set_rows(made.rows((ONE, TWO, THREE), MAC_16, frozenset({TWO.repository})))
    assert (model.rowCount(), len(changed)) == (3, 1)
