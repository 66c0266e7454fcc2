"""What the page says of models: sizes, whether they fit, and how a suggestion came about."""

from dataclasses import replace

from rdchat.hub.hub_model import HubModel
from rdchat.inference.api.model_facts import MemoryRoom
from rdchat.services.models.fit import Machine, sizes_of
from rdchat.services.models.newcomers import Checked, suggestions
from rdchat.ui.models import texts
from tests.services.models.macs import GB, MAC_16

FOUND = HubModel("org/Name-4bit", 1_234_567, 1, "2026-11-01", False, "mit", "llama", "4-bit", 4_000_000_000)


def judged(weights: int, machine: Machine = MAC_16, drafter: int = 0) -> tuple[str, str, str]:
    """Judge a model of the hub by its weights, with a drafter."""
    sizes = sizes_of(weights, "4-bit")
    return texts.judge(machine.need(sizes, drafter), machine.need(sizes), machine.idle.memory)


def test_whether_a_model_fits_is_said_with_the_figures() -> None:
    assert judged(4_000_000_000) == ("Fits: 4.58 GB of 17.2 GB", "", "success")
    tight = ("Tight: 10.7 GB of 17.2 GB", "It may be slow. Close other apps first.", "warning")
    assert judged(10_000_000_000) == tight
    assert judged(40_000_000_000) == ("Too large: needs 29.9 GB more than is available", "", "danger")


def test_little_free_memory_makes_a_model_of_the_hub_tight_and_not_too_large() -> None:
    busy = Machine(replace(MAC_16.memory, room=MemoryRoom(3 * GB, 3 * GB), max_bytes=10 * GB))
    assert judged(4_000_000_000, busy)[0] == "Tight: 4.58 GB of 17.2 GB"


def test_a_drafter_counts_too() -> None:
    text = judged(9_000_000_000, drafter=3_000_000_000)[0]
    assert text.startswith("Loads, but with 4,096 tokens and the drafter it needs ")


def test_facts_of_a_model_are_short() -> None:
    assert texts.row_facts(FOUND) == "org  ·  4-bit  ·  4.00 GB"
    assert texts.compact(FOUND.downloads) == "1.2 M"
    assert [texts.compact(number) for number in (7, 1_500, 12_345, 999_600)] == ["7", "1.5 K", "12 K", "1.0 M"]
    facts = {name: value.replace("\N{NO-BREAK SPACE}", " ") for name, value, _ in texts.hub_facts(FOUND)}
    assert facts["Used"] == "1,234,567 downloads last month, 1 like"
    assert (facts["Changed"], facts["Licence"], facts["Weights"]) == ("1 Nov 2026", "mit", "4.00 GB")


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
