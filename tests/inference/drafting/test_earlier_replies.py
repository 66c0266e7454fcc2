"""Drafts from earlier replies never change a text, whatever else drafts beside them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from rdchat.inference.api import (
    EARLIER_REPLIES,
    DraftSettings,
    GenerationEvent,
    GenerationRequest,
    Mode,
    ReplyEnd,
    TokenEvent,
)
from rdchat.inference.auto.auto_drafter import AutoDrafter, AvailableDrafters
from rdchat.inference.decoding.draft import Drafter
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.lookup import LookupDrafter
from rdchat.inference.drafting.reply_index import ReplyIndex
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.auto.automatic_replies import RandomPlanner, state_of
from tests.inference.fakes import ALPHABET, ask, random_drafter, shared_family, shared_llama
from tests.inference.families import CHAINS
from tests.inference.plain_replies import plain

WAYS = ("lookup", "head", "auto", "auto with a draft model")
SEED = 5


def iterator(way: str, model: LoadedModel, request: GenerationRequest, index: ReplyIndex) -> ReplyIterator:
    job = ReplyJob.fresh(model, model.encode_chat(request.messages, False), replace(request, earlier=index))
    trees = way != "chains"
    drafter: Drafter
    if way in {"lookup", "chains"}:
        drafter = LookupDrafter(job.prompt, 4, trees=trees, earlier=index)
    elif way == "head":
        drafter = random_drafter(model).drafter(job.prompt, request, earlier=index)
    else:
        small = DraftModel(model, shared_llama(seed=3), len(ALPHABET)) if "model" in way else None
        state = state_of(model, AvailableDrafters(None if small else random_drafter(model), None, small))
        modes = (Mode.LOOKUP, Mode.SPECULATIVE if small else Mode.DRAFTER)
        state.planner = RandomPlanner(state.costs, modes, SEED)
        return ReplyIterator(job, AutoDrafter(state, job))
    return ReplyIterator(job, drafter)


def events_of(way: str, model: LoadedModel, request: GenerationRequest, index: ReplyIndex) -> list[GenerationEvent]:
    return list(iterator(way, model, request, index))


def index_with(*replies: Sequence[int]) -> ReplyIndex:
    return ReplyIndex(dict(enumerate([*replies, range(len(ALPHABET)), [3, 1, 4, 1, 5, 9] * 4])))


@pytest.mark.slow
@pytest.mark.across_rows
@pytest.mark.parametrize(("way", "temperature"), share(product(WAYS, [0.0, 0.9]), 9))
def test_the_text_is_that_of_plain_decoding(way: str, temperature: float) -> None:
    model = shared_llama()
    draft = DraftSettings(Mode.DRAFTER, beam_width=3, beam_length=4, trace=True)
    request = replace(ask("what is it", seed=SEED, max_tokens=60, temperature=temperature), draft=draft)
    expected = plain(model, request)
    index = index_with(expected.token_ids)  # the same reply: it is drafted whole
    *events, end = events_of(way, model, request, index)
    assert isinstance(end, ReplyEnd)
    assert (end.token_ids, end.text) == (expected.token_ids, expected.text)
    drafters = {event.drafter for event in events if isinstance(event, TokenEvent)}
    assert EARLIER_REPLIES in drafters
    assert end.statistics.from_replies > 0
    assert end.statistics.from_chat + end.statistics.from_replies <= end.statistics.accepted


@pytest.mark.slow
@pytest.mark.across_rows
@pytest.mark.parametrize("name", share(CHAINS, 8))
def test_a_target_that_takes_chains_gets_chains(name: str) -> None:
    model = shared_family(name)
    request = ask("abcabcabc", seed=SEED, max_tokens=40, temperature=0.7)
    expected = plain(model, request)
    *_, end = events_of("chains", model, request, index_with(expected.token_ids))
    assert isinstance(end, ReplyEnd)
    assert end.token_ids == expected.token_ids
    assert end.statistics.accepted > 0


def test_a_reply_in_the_index_is_drafted_whole() -> None:
    model = shared_llama()
    request = ask("what is it", seed=SEED, max_tokens=60, temperature=0.9)
    index = index_with()
    first = events_of("lookup", model, request, index)[-1]
    assert isinstance(first, ReplyEnd)
    index.add_reply(9, first.token_ids)
    second = events_of("lookup", model, request, index)[-1]
    assert isinstance(second, ReplyEnd)
    assert first.token_ids == second.token_ids
    assert second.statistics.target_calls < first.statistics.target_calls / 2
