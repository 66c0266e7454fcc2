"""What the page says of models: sizes, whether they fit, and how a suggestion came about."""

from dataclasses import replace

import pytest

from rdchat.hub.hub_model import HubModel
from rdchat.inference.api.model_facts import Fit, MachineMemory, MemoryRoom
from rdchat.services.models.fit import Machine, sizes_of
from rdchat.services.models.newcomers import Checked, suggestions
from rdchat.ui.models import texts
from rdchat.ui.style.formatting import MACHINE
from tests.services.models.macs import GB, MAC_16

HELD = "4-bit, 4,096 tokens of context"
FOUND = HubModel("org/Name-4bit", 1_234_567, 1, "2026-11-01", False, "mit", "llama", "4-bit", 4_000_000_000)


@pytest.mark.parametrize(
    ("weights", "said", "fit"),
    [
        (
            4_000_000_000,
            f"Fits {MACHINE}: needs about 4.58 GB ({HELD}), 11.5 GB is available.",
            Fit.FITS,
        ),
        (
            10_000_000_000,
            f"Tight on {MACHINE}: needs about 10.7 GB ({HELD}), 11.5 GB is available.",
            Fit.TIGHT,
        ),
        (
            40_000_000_000,
            f"Too large for {MACHINE}: needs about 41.3 GB ({HELD}), but only 11.5 GB is available.",
            Fit.TOO_LARGE,
        ),
    ],
)
def test_whether_a_model_fits_is_said_with_the_figures(weights: int, said: str, fit: Fit) -> None:
    assert texts.memory_text(sizes_of(weights, "4-bit"), MAC_16) == (said, fit)


def test_little_free_memory_is_said() -> None:
    busy = Machine(replace(MAC_16.memory, room=MemoryRoom(10 * GB, 4 * GB)))
    text, fit = texts.memory_text(sizes_of(4_000_000_000, "4-bit"), busy)
    assert text.endswith("10.7 GB is available, and 4.29 GB is free now.")
    assert fit is Fit.TIGHT


def test_what_does_not_fit_a_cpu_says_in_which_precision() -> None:
    small = Machine(MachineMemory(False, 8 * GB, MemoryRoom(5 * GB, 5 * GB), 0, int(6.4 * GB)))
    text, fit = texts.memory_text(sizes_of(2_300_000_000, "4-bit"), small)
    assert text == f"Too large: float32 on a CPU needs about 17.4 GB; {MACHINE} has 8.59 GB."
    assert fit is Fit.TOO_LARGE


def test_a_drafter_counts_too() -> None:
    text, fit = texts.memory_text(sizes_of(9_000_000_000, "4-bit"), MAC_16, 3_000_000_000)
    assert fit is Fit.TOO_LARGE
    assert "of context, with its drafter" in text


def test_what_nobody_knows_is_said() -> None:
    assert texts.memory_text(None, MAC_16) == ("The size of its weights is unknown.", None)
    assert texts.memory_text(sizes_of(1, ""), None) == ("", None)


def test_facts_of_a_model_are_short() -> None:
    assert texts.row_facts(FOUND) == "org  ·  4-bit  ·  4.00 GB"
    assert texts.compact(FOUND.downloads) == "1.2 M"
    assert [texts.compact(number) for number in (7, 1_500, 12_345, 999_600)] == ["7", "1.5 K", "12 K", "1.0 M"]
    popularity = texts.popularity(FOUND).replace("\N{NO-BREAK SPACE}", " ")
    assert popularity == "1,234,567 downloads last month  ·  1 like  ·  changed 1 Nov 2026"


def test_a_suggestion_says_whether_the_hub_was_asked() -> None:
    (chosen,) = {each.chosen for each in suggestions()}
    assert "not yet found on Hugging Face" in texts.check_text(None, chosen)
    there = Checked("2026-12-01", "", False)
    gone = Checked("2026-12-01", "org/x is not on Hugging Face, or no longer.", False)
    assert (
        texts.check_text(there, chosen)
        .replace("\N{NO-BREAK SPACE}", " ")
        .endswith("Last seen on Hugging Face on 1 Dec 2026.")
    )
    assert texts.check_text(gone, chosen).endswith("org/x is not on Hugging Face, or no longer.")
