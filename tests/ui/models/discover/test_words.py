"""What the page says of models: sizes, whether they fit, and how a suggestion came about."""

from dataclasses import replace

import pytest

from rdchat.hub.found_models import FoundModel
from rdchat.inference.api.memory_facts import Fit, MemoryRoom
from rdchat.services.models.discover.fit import Machine, sizes_of
from rdchat.services.models.discover.newcomers import Checked, suggestions
from rdchat.ui.look.formatting import MACHINE
from rdchat.ui.models.discover import words
from tests.services.models.macs import GB, MAC_16

FOUND = FoundModel("org/Name-4bit", 1_234_567, 1, "2026-11-01", False, "mit", "llama", "4-bit", 4_000_000_000)


@pytest.mark.parametrize(
    ("weights", "said", "fit"),
    [
        (4_000_000_000, f"Fits {MACHINE}: about 4.3 GB", Fit.FITS),
        (10_000_000_000, f"Tight on {MACHINE}: about 10 GB", Fit.TIGHT),
        (40_000_000_000, f"Too large for {MACHINE}: about 38.5 GB", Fit.TOO_LARGE),
    ],
)
def test_whether_a_model_fits_is_said_with_the_figures(weights: int, said: str, fit: Fit) -> None:
    figures = f"{said} with 4,096 tokens of context, of 10.7 GB that models may take."
    assert words.memory_words(sizes_of(weights, "4-bit"), MAC_16) == (figures, fit)


def test_little_free_memory_is_said() -> None:
    busy = Machine(replace(MAC_16.memory, room=MemoryRoom(10 * GB, 4 * GB)))
    text, fit = words.memory_words(sizes_of(4_000_000_000, "4-bit"), busy)
    assert text.endswith("of 10 GB that models may take, 4 GB of it free now.")
    assert fit is Fit.TIGHT


def test_a_drafter_counts_too() -> None:
    text, fit = words.memory_words(sizes_of(9_000_000_000, "4-bit"), MAC_16, 3_000_000_000)
    assert fit is Fit.TOO_LARGE
    assert "of context and its drafter" in text


def test_what_nobody_knows_is_said() -> None:
    assert words.memory_words(None, MAC_16) == ("The hub does not say how large its weights are.", None)
    assert words.memory_words(sizes_of(1, ""), None) == ("", None)


def test_facts_of_a_model_are_short() -> None:
    assert words.row_facts(FOUND) == "org  ·  4-bit  ·  4.00 GB"
    assert words.download_count(FOUND.downloads) == "1.2 M downloads"
    assert [words.compact(number) for number in (7, 1_500, 12_345, 999_600)] == ["7", "1.5 K", "12 K", "1.0 M"]
    popularity = words.popularity(FOUND).replace("\N{NO-BREAK SPACE}", " ")
    assert popularity == "1,234,567 downloads last month  ·  1 like  ·  changed 1 Nov 2026"


def test_a_suggestion_says_whether_the_hub_was_asked() -> None:
    (chosen,) = {each.chosen for each in suggestions()}
    assert "not yet checked against the hub" in words.check_words(None, chosen)
    there = Checked("2026-12-01", "", "mit", False, 1)
    gone = Checked("2026-12-01", "The hub has no org/x, or no longer.", "", False, 0)
    assert words.check_words(there, chosen).replace("\N{NO-BREAK SPACE}", " ").endswith("The hub had it on 1 Dec 2026.")
    assert words.check_words(gone, chosen).endswith("The hub has no org/x, or no longer.")
