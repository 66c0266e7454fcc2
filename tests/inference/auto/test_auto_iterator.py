"""Switching between plain steps and rounds changes neither text nor counts nor cache."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle, pairwise
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import DraftSettings, GenerationRequest, Mode, ReplyEnd, TokenEvent
from rdchat.inference.auto.auto_drafter import AutoDrafter, AutoState, AvailableDrafters
from rdchat.inference.auto.controller import Controller
from rdchat.inference.auto.cost_model import MAX_ROWS, PLAIN_STEP, CostModel, Part
from rdchat.inference.auto.planner import LONGEST, Choice, Drafts, Plan, Planner, draft_model_source
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.loop import Call, CallResult
from rdchat.inference.decoding.reply import Clock, ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.auto.automatic_replies import (
    Known,
    RandomPlanner,
    automatic,
    iterator_of,
    reply_of,
    state_of,
)
from tests.inference.auto.chips import Chip
from tests.inference.auto.simulation import Drafting, Simulation
from tests.inference.fakes import (
    ALPHABET,
    ask,
    random_drafter,
    reply_end,
    shared_family,
    shared_llama,
    tiny_llama,
    token_events,
)
from tests.inference.families import CHAINS, TREES
from tests.inference.plain_replies import ENDING_SEEDS, SAMPLINGS, plain

pytestmark = pytest.mark.across_rows


def check_same(model: LoadedModel, request: GenerationRequest, modes: tuple[Mode, ...], seed: int = 0) -> ReplyEnd:
    expected = plain(model, request)
    events, cache, draft_cache = automatic(model, request, modes, seed)
    end = reply_end(events)
    assert (end.token_ids, end.text, end.finish_reason) == (expected.token_ids, expected.text, expected.finish_reason)
    told = token_events(events)
    assert [event.token_id for event in told][: len(end.token_ids)] == list(end.token_ids)
    said = [*model.encode_chat(request.messages), *end.token_ids]
    for held in (cache, draft_cache):
        if held is not None:
            assert held.tokens == said[: len(held.tokens)]
            assert all(getattr(layer, "offset", len(held.tokens)) == len(held.tokens) for layer in held.layers)
    return end


ALL = (Mode.LOOKUP, Mode.DRAFTER, Mode.SPECULATIVE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampling", "modes"),
    [*zip(SAMPLINGS, cycle((mode,) for mode in ALL), strict=False), *((sampling, ALL) for sampling in SAMPLINGS)],
    ids=str,
)
def test_the_text_is_that_of_plain_decoding(sampling: dict[str, float], modes: tuple[Mode, ...]) -> None:
    for seed, window in enumerate([None, 12]):
        model = shared_llama(sliding_window=window)
        end = check_same(model, ask("abcabcabc", seed=5, max_tokens=40, **sampling), modes, seed)
        statistics = end.statistics
        assert statistics.rounds > 0 or modes == (Mode.LOOKUP,), "a random text hardly repeats itself"
        assert statistics.rounds < statistics.target_calls
        assert statistics.rounds == sum(statistics.accepted_lengths) == sum(statistics.drafted_lengths)
        assert statistics.accepted + statistics.target_calls >= statistics.generated_tokens - 1
        assert statistics.choice is not None


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.AUTO])
def test_nothing_is_queued_before_the_first_token_is_known(mode: Mode) -> None:
    """On a CPU a read waits for all that is queued: the first token came a call late, and that call looked free."""
    model = tiny_llama()
    request = ask("abcabcabc", temperature=0, max_tokens=9)
    prompt = model.encode_chat(request.messages)
    state = AutoState(model)
    job = ReplyJob(model, KVCache(model.network), prompt, request, Ledger(), Clock())
    iterator = ReplyIterator(job, None if mode is Mode.OFF else AutoDrafter(state, job))
    for event in iterator:
        if isinstance(event, TokenEvent):
            break
    assert {layer.offset for layer in job.cache.layers} == {len(prompt)}
    end = reply_end(iterator)
    assert len(end.token_ids) == 9
    assert end.statistics.target_calls == 8 or mode is Mode.AUTO


@pytest.mark.parametrize("name", share([*TREES, *CHAINS][::3], 26))
def test_the_text_is_that_of_plain_decoding_in_other_families(name: str) -> None:
    """Rounds are tried on all of them in tests/inference/decoding/test_rounds.py."""
    check_same(shared_family(name), ask("abcabcabc", seed=5, max_tokens=20, temperature=0.7), (Mode.LOOKUP,))


@pytest.mark.slow
def test_a_drafted_token_that_ends_the_reply_was_accepted_as_any_other() -> None:
    """It was taken for refused, and in time the surest tokens for unsure ones."""
    model = tiny_llama()
    request = ask("abcabcabc", temperature=1, max_tokens=24)
    state = state_of(model, AvailableDrafters(draft_model=DraftModel(model, tiny_llama(), len(ALPHABET))))
    state.planner = RandomPlanner(state.costs, (Mode.SPECULATIVE,), 0)
    text = plain(model, request).text
    chains = state.estimates(request.sampling).chains
    factors = [1.0]
    for start in range(1, 20):
        reply_of(state, replace(request, sampling=replace(request.sampling, stop=(text[start : start + 3],))))
        factors.append(chains.factor)
    assert min(factors) >= 1, "both models are one"
    assert factors[-1] > 1.05


@pytest.mark.slow
def test_an_end_token_and_a_stop_string_cut_anywhere() -> None:
    model = shared_llama()
    text = plain(model, ask("abcabcabc", temperature=1, max_tokens=24)).text
    for start in range(1, 18, 2):
        check_same(model, ask("abcabcabc", temperature=1, max_tokens=24, stop=(text[start : start + 3],)), ALL, start)
    for seed in ENDING_SEEDS:
        check_same(model, ask(seed=seed, temperature=1.5, max_tokens=60), ALL, seed)


class _SteadyPlanner(Planner):
    """Always drafts the same; it looks a little better than plain steps where `better`, else worse."""

    def __init__(self, costs: CostModel, better: bool) -> None:
        super().__init__(costs)
        self._better = better

    def best_draft(self, depth: int, drafts: Sequence[Drafts]) -> Choice | None:
        plan = Plan(Mode.DRAFTER, 1, 2, 2, 2)
        steady = any(table.mode is Mode.DRAFTER and table.accepted.max() > 0 for table in drafts)
        return Choice(plan, 1.5, 1.25, 1.0, rate=-18.0 if self._better else 22.0) if steady else None


class _Watched(Controller):
    """Notes what each call was and whether its time was learnt: `step` or `round`."""

    laps: list[tuple[str, bool]]

    def _learn(self, done: CallResult[object], usual: bool) -> None:
        if done.call is not Call.FIRST:
            self.laps.append((done.call.name.lower(), usual))
        super()._learn(done, usual)


def watched(
    monkeypatch: pytest.MonkeyPatch,
    better: bool,
    profile: bool = False,
    laps: list[tuple[str, bool]] | None = None,
    length: int = 300,
) -> list[tuple[str, bool]]:
    laps = [] if laps is None else laps
    monkeypatch.setattr(_Watched, "laps", laps, raising=False)
    monkeypatch.setattr("rdchat.inference.auto.auto_drafter.Controller", _Watched)
    model = tiny_llama()
    request = ask("abcabcabc", temperature=1, max_tokens=length)
    request = replace(request, draft=DraftSettings(Mode.AUTO, profile=profile))
    model.tokenizer.eos_token_ids = frozenset()
    state = AutoState(model)
    state.use_drafters(AvailableDrafters(random_drafter(model)))
    state.costs.use(Part.CALLS, {(PLAIN_STEP, 128): 1.0, (1, 128): 1.0})
    state.planner = _SteadyPlanner(state.costs, better)
    assert len(list(iterator_of(state, request))) > 100
    return laps


@cache
def usual_laps(better: bool) -> tuple[tuple[str, bool], ...]:
    with pytest.MonkeyPatch.context() as patch:
        return tuple(watched(patch, better))


@pytest.mark.slow
def test_the_last_of_some_plain_steps_is_not_taken_for_one_that_waits_for_a_whole_call() -> None:
    """With no call queued behind it, it may have been computed already: drafts looked dear beside such steps."""
    laps = usual_laps(better=True)
    last = [usual for (what, usual), (then, _) in pairwise(laps) if (what, then) == ("step", "round")]
    assert len(last) >= 3
    assert not any(last)


@pytest.mark.slow
def test_the_time_of_a_call_for_a_wrong_token_is_not_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """At temperature 2 plain steps looked a fifth dearer than they are, and useless rounds went on and on."""
    calls = 0
    quickly = TokenChooser.choose_quickly

    def seldom_wrong(self: TokenChooser, logits: mx.array, *rest: Any) -> tuple[mx.array, mx.array]:
        nonlocal calls
        tokens, sure = quickly(self, logits, *rest)
        calls += 1
        return (tokens, sure) if calls % 40 else (tokens * 0, sure & False)

    monkeypatch.setattr(TokenChooser, "choose_quickly", seldom_wrong)
    taken_back = list[int]()
    step_back = KVCache.step_back
    laps = list[tuple[str, bool]]()

    def noted(self: KVCache) -> None:
        taken_back.append(len(laps))
        step_back(self)

    monkeypatch.setattr(KVCache, "step_back", noted)
    watched(monkeypatch, better=False, laps=laps)
    steps = [[usual for what, usual in laps[place:] if what == "step"] for place in taken_back]
    assert len(steps) > 3
    assert not any(usual for later in steps for usual in later[:2])
    assert sum(usual for what, usual in laps if what == "step") > 50


@pytest.mark.slow
@pytest.mark.parametrize("better", share([True, False], 2))
def test_exact_times_are_not_learnt_from(monkeypatch: pytest.MonkeyPatch, better: bool) -> None:
    """Each stage is waited for then, so that plain steps look dearer than they are."""
    assert not any(usual for _, usual in watched(monkeypatch, better, profile=True, length=120))


@pytest.mark.slow
def test_plain_steps_among_many_rounds_are_learnt_from() -> None:
    laps = usual_laps(better=True)
    rounds = sum(what == "round" for what, _ in laps)
    looks = sum(lap == ("step", True) for lap in laps[2:])
    assert rounds > 100
    assert looks >= rounds // 40 - 1


@pytest.mark.slow
def test_everything_a_reply_teaches_is_kept_for_the_next() -> None:
    model = tiny_llama()
    state = AutoState(model)
    state.use_drafters(AvailableDrafters(random_drafter(model)))
    state.costs.use(Part.CALLS, {(PLAIN_STEP, 128): 1.0, (1, 128): 1.0, (2, 128): 200.0})
    request = ask("abcabcabc", temperature=0, max_tokens=60)
    end = reply_of(state, request)
    assert end.statistics.rounds == 0, "a round costs two hundred steps"
    estimates = state.estimates(request.sampling)
    known = AutoState(model).estimates(request.sampling)
    assert estimates.lookup.odds() != known.lookup.odds()
    assert end.statistics.choice is not None
    assert end.statistics.choice.words == "Drafting would be slower here, so it is off."
    assert end.statistics.choice.speedup is not None
    assert 0 < end.statistics.choice.speedup < 1


class _Missed(Drafting):
    """Drafts of which nothing comes true."""

    def text(self, rng: np.random.Generator, place: int, length: int = LONGEST) -> list[int]:
        return Drafting(1e-9).text(rng, place, length)


def test_a_belief_that_is_too_good_does_not_go_on_being_tried() -> None:
    """By what they promise its rounds lose next to nothing; random strings at temperature 2 lost 8 % by them."""
    chip = Chip("flat", {1: 1.0, 2: 1.3, MAX_ROWS: 1.3}, beam_step=0.0)
    simulation = Simulation(chip, _Missed(0.2), Known(2, 0.2))  # what is tried would lose 0.1 steps
    simulation.run(400)
    assert 6 <= simulation.rounds <= 14, "0.3 steps each is what they really lose"


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "followed"), share([(None, True), (3, False)], 2))
def test_a_draft_model_is_tried_where_it_might_pay(
    monkeypatch: pytest.MonkeyPatch, seed: int | None, followed: bool
) -> None:
    """With what is believed of it beforehand it looks a little worse than plain steps; it was never tried then."""
    monkeypatch.setattr(CostModel, "learn", lambda *_: None)
    monkeypatch.setattr(CostModel, "learn_plain", lambda *_: None)
    model = tiny_llama()
    state = AutoState(model)
    request = ask("abcabcabc", temperature=1, max_tokens=120)
    small = tiny_llama() if seed is None else tiny_llama(seed=seed)
    state.use_drafters(AvailableDrafters(draft_model=DraftModel(model, small, len(ALPHABET))))
    calls = {(rows, 128): 1.0 + 0.4 * (rows > 1) + 0.1 * rows for rows in range(1, 33)}
    state.costs.use(Part.CALLS, {(PLAIN_STEP, 128): 1.1, **calls})
    state.costs.use(Part.DRAFT_MODEL, {(1, 0): 0.6, (16, 0): 0.8})
    source = draft_model_source(state.estimates(request.sampling).chains, state.costs, lambda: 0)
    choice = state.planner.best_draft(128, [source.drafts(MAX_ROWS)])
    assert choice is not None
    assert -0.2 < choice.gain < 0
    end = reply_of(state, request)
    counters = end.statistics
    if followed:
        assert counters.accepted > 0.5 * counters.generated_tokens
    else:
        assert 1 <= counters.rounds <= 4
