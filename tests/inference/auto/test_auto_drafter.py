"""Costs are measured in slices, stored and read again, without touching the session's cache."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import mlx.nn as nn
import numpy as np
import pytest

from rdchat import machine, paths
from rdchat.errors import OutOfMemoryError
from rdchat.inference.api import Capability, DraftKind, DraftSettings, Mode, ReplyEnd
from rdchat.inference.auto import auto_drafter, measuring
from rdchat.inference.auto.auto_drafter import AutoState, AvailableDrafters, weight_reads
from rdchat.inference.auto.cost_model import MAX_ROWS, MEASUREMENTS, PLAIN_STEP, Part, WeightReads
from rdchat.inference.auto.measuring import (
    DEEP,
    DEEP_ROWS,
    NEAR,
    NEAR_ROWS,
    Measured,
    Measurement,
    depths_of,
    measure_beams,
    measure_calls,
    measure_draft_model,
)
from rdchat.inference.auto.planner import WIDTH
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from rdchat.machine import OtherPrograms
from tests.grids import share
from tests.inference.auto.chips import finished
from tests.inference.fakes import ALPHABET, ask, chains_only, positions, random_drafter, reply_end, shared_llama

pytestmark = pytest.mark.across_rows


def near_calls(model: LoadedModel) -> Measured:
    return finished(measure_calls(model, [NEAR], NEAR_ROWS, OtherPrograms()))


def deep_calls(model: LoadedModel) -> Measured:
    return finished(measure_calls(model, depths_of(model.info.context_length), DEEP_ROWS, OtherPrograms()))


def measured_wholly(state: AutoState) -> int:
    slices = 1
    while state.measure():
        slices += 1
    return slices


@pytest.mark.slow
def test_calls_are_measured_by_rows_at_the_depths_that_the_context_holds() -> None:
    model = shared_llama(context_length=1200)
    near = near_calls(model).costs
    deep = deep_calls(model).costs
    assert {depth for _, depth in near} == {NEAR}
    assert {PLAIN_STEP, 1, 5, 6, 8, 9, 10, 11, 16, MAX_ROWS} < {rows for rows, _ in near}
    assert {depth for _, depth in deep} == {1024}
    assert {PLAIN_STEP, 1, 4, 5, 6, 8, 9, MAX_ROWS} < {rows for rows, _ in deep}
    assert all(0 < ms < 1000 for ms in (near | deep).values())


@pytest.mark.parametrize(
    ("context", "depths"),
    [(100, []), (200, []), (600, [536]), (1088, [1024]), (2048, [1024, 1984]), (4096, [1024, 4032]), (10**6, [*DEEP])],
)
def test_deep_calls_are_measured_as_far_as_the_context_goes(context: int, depths: list[int]) -> None:
    assert depths_of(context) == depths


def test_a_depth_that_would_take_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_MAX_S", 0.0)
    model = shared_llama(context_length=1200)
    assert deep_calls(model) == Measured({}, quiet=True)
    turns: list[int] = []
    for _ in measure_calls(model, [NEAR], NEAR_ROWS, OtherPrograms()):
        turns.append(1)
    assert len(turns) < 2 * (2 + len(NEAR_ROWS)) + 8, "a turn for kernels to be compiled in, and one that counts"


def test_a_model_that_verifies_nothing_has_its_plain_steps_measured() -> None:
    plain = replace(shared_llama(), try_out=lambda: Capability(DraftKind.NONE, "test"))
    for measure in (near_calls, deep_calls):
        assert {rows for rows, _ in measure(plain).costs} == {PLAIN_STEP}


def test_drafts_are_measured_by_what_they_depend_on() -> None:
    model = shared_llama()
    others = OtherPrograms()
    small = DraftModel(model, shared_llama(seed=3), len(ALPHABET))
    head = random_drafter(model)
    assert set(finished(measure_beams(model, head, WIDTH, others)).costs) == {(WIDTH, 2), (WIDTH, 6)}
    assert set(finished(measure_draft_model(small, others)).costs) == {
        (1, 0),
        (4, 0),
        (16, 0),
    }


@pytest.mark.slow
@pytest.mark.parametrize("slow_ms", share([0, 10_000], 2))
def test_a_slice_is_one_call_or_three_where_calls_are_slow(slow_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that comes meanwhile has to wait; a plain step lies between two reads, and so takes three calls."""
    calls: list[int] = []
    model = shared_llama(context_length=200)
    assert model.capability, "trying it out takes calls too"
    called = type(model.network).__call__

    def counted(*args: object, **options: object) -> object:
        calls.append(1)
        return called(*args, **options)

    monkeypatch.setattr(type(model.network), "__call__", counted)
    monkeypatch.setattr(measuring, "_SLOW_MS", slow_ms)
    most = 0
    for _ in measure_calls(model, [NEAR], NEAR_ROWS, OtherPrograms()):
        most = max(most, len(calls))
        calls.clear()
    assert most == (5 if slow_ms else 3)


@pytest.mark.slow
def test_what_was_measured_is_read_by_the_next_session_and_measured_again_where_the_file_is_damaged() -> None:
    model = shared_llama(context_length=200)
    drafter = random_drafter(model)

    def session() -> AutoState:
        state = AutoState(model)
        state.use_drafters(AvailableDrafters(drafter, Path(__file__).parent))
        return state

    first = session()
    assert measured_wholly(first) > 20
    files = sorted((paths.cache_dir() / "costs").iterdir())
    assert len(files) == 2, "calls and beams"
    for _ in range(MEASUREMENTS - 1):
        again = session()
        assert again.costs.measured
        before = [json.loads(file.read_text())["costs"] for file in files]
        assert measured_wholly(again) > 20, "the machine may have been busy"
        after = [json.loads(file.read_text())["costs"] for file in files]
        assert all((np.array(new) <= np.array(old)).all() for new, old in zip(after, before, strict=True))
    last = session()
    assert not last.measure()
    assert last.costs.measured
    files[0].write_text("{")
    assert measured_wholly(session()) > 5
    assert files[0].read_text() != "{"


@pytest.mark.slow
@pytest.mark.parametrize("slowed", ["on_battery", "low_power_mode"])
def test_nothing_is_measured_on_battery_or_with_low_power(slowed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state = AutoState(shared_llama(context_length=200))
    monkeypatch.setattr(machine, slowed, lambda: True)
    assert not state.measure()
    monkeypatch.setattr(machine, slowed, lambda: False)
    for _ in range(5):
        assert state.measure()
    monkeypatch.setattr(machine, slowed, lambda: True)
    assert not state.measure(), "unplugged meanwhile"
    assert not state.costs.measured
    monkeypatch.setattr(machine, slowed, lambda: False)
    measured_wholly(state)
    assert state.costs.measured


@pytest.mark.slow
def test_what_was_measured_while_other_programs_ran_is_used_and_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = shared_llama(context_length=200)
    seconds = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(machine, "others_seconds", lambda: float(next(seconds)))
    monkeypatch.setattr(machine, "_LOOK_S", 0.0)
    monkeypatch.setattr(auto_drafter, "NEAR_ROWS", (1, 9))  # which takes less long
    state = AutoState(model)
    measured_wholly(state)
    assert state.costs.measured
    (file,) = (paths.cache_dir() / "costs").iterdir()
    assert json.loads(file.read_text())["measurements"] == 0
    monkeypatch.setattr(machine, "others_seconds", lambda: 0.0)
    for count in range(1, MEASUREMENTS + 1):
        assert measured_wholly(AutoState(model)) > 10
        assert json.loads(file.read_text())["measurements"] == count
    assert not AutoState(model).measure()


def _measure_plain_steps(state: AutoState) -> int:
    """Measure until plain steps are known; return the number of slices."""
    slices = 1
    while state.measure() and Part.PLAIN in (*state._missing, *(state._running or ())[:1]):
        slices += 1
    return slices


def test_after_a_reply_plain_steps_are_measured_first_where_they_are_unknown() -> None:
    """With a mode chosen by hand, no reply was compared before all calls were measured, after minutes of rest."""
    state = AutoState(shared_llama(context_length=200))
    state.has_replied = True
    assert _measure_plain_steps(state) < 20
    assert state.costs.plain_ms(NEAR) > 0
    assert not state.costs.measured
    assert not (paths.cache_dir() / "costs").exists()
    state.has_replied = True
    assert _measure_plain_steps(state) == 1, "they are known now"


def test_plain_steps_that_other_programs_disturbed_are_measured_again_after_the_next_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(machine, "others_seconds", lambda: float(next(seconds)))
    monkeypatch.setattr(machine, "_LOOK_S", 0.0)
    monkeypatch.setattr(auto_drafter, "NEAR_ROWS", (1, 9))
    state = AutoState(shared_llama(context_length=200))
    state.has_replied = True
    _measure_plain_steps(state)
    assert state.costs.plain_ms(NEAR) == 0
    assert _measure_plain_steps(state) == 1, "once a reply"
    monkeypatch.setattr(machine, "others_seconds", lambda: 0.0)
    while state._running is not None:
        state.measure()
    state.has_replied = True
    _measure_plain_steps(state)
    assert state.costs.plain_ms(NEAR) > 0


def test_the_second_reply_in_a_mode_chosen_by_hand_is_compared() -> None:
    session = ChatSession(shared_llama(context_length=400))
    request = replace(ask("abcabcabcabc", max_tokens=40), draft=DraftSettings(mode=Mode.LOOKUP))
    ends = []
    for _ in range(2):
        ends += [event for event in session.generate(request) if isinstance(event, ReplyEnd)]
        while session.work_while_idle() and session.drafters.auto.costs.plain_is_doubtful:
            pass
    assert [end.statistics.plain_step_ms > 0 for end in ends] == [False, True]


@pytest.mark.slow
def test_deep_calls_are_measured_last_and_fail_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their cache takes memory that may not be there."""

    def fails(model: LoadedModel, depths: Sequence[int], rows: Sequence[int], others: OtherPrograms) -> Measurement:
        if depths == [NEAR]:
            return (yield from measure_calls(model, depths, rows, others))
        yield
        raise RuntimeError("[metal::malloc] Attempting to allocate more than there is")

    monkeypatch.setattr(auto_drafter, "measure_calls", fails)
    model = shared_llama(context_length=512)
    state = AutoState(model)
    state.use_drafters(AvailableDrafters(random_drafter(model), Path(__file__).parent))
    while list(state._missing) != []:
        assert state.measure()
    assert state.costs.measured
    with pytest.raises(OutOfMemoryError):
        state.measure()
    assert not state.measure()
    assert state.costs.measured


ROWS = range(1, MAX_ROWS + 1)
DEAR = {rows: 1.0 + 0.5 * (rows - 1) for rows in ROWS}  # as quantised weights on a CPU
FLAT = dict.fromkeys(ROWS, 1.2)
CHEAP_16 = {1: 1.0, 2: 1.3, 4: 1.9, 8: 2.0, 12: 3.2, 16: 1.64, MAX_ROWS: 4.0}  # as some CPUs have it
CLIFF = {1: 1.0, 8: 1.05, 9: 3.0, MAX_ROWS: 3.1}


@pytest.mark.parametrize(
    ("calls", "draft_tokens", "nodes"),
    share(
        [
            (DEAR, 4, 5),
            (CHEAP_16, 4, 16),
            (CLIFF, 4, 8),
            (CLIFF, 7, 8),
            (FLAT, 4, MAX_ROWS),
            (FLAT, 40, 41),
            (DEAR, 12, 13),
        ],
        4,
    ),
)
def test_a_draft_model_that_is_chosen_by_hand_adds_runner_ups_where_rows_are_cheap(
    calls: dict[int, float], draft_tokens: int, nodes: int
) -> None:
    """It always took 16 nodes on a CPU, which cost 3 % against mlx-lm's chain of 5 on one whose 16 rows are dear."""
    model = shared_llama()
    state = AutoState(model)
    draft = DraftModel(model, shared_llama(seed=3), len(ALPHABET))
    sampling = ask("abc").sampling
    assert state.draft_shape(draft, sampling, draft_tokens, 128) == DraftShape(draft_tokens)
    state.costs.use(Part.CALLS, {(PLAIN_STEP, 128): 10.0, **{(rows, 128): 10 * ms for rows, ms in calls.items()}})
    shape = state.draft_shape(draft, sampling, draft_tokens, 128)
    assert (shape.draft_tokens, shape.nodes) == (draft_tokens, nodes)


def test_a_target_that_takes_chains_gets_a_chain_of_a_draft_model_whatever_rows_cost() -> None:
    model = chains_only(shared_llama())
    state = AutoState(model)
    draft = DraftModel(model, shared_llama(seed=3), len(ALPHABET))
    state.costs.use(Part.CALLS, {(PLAIN_STEP, 128): 10.0, **{(rows, 128): 10 * ms for rows, ms in FLAT.items()}})
    assert state.draft_shape(draft, ask("abc").sampling, 4, 128).nodes == 5


@pytest.mark.slow
def test_what_is_not_known_is_measured_before_what_is_measured_again() -> None:
    model = shared_llama(context_length=200)
    measured_wholly(AutoState(model))
    state = AutoState(model)
    state.use_drafters(AvailableDrafters(random_drafter(model), Path(__file__).parent))
    guessed = state.costs.beams_ms(WIDTH)
    while (state.costs.beams_ms(WIDTH) == guessed).all():
        assert state.measure()
    assert list(state._missing) == [Part.CALLS]


def test_a_model_that_fails_while_it_is_measured_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> object:
        raise RuntimeError("no")
        yield

    monkeypatch.setattr(auto_drafter, "measure_calls", fails)
    state = AutoState(shared_llama(context_length=200))
    assert not state.measure()
    assert not state.measure()


@pytest.mark.slow
def test_measuring_between_turns_leaves_the_chat_as_it_was() -> None:
    model = shared_llama(context_length=512)
    session = ChatSession(model)
    asked = ask("abcabcabc", temperature=1, max_tokens=12)
    assert not session.work_while_idle(), "nothing was asked yet"
    *_, first = session.generate(asked)
    held = list(session.cache.tokens)
    for _ in range(30):
        assert session.work_while_idle()
    assert (session.cache.tokens, positions(session.cache)) == (held, len(held))
    *_, again = session.generate(asked)
    assert isinstance(first, ReplyEnd)
    assert isinstance(again, ReplyEnd)
    assert again.token_ids == first.token_ids
    while session.work_while_idle():
        pass
    last = reply_end(session.generate(asked))
    assert last.statistics.plain_step_ms > 0
    assert last.statistics.plain_tps is not None


@pytest.mark.slow
def test_a_session_in_automatic_mode_says_so_and_says_the_same() -> None:
    model = shared_llama()
    session = ChatSession(model)
    asked = ask("abcabcabc", temperature=0.7, max_tokens=40)
    automatic = type(asked)(asked.messages, asked.sampling, asked.seed, draft=DraftSettings(Mode.AUTO))
    *_, plain = session.generate(asked)
    *_, end = session.generate(automatic)
    assert isinstance(plain, ReplyEnd)
    assert isinstance(end, ReplyEnd)
    assert (plain.mode, end.mode, end.mode_reason, end.drafter) == (Mode.OFF, Mode.AUTO, None, "prompt lookup")
    assert end.token_ids == plain.token_ids
    assert end.statistics.choice is not None
    assert "Not drafting" in end.statistics.choice.words or end.statistics.choice.mode != Mode.OFF.value
    while session.work_while_idle():
        pass
    informed = reply_end(session.generate(automatic))
    assert informed.token_ids == plain.token_ids
    assert informed.statistics.choice is not None
    assert "not measured" not in informed.statistics.choice.words


@pytest.mark.parametrize(
    ("device", "weights", "reads"),
    [
        ("Apple M1 Max", "affine", WeightReads.BY_ROW),
        ("Apple M2", "affine", WeightReads.BY_ROW),
        ("Apple M2 Pro", "mxfp4", WeightReads.SHARED),
        ("Apple M1", "mxfp8", WeightReads.SHARED),
        ("Apple M1", "16 bit", WeightReads.TILED),
        ("Apple M2 Ultra", "16 bit", WeightReads.TILED),
        ("Apple M3 Max", "affine", WeightReads.SHARED),
        ("Apple M3", "16 bit", WeightReads.SHARED),
        ("Apple M11", "affine", WeightReads.SHARED),
        ("CPU", "affine", WeightReads.SHARED),
    ],
)
def test_how_machines_read_the_weights_for_a_few_rows(device: str, weights: str, reads: WeightReads) -> None:
    network = nn.Sequential(nn.Linear(64, 64))
    if weights != "16 bit":
        nn.quantize(network, mode=weights)
    llama = shared_llama()
    assert weight_reads(replace(llama, network=network, info=replace(llama.info, device=device))) is reads


def test_the_kind_of_most_weights_counts() -> None:
    """In gpt-oss, experts are MXFP4, and attention is affine."""
    network = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 640))
    for layer, mode in zip(network.layers, ("affine", "mxfp4"), strict=True):
        nn.quantize(network, mode=mode, class_predicate=lambda _path, each, layer=layer: each is layer)
    llama = shared_llama()
    assert weight_reads(replace(llama, network=network, info=replace(llama.info, device="Apple M1"))) is (
        WeightReads.SHARED
    )
