"""The entries of the Models window's lists, and the list, which takes changed ones."""

from dataclasses import replace
from itertools import pairwise

import pytest
from pytestqt.qtbot import QtBot

from rdchat.hub import HubModel, suggestions
from rdchat.inference.api import Dtype, MemoryRoom
from rdchat.services.models.fit import Machine, sizes_of, sizes_read, sizes_suggested
from rdchat.services.models.larger_model import check_text
from rdchat.ui.models import model_texts
from rdchat.ui.models.list_entries import newcomer_entries, results_listed
from rdchat.ui.models.memory_section import MemoryChart, MemoryPart, judge
from rdchat.ui.models.model_list import ModelList
from rdchat.ui.style import Theme, scaled
from rdchat.ui.style.formatting import MACHINE
from tests.services.models.macs import GB, MAC_16, mac

FOUND = HubModel("org/Name-4bit", 1_234_567, 1, "2026-11-01", False, "mit", "llama", "4-bit", 4_000_000_000)


def judged(weights: int, machine: Machine = MAC_16, drafter: int = 0) -> tuple[str, str, str]:
    """Judge a model of the hub by its weights, with a drafter."""
    sizes = sizes_of(weights, "4-bit")
    return judge(machine.need(sizes, drafter), machine.need(sizes), machine.when_idle.memory)


def test_whether_a_model_fits_is_said_with_the_figures() -> None:
    assert judged(4_000_000_000) == ("Fits: 4.58 GB of 17.2 GB", "", "success")
    tight = ("Tight: 10.7 GB of 17.2 GB", "It may be slow. Close other apps first.", "warning")
    assert judged(10_000_000_000) == tight
    assert judged(40_000_000_000) == ("Too large: needs 29.9 GB more than is available", "", "danger")
    text = judged(9_000_000_000, drafter=3_000_000_000)[0]
    assert text.startswith("Loads, but with 4,096 tokens and the drafter it needs ")


def test_little_free_memory_makes_a_model_of_the_hub_tight_and_not_too_large() -> None:
    busy = Machine(replace(MAC_16.memory, room=MemoryRoom(3 * GB, 3 * GB), max_bytes=10 * GB))
    assert judged(4_000_000_000, busy)[0] == "Tight: 4.58 GB of 17.2 GB"


def test_a_pair_has_one_verdict_in_the_list_and_in_the_details() -> None:
    """The list said "Too large" with the drafter, the details judged without."""
    twenty = next(each for each in suggestions() if each.name == "gpt-oss 20B")
    small = Machine(replace(MAC_16.memory, room=MemoryRoom(15 * GB, 15 * GB), max_bytes=15 * GB))
    need = small.need(sizes_suggested(twenty), twenty.drafter.weight_bytes)
    words = judge(need, need, small.when_idle.memory)[0]
    assert words == "Too large with its drafter: needs 75 MB more than is available"
    listed = {entry.key: entry for entry in newcomer_entries(small, frozenset())}
    hub = HubModel(twenty.repository, quantization="4-bit", weight_bytes=twenty.weight_bytes)
    found = results_listed([hub], small, frozenset())
    for entry in (listed[twenty.repository], *found):
        assert ("Too large", "muted") in entry.marks
        assert entry.tip.endswith(words)
    assert listed[twenty.repository].facts == "15.4 GB with its drafter"


def test_a_group_fits_where_all_of_it_does() -> None:
    """Its heading said that it fits, above an entry that is too large."""
    for gigabytes in range(2, 65):
        for machine in (mac(gigabytes), replace(mac(gigabytes), dtype=Dtype.FLOAT32)):
            newcomers = newcomer_entries(machine, frozenset())
            heads = [index for index, entry in enumerate(newcomers) if not entry.key]
            for head, end in pairwise([*heads, len(newcomers)]):
                if "Too large" not in newcomers[head].title:
                    assert not any(("Too large", "muted") in entry.marks for entry in newcomers[head:end])
    assert newcomer_entries(MAC_16, frozenset())[0].title == f"Best for {MACHINE}"


def test_a_model_whose_size_the_hub_does_not_give_is_judged_by_its_name() -> None:
    """It had no verdict."""
    names = {"Qwen9-8B-4bit": 4.5, "some-70b-8bit": 74.4, "tiny-350M": 0.7, "Other-35B-A3B-4bit": 19.7}
    for name, gigabytes in names.items():
        hub = HubModel(f"org/{name}", quantization=f"{name[-4]}-bit" if name.endswith("bit") else "")
        sizes = sizes_read(hub)
        assert sizes.stored_bytes == pytest.approx(gigabytes * 1e9, rel=0.01)
        (entry,) = results_listed([hub], MAC_16, frozenset())
        assert bool(entry.marks) == (gigabytes > 10)
    unknown = ("Gem-E4B", "Mix-8x7B", "plain", "internlm2-chat-1_8b-4bit", "Phi-4B-MoE-4bit")
    for name in (*unknown, "Llama-4-Scout-17B-16E-Instruct-4bit", "llama-4-maverick-17b-128e"):
        assert sizes_read(HubModel(f"org/{name}")) is None, name


def test_facts_of_a_model_are_short() -> None:
    (entry,) = results_listed([FOUND], None, frozenset())
    assert (entry.facts, entry.use) == ("org  ·  4-bit  ·  4.00 GB", "1.2 M downloads")
    assert [model_texts.compact(number) for number in (7, 1_500, 12_345, 999_600)] == ["7", "1.5 K", "12 K", "1.0 M"]
    facts = {name: value.replace("\N{NO-BREAK SPACE}", " ") for name, value, _ in model_texts.hub_facts(FOUND)}
    assert facts["Used"] == "1,234,567 downloads last month, 1 like"
    assert (facts["Changed"], facts["Licence"], facts["Weights"]) == ("1 Nov 2026", "mit", "4.00 GB")


def test_a_suggestion_gives_its_licences() -> None:
    suggestion = next(each for each in suggestions() if each.licence == each.drafter.licence)
    unread, other = (replace(suggestion, drafter=replace(suggestion.drafter, licence=name)) for name in ("", "mit"))
    assert [check_text(each) for each in (suggestion, unread, other)] == [
        "Licence: apache-2.0. Not tried with rdchat.",
        "Licence: apache-2.0; of the drafter: unknown. Not tried with rdchat.",
        "Licence: apache-2.0; of the drafter: mit. Not tried with rdchat.",
    ]


ONE, TWO, THREE = (
    HubModel(f"org/{name}-4bit", 10, 1, "2026-11-01", False, "mit", "llama", "4-bit", size)
    for name, size in (("One", 4_000_000_000), ("Two", 5_000_000_000), ("Three", 40_000_000_000))
)
NOTHING: frozenset[str] = frozenset()


def test_marks_say_what_is_here_and_what_is_too_large() -> None:
    entries = results_listed((ONE, TWO, THREE), MAC_16, NOTHING)
    assert ("Too large", "muted") in entries[2].marks
    assert [entry.use for entry in entries] == ["10 downloads", "10 downloads", "needs 41.3 GB"]
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
        assert shown.current.item is TWO
    shown.show_entries(results_listed((ONE,), MAC_16, NOTHING))
    assert shown.current is None


def test_the_legend_of_the_memory_grows_with_the_text(qtbot: QtBot, theme: Theme) -> None:
    chart = MemoryChart(theme)
    qtbot.addWidget(chart)
    chart.show_parts([MemoryPart("Weights", "writing", 10**9, "as 4-bit")], 2 * 10**9)
    marks = lambda: [mark.box.height() for mark in chart.drawing.marks]  # noqa: E731
    bar, line, _limit = marks()
    height = chart.sizeHint().height()
    theme.set_text_size(20)
    assert marks() == [bar, scaled(20), scaled(20)]
    assert chart.drawing.size == scaled(13)
    assert chart.sizeHint().height() > height
    assert scaled(20) > 1.3 * line
