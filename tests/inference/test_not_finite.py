"""Numbers that are not finite: a drafter's change no token of a reply, and the target's end it in words."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some

from rdchat.errors import ModelError
from rdchat.inference.api import (
    BeamShape,
    DraftSettings,
    GenerationEvent,
    GenerationRequest,
    Mode,
    ReplyEnd,
    TokenEvent,
)
from rdchat.inference.auto.auto_drafter import AvailableDrafters
from rdchat.inference.auto.planner import WIDTH
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.beam_search import NodePool, best_nodes
from rdchat.inference.drafting.draft_model import DraftModelDrafter
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree
from tests.grids import pairs, share
from tests.inference.auto.automatic_replies import RandomPlanner, iterator_of, state_of
from tests.inference.fakes import (
    ALPHABET,
    ScriptedDrafter,
    ask,
    chains_only,
    reply_end,
    shared_llama,
    tiny_llama,
    tree_of_beams,
    with_beams,
)
from tests.inference.harmed_drafters import HARMS, HEADS, INF, NAN, NEVER_FINITE, harmed_draft_model, harmed_head
from tests.inference.plain_replies import drafted, plain, unended

pytestmark = pytest.mark.across_rows

TEMPERATURES = (0.0, 0.9)
SHAPES = {
    "chain": (BeamShape(1, 5), False), "tree": (BeamShape(3, 4), False), "branch": (BeamShape(3, 4), True),
    "no tree": (BeamShape(3, 4), True),
}  # fmt: skip
FILTERS = ({}, {"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.1}, {"repetition_penalty": 1.4})


def request_at(temperature: float, **sampling: float) -> GenerationRequest:
    return ask("abcabcabc", seed=5, max_tokens=30, temperature=temperature, **sampling)


def check(model: LoadedModel, request: GenerationRequest, end: object) -> ReplyEnd:
    assert isinstance(end, ReplyEnd)
    expected = plain(model, request)
    assert (end.token_ids, end.text, end.finish_reason) == (expected.token_ids, expected.text, expected.finish_reason)
    return end


@pytest.mark.parametrize(
    ("kind", "harm", "shape", "temperature", "filters"),
    share(pairs(HEADS, HARMS, SHAPES, TEMPERATURES, FILTERS), 36),
)
def test_a_heads_scores_change_no_token(
    kind: str, harm: str, shape: str, temperature: float, filters: dict[str, float]
) -> None:
    """NaN was above the root, so that the target was fed tokens that it had not chosen."""
    model = chains_only(shared_llama()) if shape == "no tree" else shared_llama()
    request = request_at(temperature, **filters)
    beams, branch = SHAPES[shape]
    prompt = model.encode_chat(request.messages)
    drafter = harmed_head(model, kind, harm).drafter(prompt, with_beams(request, beams, branch))
    events, cache = drafted(model, request, drafter)
    end = check(model, request, events[-1])
    assert filters or end.statistics.host_syncs == end.statistics.rounds, "the flag comes with the round's one wait"
    assert cache.tokens == [*prompt, *end.token_ids][: len(cache.tokens)]
    if harm in NEVER_FINITE:
        assert (end.statistics.dropped_drafts, end.statistics.drafted) == (3, 0)
        assert end.mode_reason is not None
        assert end.mode_reason.startswith("The drafter computed scores that are not finite, so the reply continued")
    if harm == "random":
        assert (end.statistics.dropped_drafts, end.mode_reason) == (0, None)


@pytest.mark.parametrize(
    ("harm", "temperature", "shape"), share(pairs(HARMS, TEMPERATURES, [DraftShape(4), DraftShape(4, (2, 1))]), 18)
)
def test_a_draft_models_scores_change_no_token(harm: str, temperature: float, shape: DraftShape) -> None:
    model = shared_llama()
    request = request_at(temperature)
    draft = harmed_draft_model(model, harm)
    prompt = model.encode_chat(request.messages)
    end = check(
        model,
        request,
        drafted(model, request, DraftModelDrafter(draft, prompt, request, shape_of=lambda _: shape))[0][-1],
    )
    assert end.statistics.host_syncs == end.statistics.rounds
    if harm in NEVER_FINITE:
        assert (end.statistics.dropped_drafts, end.statistics.drafted) == (3, 0)
        assert end.mode_reason is not None
        assert end.mode_reason.startswith("The draft model computed scores that are not finite")
    assert draft.cache.tokens == [*prompt, *end.token_ids][: len(draft.cache.tokens)]


@pytest.mark.parametrize(
    ("kind", "harm", "temperature"), share(pairs([*HEADS, "draft model"], HARMS, TEMPERATURES), 45)
)
def test_the_automatic_mode_takes_any_scores(kind: str, harm: str, temperature: float) -> None:
    model = shared_llama()
    request = request_at(temperature)
    head = None if kind == "draft model" else harmed_head(model, kind, harm)
    small = harmed_draft_model(model, harm) if head is None else None
    state = state_of(model, AvailableDrafters(head, None, small))
    mode = Mode.SPECULATIVE if head is None else Mode.DRAFTER
    dropped = 0
    for seed in range(3):
        state.planner = RandomPlanner(state.costs, (mode, mode, Mode.LOOKUP), seed)
        *_, end = iterator_of(state, request)
        check(model, request, end)
        assert end.statistics.dropped_drafts <= 6, "some may have been begun before the last that counted"
        assert (end.statistics.dropped_drafts < 3) == (end.mode_reason is None)
        dropped += end.statistics.dropped_drafts
    assert (dropped > 0) >= (harm in NEVER_FINITE)
    estimates = state.estimates(request.sampling)
    for learnt in (estimates.chains, estimates.head):
        assert np.isfinite(learnt.table()).all()
        assert np.isfinite(learnt.factor)
    assert np.isfinite([state.costs.plain_ms(100), *state.costs.beams_ms(WIDTH)]).all()


def test_the_root_is_above_scores_that_are_no_numbers() -> None:
    pool = NodePool(mx.array([7, 1, 2, 3]), mx.array([-1, 0, 0, 0]), mx.array([0.0, NAN, NAN, NAN]), 1)
    tree, _ = best_nodes(pool, 2)
    assert tree.fetch().tokens[0] == 7


class _Liar(Drafter):
    """Offers trees that are none, with tokens that there are not, below another root than the last token."""

    name = "drafter"

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def propose(self, root: int, limit: int) -> Draft:
        rng = self._rng
        size = int(self._rng.integers(1, 9))
        tokens = mx.array(rng.integers(-(2**31), 2**31 - 1, size).astype(np.int32))
        parents = mx.array(rng.integers(-9, 12, size).astype(np.int32))
        if rng.random() < 0.5:
            scores = mx.array(rng.normal(size=size).astype(np.float32))
            return Draft(PackedTree.from_parents(tokens, parents, scores, int(rng.integers(0, 9))))
        tree = PackedTree.chain(tokens)
        depths = mx.array(rng.integers(-9, 12, size).astype(np.int32))
        return Draft(replace(tree, parents=parents, depths=depths if rng.random() < 0.5 else tree.depths))


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.9, "repetition_penalty": 1.3}], ids=str)
def test_a_drafter_that_lies_changes_no_token(sampling: dict[str, float]) -> None:
    model = shared_llama()
    request = ask(max_tokens=40, **sampling)
    request = replace(request, draft=replace(request.draft, trace=True))
    events, _ = drafted(model, request, _Liar(int(sampling["temperature"])))
    end = reply_end(events)
    assert end.token_ids == plain(model, request).token_ids
    assert max(end.token_ids) < len(ALPHABET)


WORDS = "tiny computed numbers that are not finite"


@cache
def untied(spoilt: int | None = None, value: float = INF) -> LoadedModel:
    """Return a small llama; whoever feeds it the spoilt token gets no numbers from there on."""
    model = tiny_llama(2, tied=False)
    if spoilt is not None:
        model.network.model.embed_tokens.weight[spoilt] = mx.full((32,), value)
    return model


def until_refused(events: Iterator[GenerationEvent]) -> tuple[int, ...]:
    """Return the tokens before the refusal."""
    tokens = list[int]()
    with pytest.raises(ModelError, match=WORDS) as caught:
        tokens.extend(event.token_id for event in events if isinstance(event, TokenEvent))
    assert "float32" in caught.value.hint
    return tuple(tokens)


class _Spoiling(Drafter):
    """Offers the same beams in each round."""

    name = "drafter"

    def __init__(self, beams: list[list[int]]) -> None:
        self._beams = beams

    def propose(self, root: int, limit: int) -> Draft:
        beams = [[root, *beam][: 1 + limit] for beam in self._beams]
        return Draft(PackedTree.pack(tree_of_beams(beams)))


def ways(model: LoadedModel, request: GenerationRequest, script: list[int]) -> dict[str, Iterator[GenerationEvent]]:
    """Return the reply in every way to decode it; a drafter with a script offers the spoilt token too."""
    prompt = model.encode_chat(request.messages)
    automatic = state_of(model, AvailableDrafters())
    automatic.planner = RandomPlanner(automatic.costs, (Mode.LOOKUP,), 1)
    chains = chains_only(model)
    return {
        "plain": ReplyIterator(ReplyJob.fresh(model, prompt, request)),
        "tree": ReplyIterator(ReplyJob.fresh(model, prompt, request), ScriptedDrafter(script, 3, 4)),
        "chain": ReplyIterator(ReplyJob.fresh(chains, prompt, request), ScriptedDrafter(script, 1, 5)),
        "lookup": ChatSession(model).generate(replace(request, draft=DraftSettings(Mode.LOOKUP))),
        "auto": iterator_of(automatic, request),
    }  # fmt: skip


@settings(max_examples=6)
@given(
    place=some.integers(1, 20),
    value=some.sampled_from([INF, NAN]),
    sampling=some.sampled_from([
        {"temperature": 0.0}, {"temperature": 0.9, "top_p": 1.0}, {"temperature": 0.9, "top_k": 4},
        {"temperature": 0.9, "repetition_penalty": 1.3}]),
)  # fmt: skip
def test_every_mode_ends_with_the_words_of_the_first(place: int, value: float, sampling: dict[str, float]) -> None:
    """The rest of the reply was token 0 up to the limit."""
    request = unended(ask("abcabc", seed=4, **sampling))
    said = plain(untied(), request).token_ids
    prompt = untied().encode_chat(request.messages)
    unseen = [at for at, token in enumerate(said) if token not in (*prompt, *said[:at]) and at < len(said) - 1]
    if not unseen:
        return
    spoilt = unseen[place % len(unseen)]
    model = untied(said[spoilt], value)
    for way, events in ways(model, request, list(said)).items():
        assert until_refused(events) == said[: spoilt + 1], way


def test_a_spoilt_token_that_is_only_drafted_harms_nothing() -> None:
    """Zero times infinity is no number, so a drafted token spoilt the rows before it."""
    request = unended(ask("abcabc", seed=4, temperature=0.0))
    said = plain(untied(), request).token_ids
    prompt = untied().encode_chat(request.messages)
    spoilt = next(token for token in range(len(ALPHABET)) if token not in {*said, *prompt})
    for beams in ([[spoilt, 1]], [[1, spoilt], [spoilt, 2]]):
        job = ReplyJob.fresh(untied(spoilt), prompt, request)
        end = reply_end(ReplyIterator(job, _Spoiling(beams)))
        assert end.token_ids == said
