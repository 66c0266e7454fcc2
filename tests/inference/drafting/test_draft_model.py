"""A draft model in the loop: the same text as plain decoding, and drafts that the reply's own rule would take."""

from dataclasses import replace
from itertools import product

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from mlx_lm.models import llama

from rdchat.errors import ModelError
from rdchat.inference.api import Capability, DraftKind, DraftSettings, ReplyEnd, SamplingParams, TokenEvent
from rdchat.inference.decoding.draft import Draft
from rdchat.inference.drafting.draft_model import CandidateRanker, DraftModel
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.verification.kv_cache import KVCache
from tests.grids import share
from tests.inference.drafting.draft_pairs import CHAIN, FILTERS, SIZE, TREE, Pair, shared_near
from tests.inference.fakes import ask, chains_only, loaded, positions, shared_llama, tiny_llama
from tests.inference.plain_replies import plain

pytestmark = pytest.mark.across_rows


@pytest.mark.parametrize(("sampling", "temperature"), share(product(FILTERS, [0, 0.7, 1.3]), 21), ids=str)
def test_the_text_is_that_of_plain_decoding(temperature: float, sampling: dict[str, float]) -> None:
    """Each shape meets each temperature, and most filters."""
    target = shared_llama()
    shapes = (DraftShape(1), CHAIN, TREE, DraftShape.of_size(8, 16))
    shape = shapes[(FILTERS.index(sampling) + int(2 * temperature)) % len(shapes)]
    request = ask(temperature=temperature, max_tokens=30, **({"top_p": 1.0} | sampling))
    pair = Pair.of(target, shared_near())
    expected = plain(target, request)
    drafted = pair.reply(request, shape)
    assert drafted.token_ids == expected.token_ids
    assert drafted.text == expected.text
    assert drafted.finish_reason == expected.finish_reason
    assert 0 < drafted.statistics.accepted < drafted.statistics.drafted
    pair.assert_in_step()


@pytest.mark.slow
@pytest.mark.parametrize(("sampling", "temperature"), share(product(FILTERS, [0, 1.0]), 15), ids=str)
def test_a_draft_model_that_is_the_target_has_every_draft_accepted(
    temperature: float, sampling: dict[str, float]
) -> None:
    """mlx-lm's rule, independent sampling and an equality check, reaches 1.4 tokens a round of 4 there."""
    target = shared_llama()
    for seed in range(2):
        request = ask(temperature=temperature, max_tokens=41, seed=seed, **({"top_p": 1.0} | sampling))
        statistics = Pair.of(target, shared_near(0.0)).reply(request, CHAIN).statistics
        if statistics.drafted:  # else the first token was the last
            assert statistics.generated_tokens > 1
            cut = statistics.drafted - statistics.accepted  # where the reply ended inside the last round
            assert 0 <= cut < 5
            assert statistics.rounds == -(-(statistics.generated_tokens - 1) // 5)


@settings(max_examples=12)
@given(
    others=some.sets(some.integers(0, SIZE - 1), min_size=1, max_size=SIZE - 3),
    temperature=some.sampled_from([0.0, 0.9]),
    sampling=some.sampled_from(FILTERS),
    shape=some.sampled_from([CHAIN, TREE]),
)
def test_tokens_that_are_others_to_the_draft_model_are_never_offered(
    others: set[int], temperature: float, sampling: dict[str, float], shape: DraftShape
) -> None:
    target = shared_llama()
    request = ask(temperature=temperature, max_tokens=20, **({"top_p": 1.0} | sampling))
    pair = Pair(target, DraftModel(target, shared_near(), SIZE, others), KVCache(target.network))
    offered = set[int]()
    iterator = pair.start(request, shape)
    propose = iterator._drafter.propose

    def noted(root: int, limit: int) -> Draft:
        draft = propose(root, limit)
        offered.update(draft.tree.fetch().tokens.tolist()[1:])
        return draft

    iterator._drafter.propose = noted  # type: ignore[method-assign]
    *_, end = iterator
    assert isinstance(end, ReplyEnd)
    assert end.token_ids == plain(target, request).token_ids
    assert not offered & others


def test_a_target_s_tokens_that_the_draft_model_has_no_row_for_are_not_fed() -> None:
    target = shared_llama()
    draft = shared_near()
    model = DraftModel(target, replace(draft, info=replace(draft.info, vocabulary_size=9)), SIZE)
    assert (model.shared_tokens, model.known([3, 9, 4, 700])) == (9, [3, 0, 4, 0])
    request = ask(max_tokens=20)
    pair = Pair(target, model, KVCache(target.network))
    assert pair.reply(request, CHAIN).token_ids == plain(target, request).token_ids
    assert max(model.cache.tokens) < 9


def test_one_model_in_both_parts_needs_no_second_copy() -> None:
    target = shared_llama()
    request = ask(temperature=1.0, top_p=1.0, max_tokens=21)
    end = Pair.of(target, target).reply(request, TREE)
    assert end.token_ids == plain(target, request).token_ids
    assert end.statistics.acceptance_rate == 1


@pytest.mark.slow
def test_runner_ups_are_accepted_and_leave_the_cache_in_step() -> None:
    target = shared_llama()
    pairs = {shape: Pair.of(target, shared_near(0.06)) for shape in (CHAIN, TREE)}
    accepted = dict.fromkeys(pairs, 0)
    for seed in range(5):
        for shape, pair in pairs.items():
            accepted[shape] += pair.reply(ask(temperature=1.0, seed=seed), shape).statistics.accepted
            pair.assert_in_step()
    assert accepted[TREE] > accepted[CHAIN]


def test_a_target_that_verifies_chains_only_gets_chains() -> None:
    target = chains_only(shared_llama())
    request = ask(temperature=1.0)
    end = Pair.of(target, shared_near()).reply(request, TREE)
    assert end.token_ids == plain(target, request).token_ids
    assert end.statistics.verified_nodes == end.statistics.drafted + end.statistics.rounds


@pytest.mark.slow
def test_new_settings_count_from_the_next_round_on() -> None:
    target = shared_llama()
    request = ask(temperature=1.0, top_p=1.0, max_tokens=60, seed=3)
    pair = Pair.of(target, shared_near(0.0))
    iterator = pair.start(request, DraftShape(2))
    rounds = []
    for event in iterator:
        if isinstance(event, TokenEvent) and event.round:
            rounds.append(event.round.drafted)
            iterator.update(DraftSettings(draft_tokens=7))
        last = event
    assert rounds[:3] == [2, 7, 7]
    assert isinstance(last, ReplyEnd)
    assert last.token_ids == plain(target, request).token_ids


def test_a_draft_model_whose_rows_cannot_be_taken_back_is_refused() -> None:
    target = shared_llama()
    draft = replace(tiny_llama(), try_out=lambda: Capability(DraftKind.NONE, "its cache type is not known"))
    with pytest.raises(ModelError, match="tiny cannot draft: its cache type is not known"):
        DraftModel(target, draft, SIZE)


@pytest.mark.slow
def test_drafts_end_where_the_draft_models_own_context_does() -> None:
    target = shared_llama()
    for context in (8, 40, 47):
        draft = tiny_llama(context_length=context)
        pair = Pair.of(target, draft)
        end = pair.reply(ask(temperature=1.0, max_tokens=40))
        assert end.token_ids == plain(target, ask(temperature=1.0, max_tokens=40)).token_ids
        assert positions(pair.draft.cache) == len(pair.draft.cache.tokens) <= context


def test_tokens_that_only_the_draft_models_padding_has_are_never_offered() -> None:
    target = shared_llama()
    args = replace(llama.ModelArgs(**vars(target.network.args)), vocab_size=SIZE + 9, tie_word_embeddings=False)
    network = llama.Model(args)
    network.lm_head.weight[SIZE:] = 100 * mx.ones((9, 32))  # their logits are extreme: half of the time the largest
    wide = loaded(network)
    wide = replace(wide, info=replace(wide.info, vocabulary_size=SIZE + 9))
    request = ask(temperature=1.0)
    assert Pair.of(target, wide, SIZE + 9).reply(request).token_ids == plain(target, request).token_ids
    logits = wide.network(mx.array([[3]]))[:, -1]
    for params in (SamplingParams(temperature=0), SamplingParams(temperature=1.0), SamplingParams(top_p=0.5)):
        ranked = np.array(CandidateRanker(params, 1, SIZE).rank(logits, 4, SIZE)[0])
        assert sorted(ranked.tolist()) == list(range(SIZE))


def test_weights_that_are_not_numbers_are_an_error_that_names_model_and_layer() -> None:
    target = tiny_llama()
    draft = tiny_llama(1)
    draft.network.model.layers[1].mlp.up_proj.weight[3, 4] = float("nan")
    draft = replace(draft, info=replace(draft.info, name="small-one"))
    with pytest.raises(ModelError, match=r"draft model small-one .* Layer model\.layers\.1\.mlp\.up_proj is damaged"):
        Pair.of(target, draft)
