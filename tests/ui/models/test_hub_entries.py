"""Entries of what a search found, and how the list takes changed ones."""

from pytestqt.qtbot import QtBot

from rdchat.hub.hub_model import HubModel
from rdchat.ui.models.entries import results_listed
from rdchat.ui.models.page_parts import ModelList
from rdchat.ui.style import Theme
from tests.services.models.macs import MAC_16

ONE, TWO, THREE = (
    HubModel(f"org/{name}-4bit", 10, 1, "2026-11-01", False, "mit", "llama", "4-bit", size)
    for name, size in (("One", 4_000_000_000), ("Two", 5_000_000_000), ("Three", 40_000_000_000))
)
NOTHING: frozenset[str] = frozenset()


def test_marks_say_what_is_here_and_what_is_too_large() -> None:
    entries = results_listed((ONE, TWO, THREE), MAC_16, NOTHING)
    assert ("Too large", "muted") in entries[2].marks
    assert [entry.use for entry in entries] == ["10 downloads", "10 downloads", "needs 41.3 GB in 4-bit"]
    assert ("Installed", "success") in results_listed((ONE,), MAC_16, frozenset({ONE.repository}))[0].marks
    assert results_listed((THREE,), None, NOTHING)[0].marks == ()
    assert entries[0].item is ONE


def test_the_chosen_entry_stays_chosen_wherever_it_goes(qtbot: QtBot, theme: Theme) -> None:
    shown = ModelList(theme, "Models")
    qtbot.addWidget(shown)
    shown.show_entries(results_listed((ONE, TWO), MAC_16, NOTHING))
    shown.select(TWO.repository)
    for order in ((TWO, ONE), (THREE, ONE, TWO), (TWO,)):
        with qtbot.assertNotEmitted(shown.chosen):
            shown.show_entries(results_listed(order, MAC_16, NOTHING))
        assert shown.current is not None
        assert shown.current.item is TWO
    shown.show_entries(results_listed((ONE,), MAC_16, NOTHING))
    assert shown.current is None
