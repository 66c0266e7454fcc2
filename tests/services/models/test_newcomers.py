"""The list for newcomers is whole, and offers each machine what fits it."""

from dataclasses import replace

import pytest

from rdchat.hub.known_files import is_repository
from rdchat.inference.api.model_room import ModelRoom
from rdchat.services.models.discover.fit import Fit, fit_of, needed_bytes
from rdchat.services.models.discover.newcomers import for_machine, suggestions

SIZES = (8, 16, 24, 36, 64, 128)


def mac(memory_gb: int) -> ModelRoom:
    """Return the room of a Mac, of which Metal recommends two thirds, and three quarters from 36 GB on."""
    total = memory_gb * 2**30
    return ModelRoom(int(total * (0.75 if memory_gb >= 36 else 2 / 3)), keeps_quantised=True, total_bytes=total)


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


def test_on_a_cpu_weights_become_float32() -> None:
    room = replace(mac(16), keeps_quantised=False)
    assert needed_bytes(4_500_000_000, "4-bit", room) > 32_000_000_000
    assert fit_of(4_500_000_000, "4-bit", room) is Fit.TOO_LARGE
    assert fit_of(450_000_000, "4-bit", room) is Fit.FITS


def test_what_is_not_known_neither_fits_nor_does_not() -> None:
    assert fit_of(None, "", mac(16)) is Fit.UNKNOWN
    assert fit_of(1, "", None) is Fit.UNKNOWN
