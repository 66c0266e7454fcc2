"""The list for newcomers is whole, and offers each machine what fits it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rdchat.hub import PublishedKind, drafter_for, is_repository, stored_suggestions, suggestion_of, suggestions
from rdchat.inference.api import Fit, MachineMemory, MemoryRoom, ModelCard
from rdchat.services.models.fit import Machine
from rdchat.services.models.larger_model import (
    best_here,
    for_machine,
    smallest_that_sees,
    suggested_fit,
    words_a_second,
)
from tests.inference.drafting.drafters_table import rows
from tests.services.models.library_samples import library_model
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
        own = each.drafter
        size = f"{each.weights_gb:g} + {each.drafter.weights_gb:g} GB"
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

    first = with_free(one)
    second = with_free(other)
    assert for_machine(first) == for_machine(second)
    assert smallest_that_sees(first) == smallest_that_sees(second)
    for each in suggestions():
        verdicts = {suggested_fit(each, machine) is Fit.TOO_LARGE for machine in (first, second)}
        assert len(verdicts) == 1, each.name


@pytest.mark.parametrize(
    ("name", "on_gpu", "words"),
    [
        # 3.04 GB a token as they are on a GPU, 5.4 billion weights in float32 on a CPU
        ("Qwen3.5 4B", True, 0.75 * 0.8 * 100 / 3.04),
        ("Qwen3.5 4B", False, 0.75 * 0.8 * 100 / (3.04 * 8 / 4.5 * 4)),
        # nine of a hundred weights work for each token
        ("Qwen3.6 35B-A3B", True, 0.75 * 0.8 * 100 / (20.4 * 0.09)),
    ],
)
def test_a_model_writes_as_fast_as_its_working_weights_are_read(name: str, on_gpu: bool, words: float) -> None:
    (suggestion,) = [each for each in suggestions() if each.name == name]
    measured = replace(mac(64).memory, on_gpu=on_gpu, bytes_per_second=100e9)
    assert words_a_second(suggestion, Machine(measured)) == pytest.approx(words)
    assert words_a_second(suggestion, mac(64)) == 0


def test_mixtures_have_a_share_of_their_weights_that_works() -> None:
    shares = {each.name: each.active_share for each in suggestions() if each.active_share != 1}
    assert all(0 < share < 1 for share in shares.values())
    named = {each.name for each in suggestions() if re.search(r"-A\d+B|E4B|gpt-oss", each.name)}
    assert named == shares.keys()


def test_a_mac_between_two_sizes_gets_the_smaller_one() -> None:
    assert {each.memory_gb for each in for_machine(mac(36))} == {32}
    assert {each.memory_gb for each in for_machine(mac(512))} == {128}
    assert for_machine(mac(2)) == ()


@pytest.mark.parametrize("memory_gb", [None, 2, 4, *SIZES])
def test_there_is_always_a_model_that_sees_and_it_is_known_whether_it_fits(memory_gb: int | None) -> None:
    machine = None if memory_gb is None else mac(memory_gb)
    found, fits = smallest_that_sees(machine)
    assert found.name == "Qwen3.5 4B"
    assert fits is (memory_gb in SIZES)


def card(name: str, billions: float, **changed: object) -> ModelCard:
    return library_model(name, int(billions * 10**9), **{"has_template": True, **changed})


MLX = card("org/a-4B-4bit", 4)
SIZED = MLX.sizes
assert SIZED is not None
EIGHT_BIT = replace(MLX, model="org/a-4B-8bit", sizes=replace(SIZED, stored_bytes=2 * SIZED.stored_bytes))
NO_MODELS = (
    card("org/b-8B", 8, problem="A file is missing."),
    card("org/c-8B", 8, download_bytes=100),
    card("org/d-8B", 8, is_drafter=True),
    card("org/e-8B", 8, has_template=False),
    card("org/f-8B-Base", 8),
    card("google/g-8b-pt-4bit", 8),
    card("org/h-Embedding-8B", 8),
    card("org/i-reranker-8B", 8),
    card("org/j-70B", 70),
    card("org/k-8B", 8, sizes=None),
    card("", 8),
)


@pytest.mark.parametrize(
    ("here", "best"),
    [
        ((MLX, EIGHT_BIT), EIGHT_BIT),
        # The default model's own size, in another precision.
        ((card("org/SmolLM2-135M-Instruct-8bit", 0.1345),), None),
        # Words that only contain one of the others.
        ((card("org/Database-Optimus-4B", 4),), card("org/Database-Optimus-4B", 4)),
    ],
)
def test_the_largest_model_here_that_answers_and_fits_is_the_best(
    here: tuple[ModelCard, ...], best: ModelCard | None
) -> None:
    for order in (here, here[::-1]):
        assert best_here(order, mac(16), 134_500_000) == best


@given(
    st.lists(st.sampled_from((MLX, EIGHT_BIT, card("org/l-1B", 1), card("org/m-14B", 14), *NO_MODELS))),
    st.sampled_from((2, *SIZES)),
)
def test_best_model_here_is_the_largest_usable_one(here: list[ModelCard], memory_gb: int) -> None:
    machine = mac(memory_gb)
    usable = [
        each for each in here
        if each not in NO_MODELS or (each.name == "org/j-70B" and machine.fit(each.sizes) is not Fit.TOO_LARGE)
        if machine.fit(each.sizes) is not Fit.TOO_LARGE
    ]  # fmt: skip
    best = best_here(here, machine)
    assert (best is None) is (not usable)
    if best is not None and best.sizes is not None:
        assert best in usable
        assert best.sizes.parameters == max(each.sizes.parameters for each in usable if each.sizes)
