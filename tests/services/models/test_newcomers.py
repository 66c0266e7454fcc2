"""The list for newcomers is whole, and offers each machine what fits it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdchat.hub.hub_model import PublishedKind
from rdchat.hub.names import is_repository
from rdchat.hub.newcomers import drafter_for, stored_suggestions, suggestion_of, suggestions
from rdchat.inference.api.model_facts import Fit, MachineMemory, MemoryRoom
from rdchat.services.models.fit import Machine, sizes_suggested
from rdchat.services.models.newcomers import for_machine, smallest_that_sees, suggested_fit
from tests.inference.drafting.drafters_table import rows
from tests.services.models.macs import GB, mac

SIZES = (8, 16, 24, 32, 48, 64, 128)


def test_there_are_few_models_and_one_to_three_for_each_size_of_memory() -> None:
    sizes = [each.memory_gb for each in suggestions()]
    assert sizes == sorted(sizes)
    assert set(sizes) == set(SIZES)
    assert len(sizes) <= 12
    assert max(map(sizes.count, SIZES)) <= 3


def test_every_entry_says_when_why_and_where_it_is_written() -> None:
    """In the file; the window shows only what a person chooses by."""
    for each, stored in zip(suggestions(), stored_suggestions(), strict=True):
        assert is_repository(each.repository)
        assert is_repository(each.drafter.repository)
        assert stored["chosen"] >= "2026-11-26"
        assert all((each.name, each.good_for, each.why, each.licence))
        for entry in (stored, stored["drafter"]):
            assert entry["size_from"]
            assert entry["sources"]
            assert all(source["url"].startswith("https://") and source["says"] for source in entry["sources"])
        assert 0 < each.drafter.weights_gb < each.weights_gb


def test_every_drafter_is_of_a_kind_that_rdchat_reads_for_its_model() -> None:
    """`rows` is the table of docs/drafters.md, which other tests compare with the readers."""
    for each in suggestions():
        layers, published = rows()[each.family]
        assert layers.startswith("read") if each.drafter.kind == "MTP" else each.drafter.kind in published, each.name
        assert each.drafter.kind in {*PublishedKind, "DFlash 2", "MTP"}, each.name


def test_the_page_has_the_list() -> None:
    page = (Path(__file__).parents[3] / "docs/newcomers.md").read_text(encoding="utf-8")
    told = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in page.splitlines() if "| `" in line]
    rows = []
    for each in suggestions():
        own, size = each.drafter, f"{each.weights_gb:g} + {each.drafter.weights_gb:g} GB"
        pair = [each.repository, each.licence, own.repository, own.kind, own.licence or "not read"]
        rows.append([f"{each.memory_gb} GB", *pair, size])
    assert told == rows


def test_a_model_has_one_drafter() -> None:
    names = [each.repository for each in suggestions()]
    assert len(names) == len(set(names))
    for each in suggestions():
        assert suggestion_of(each.repository) is each
        assert drafter_for(each.repository) is each.drafter
    assert drafter_for("org/other") is None


@pytest.mark.parametrize("memory_gb", SIZES)
def test_a_mac_is_offered_what_was_chosen_for_its_memory(memory_gb: int) -> None:
    found = for_machine(mac(memory_gb))
    assert found
    assert {each.memory_gb for each in found} == {memory_gb}
    assert all(suggested_fit(each, mac(memory_gb)) in {Fit.FITS, Fit.TIGHT} for each in found)


@given(st.sampled_from(SIZES), st.booleans(), *(st.floats(0, 1),) * 2)
def test_what_is_offered_does_not_change_with_the_free_memory(
    memory_gb: int, on_gpu: bool, one: float, other: float
) -> None:
    """A first start offered Qwen3.5 4B, and the next one a smaller model."""
    total = memory_gb * GB

    def with_free(share: float) -> Machine:
        free = int(total * share)
        return Machine(MachineMemory(on_gpu, total, MemoryRoom(free, free), 0, max_bytes=int(0.8 * total)))

    first, second = with_free(one), with_free(other)
    assert for_machine(first) == for_machine(second)
    assert smallest_that_sees(first) == smallest_that_sees(second)
    for each in suggestions():
        verdicts = {suggested_fit(each, machine) is Fit.TOO_LARGE for machine in (first, second)}
        assert len(verdicts) == 1, each.name


def test_a_mac_between_two_sizes_gets_the_smaller_one() -> None:
    assert {each.memory_gb for each in for_machine(mac(36))} == {32}
    assert {each.memory_gb for each in for_machine(mac(512))} == {128}


def test_a_machine_with_too_little_memory_is_offered_none() -> None:
    assert for_machine(mac(2)) == ()


def test_a_machine_is_judged_by_its_whole_memory_not_by_what_is_free() -> None:
    """A browser with many tabs hid every model that fits the machine."""
    room = MemoryRoom(3 * GB, 3 * GB)
    busy = Machine(MachineMemory(False, 30 * GB, room, 0, 24 * GB))
    found = for_machine(busy)
    assert [each.name for each in found] == ["Qwen3.5 4B", "MiniCPM5 2B"]
    assert suggested_fit(found[0], busy) is Fit.TIGHT
    assert busy.refuses(sizes_suggested(found[0])), "until other programs are closed"


def test_the_smallest_that_sees_fits_and_is_of_a_family_that_is_read() -> None:
    offered = [smallest_that_sees(mac(memory)) for memory in (4, 8, 128)]
    assert [each.name if each else "" for each in offered] == ["", "Qwen3.5 4B", "Qwen3.5 4B"]
    assert {each.family for each in suggestions() if each.sees} == {"qwen3_5", "qwen3_5_moe", "gemma4"}
