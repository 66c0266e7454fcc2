"""The list for newcomers is whole, and offers each machine what fits it."""

import pytest

from rdchat.hub.known_files import is_repository
from rdchat.inference.api.model_facts import Fit, MachineMemory, MemoryRoom
from rdchat.services.models.fit import Machine
from rdchat.services.models.newcomers import for_machine, suggestions
from tests.services.models.macs import GB, mac

SIZES = (8, 16, 24, 36, 64, 128)


def test_there_are_one_or_two_models_for_each_size_of_memory() -> None:
    sizes = [each.memory_gb for each in suggestions()]
    assert sizes == sorted(sizes)
    assert {size: sizes.count(size) for size in SIZES} == dict.fromkeys(SIZES, 2)


def test_every_entry_says_when_why_and_where_it_is_written() -> None:
    for each in suggestions():
        assert is_repository(each.repository)
        assert is_repository(each.drafter.repository)
        assert each.chosen >= "2026-11-22"
        assert all((each.name, each.good_for, each.why, each.size_from, each.sources, each.drafter.sources))
        assert all(source.url.startswith("https://") and source.says for source in each.sources)
        assert each.drafter.size_from


@pytest.mark.parametrize("memory_gb", SIZES)
def test_a_mac_is_offered_what_was_chosen_for_its_memory(memory_gb: int) -> None:
    found = for_machine(mac(memory_gb))
    assert found
    assert {each.memory_gb for each in found} == {memory_gb}
    assert all(each.fit(mac(memory_gb)) in {Fit.FITS, Fit.TIGHT} for each in found)


def test_a_mac_between_two_sizes_gets_the_smaller_one() -> None:
    assert {each.memory_gb for each in for_machine(mac(48))} == {36}
    assert {each.memory_gb for each in for_machine(mac(512))} == {128}


def test_a_machine_with_too_little_memory_is_offered_none() -> None:
    assert for_machine(mac(2)) == ()


def test_a_machine_is_judged_by_its_whole_memory_not_by_what_is_free() -> None:
    """A browser with many tabs hid every model that fits the machine."""
    room = MemoryRoom(3 * GB, 3 * GB)
    busy = Machine(MachineMemory(False, 24 * GB, room, 0, int(19.2 * GB)))
    found = for_machine(busy)
    assert [each.name for each in found] == ["Qwen3 4B", "Llama 3.2 3B"]
    assert found[0].fit(busy) is Fit.TIGHT
    assert busy.refuses(found[0].sizes), "until other programs are closed"
