"""Costs are measured in slices, kept on disk, and read again; nothing of it touches the session's own cache."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rdchat import paths
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.inference.auto import state as auto_state
from rdchat.inference.auto.costs import measuring
from rdchat.inference.auto.costs.cost_curve import PLAIN_STEP
from rdchat.inference.auto.costs.cost_file import MEASUREMENTS
from rdchat.inference.auto.costs.cost_model import Part
from rdchat.inference.auto.costs.measuring import NEAR, measure_beams, measure_calls, measure_draft_model
from rdchat.inference.auto.plan import MOST_ROWS
from rdchat.inference.auto.state import AutoState, AvailableDrafters
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.session import ChatSession
from rdchat.inference.target.capability import Capability, DraftKind
from rdchat.inference.target.target import LoadedModel
from tests.inference.fakes import ALPHABET, ask, loaded, positions, random_drafter, tiny_llama
from tests.inference.families import CHAINS, network_of


def finished(measurement: object) -> dict[tuple[int, int], float]:
    try:
        while True:
            next(measurement)  # type: ignore[call-overload]
    except StopIteration as end:
        return end.value


def measured_wholly(state: AutoState) -> int:
    slices = 1
    while state.measure():
        slices += 1
    return slices


def test_calls_are_measured_by_rows_at_the_depths_that_the_context_holds() -> None:
    near = finished(measure_calls(tiny_llama(context_length=200)))
    assert {depth for _, depth in near} == {NEAR}
    assert {PLAIN_STEP, 1, 16, MOST_ROWS} < {rows for rows, _ in near}
    assert all(0 < ms < 1000 for ms in near.values())
    assert len({depth for _, depth in finished(measure_calls(tiny_llama(context_length=2048)))}) == 2


@pytest.mark.parametrize("name", sorted(CHAINS))
def test_models_that_follow_chains_are_measured_too(name: str) -> None:
    family, options = CHAINS[name]
    model = loaded(network_of(family, {**options, "vocab_size": len(ALPHABET)}), context_length=200)
    assert (16, NEAR) in finished(measure_calls(model))


def test_a_model_that_verifies_nothing_has_its_plain_steps_measured() -> None:
    plain = replace(tiny_llama(), try_out=lambda: Capability(DraftKind.NONE, "test"))
    assert {rows for rows, _ in finished(measure_calls(plain))} == {PLAIN_STEP}


def test_drafts_are_measured_by_what_they_depend_on() -> None:
    model = tiny_llama()
    assert {(1, 2), (8, 6)} <= set(finished(measure_beams(model, random_drafter(model))))
    assert set(finished(measure_draft_model(DraftModel(model, tiny_llama(seed=3), len(ALPHABET))))) == {
        (1, 0),
        (4, 0),
        (16, 0),
    }


@pytest.mark.parametrize("slow_ms", [0, 10_000])
def test_a_slice_is_one_call_or_three_where_calls_are_slow(slow_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that comes meanwhile has to wait; a plain step lies between two reads, and so takes three calls."""
    calls: list[int] = []
    model = tiny_llama(context_length=200)
    assert model.capability, "trying it out takes calls too"
    called = type(model.network).__call__

    def counted(*args: object, **options: object) -> object:
        calls.append(1)
        return called(*args, **options)

    monkeypatch.setattr(type(model.network), "__call__", counted)
    monkeypatch.setattr(measuring, "_SLOW_MS", slow_ms)
    most = 0
    for _ in measure_calls(model):
        most = max(most, len(calls))
        calls.clear()
    assert most == (5 if slow_ms else 3)


def test_what_was_measured_is_read_by_the_next_session_and_measured_again_where_the_file_is_damaged() -> None:
    model = tiny_llama(context_length=200)
    drafter = random_drafter(model)

    def session() -> AutoState:
        state = AutoState(model)
        state.equip(AvailableDrafters(drafter, Path(__file__).parent))
        return state

    first = session()
    assert measured_wholly(first) > 20
    files = sorted((paths.cache_dir() / "costs").iterdir())
    assert len(files) == 3, "calls, beams, waits"
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


def test_what_is_not_known_is_measured_before_what_is_measured_again() -> None:
    model = tiny_llama(context_length=200)
    measured_wholly(AutoState(model))
    state = AutoState(model)
    state.equip(AvailableDrafters(random_drafter(model), Path(__file__).parent))
    guessed = state.costs.beams_ms()
    while (state.costs.beams_ms() == guessed).all():
        assert state.measure()
    assert list(state._missing) == [Part.CALLS]


def test_a_file_without_plain_steps_is_measured_again_and_breaks_no_reply() -> None:
    model = tiny_llama(context_length=200)
    measured_wholly(AutoState(model))
    (file,) = (paths.cache_dir() / "costs").iterdir()
    data = json.loads(file.read_text())
    data["costs"] = [row for row in data["costs"] if row[0] != PLAIN_STEP]
    file.write_text(json.dumps(data | {"measurements": 99}))
    state = AutoState(model)
    state.equip(AvailableDrafters())
    assert not state.costs.measured
    assert state.costs.plain_ms(100) == 0
    measured_wholly(state)
    assert state.costs.plain_ms(100) > 0


def test_a_model_that_fails_while_it_is_measured_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_model: LoadedModel) -> object:
        raise RuntimeError("no")
        yield

    monkeypatch.setattr(auto_state, "measure_calls", fails)
    state = AutoState(tiny_llama())
    assert not state.measure()
    assert not state.measure()


def test_measuring_between_turns_leaves_the_chat_as_it_was() -> None:
    model = tiny_llama(context_length=2048)
    session, asked = ChatSession(model), ask("abcabcabc", temperature=1, max_tokens=12)
    assert not session.idle(), "nothing was asked yet"
    *_, first = session.generate(asked)
    held = list(session.cache.tokens)
    for _ in range(30):
        assert session.idle()
    assert (session.cache.tokens, positions(session.cache)) == (held, len(held))
    *_, again = session.generate(asked)
    assert isinstance(first, ReplyEnd)
    assert isinstance(again, ReplyEnd)
    assert again.token_ids == first.token_ids
    while session.idle():
        pass
    *_, last = session.generate(asked)
    assert isinstance(last, ReplyEnd)
    assert last.statistics.plain_step_ms > 0
    assert last.statistics.plain_tps is not None


def test_a_session_in_automatic_mode_says_so_and_says_the_same() -> None:
    model = tiny_llama()
    session, asked = ChatSession(model), ask("abcabcabc", temperature=0.7, max_tokens=40)
    automatic = type(asked)(asked.messages, asked.sampling, asked.seed, draft=DraftSettings(Mode.AUTO))
    *_, plain = session.generate(asked)
    *_, end = session.generate(automatic)
    assert isinstance(plain, ReplyEnd)
    assert isinstance(end, ReplyEnd)
    assert (plain.mode, end.mode, end.mode_reason, end.drafter) == (Mode.OFF, Mode.AUTO, None, "prompt lookup")
    assert end.token_ids == plain.token_ids
    assert end.statistics.choice is not None
    assert "not measured yet" in end.statistics.choice.words or end.statistics.choice.mode != Mode.OFF.value
    while session.idle():
        pass
    *_, informed = session.generate(automatic)
    assert isinstance(informed, ReplyEnd)
    assert informed.token_ids == plain.token_ids
    assert informed.statistics.choice is not None
    assert "not measured" not in informed.statistics.choice.words
