"""A draft model in the loop: the same text as plain decoding, and drafts that the reply's own rule would take."""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, product

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some
from mlx_lm.models import llama

from rdchat.errors import ModelError
from rdchat.inference.api import (
    Capability,
    ChatMessage,
    DraftKind,
    FinishReason,
    Role,
    SamplingParams,
    TokenEvent,
)
from rdchat.inference.decoding.draft import Draft
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.draft_model import CandidateRanker, DraftModel, DraftModelDrafter, pack
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.round_cache import RoundKVCache, RoundRows, RowBuffer
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.drafting.draft_pairs import CHAIN, FILTERS, SIZE, TREE, Pair, shared_near
from tests.inference.fakes import ask, chains_only, loaded, positions, reply_end, shared_llama, tiny_llama
from tests.inference.families import HYBRIDS, network_of
from tests.inference.plain_replies import ENDING_SEEDS, plain

pytestmark = pytest.mark.across_rows


@pytest.mark.parametrize(("sampling", "temperature"), share(product(FILTERS, [0, 0.7, 1.3]), 21), ids=str)
def test_the_text_is_that_of_plain_decoding(temperature: float, sampling: dict[str, float]) -> None:
    """Each shape meets each temperature, and most filters."""
    target = shared_llama()
    shapes = (DraftShape(1), CHAIN, TREE, DraftShape.of_size(8, 16))
    shape = shapes[(FILTERS.index(sampling) + int(2 * temperature)) % len(shapes)]
    request = ask(temperature=temperature, max_tokens=24, **({"top_p": 1.0} | sampling))
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


@settings(max_examples=5)
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
    request = ask(temperature=temperature, max_tokens=10, **({"top_p": 1.0} | sampling))
    pair = Pair(target, DraftModel(target, shared_near(), SIZE, others), KVCache(target.network))
    offered = set[int]()
    iterator = pair.start(request, shape)
    propose = iterator._drafter.propose

    def noted(root: int, limit: int) -> Draft:
        draft = propose(root, limit)
        offered.update(draft.tree.fetch().tokens.tolist()[1:])
        return draft

    iterator._drafter.propose = noted  # type: ignore[method-assign]
    end = reply_end(iterator)
    assert end.token_ids == plain(target, request).token_ids
    assert not offered & others


def test_a_target_s_tokens_that_the_draft_model_has_no_row_for_are_not_fed() -> None:
    target = shared_llama()
    draft = shared_near()
    model = DraftModel(target, replace(draft, info=replace(draft.info, vocabulary_size=9)), SIZE)
    assert (model.shared_tokens, model.known([3, 9, 4, 700])) == (9, [3, 0, 4, 0])
    request = ask(max_tokens=12)
    pair = Pair(target, model, KVCache(target.network))
    assert pair.reply(request, CHAIN).token_ids == plain(target, request).token_ids
    assert max(model.cache.tokens) < 9


def test_one_model_in_both_parts_needs_no_second_copy() -> None:
    target = shared_llama()
    request = ask(temperature=1.0, top_p=1.0, max_tokens=21)
    end = Pair.of(target, target).reply(request, TREE)
    assert end.token_ids == plain(target, request).token_ids
    counts = end.statistics
    assert (counts.acceptance_rate, counts.tokens_per_target_call) == (1, 5)
    assert counts.host_syncs == counts.target_calls == 4


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
    request = ask(temperature=1.0, max_tokens=12)
    end = Pair.of(target, shared_near()).reply(request, TREE)
    assert end.token_ids == plain(target, request).token_ids
    assert end.statistics.verified_nodes == end.statistics.drafted + end.statistics.rounds


def test_a_draft_model_whose_rows_cannot_be_taken_back_is_refused() -> None:
    draft = replace(shared_llama(), try_out=lambda: Capability(DraftKind.NONE, "its cache type is not known"))
    with pytest.raises(ModelError, match="tiny cannot draft: its cache type is not known"):
        Pair.of(shared_llama(), draft)


@pytest.mark.slow
def test_drafts_end_where_the_draft_models_own_context_does() -> None:
    target = shared_llama()
    for context in (8, 40, 47):
        draft = shared_llama(context_length=context)
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
    wide = replace(wide, info=replace(wide.info, vocabulary_size=SIZE + 9), try_out=lambda: target.capability)
    request = ask(temperature=1.0, max_tokens=12)
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


@pytest.mark.parametrize(
    ("max_tokens", "draft"), share(zip(range(1, 13), cycle([shared_llama, shared_near]), strict=False), 5)
)
def test_the_caches_are_in_step_after_a_cut_at_every_place_of_a_round(
    max_tokens: int, draft: Callable[[], LoadedModel]
) -> None:
    pair = Pair.of(shared_llama(), draft())
    end = pair.reply(ask(temperature=1.0, max_tokens=max_tokens))
    assert len(end.token_ids) == max_tokens
    pair.assert_in_step()


@pytest.mark.slow
def test_the_caches_are_in_step_after_an_end_token_and_after_a_stop_string() -> None:
    target = shared_llama()
    text = plain(target, ask(temperature=0.7)).text
    ends = set()
    requests = [ask(temperature=1.5, seed=seed, max_tokens=60) for seed in ENDING_SEEDS[:7]]
    requests += [ask(temperature=0.7, stop=(text[at : at + 2],)) for at in range(1, 14, 2)]
    for request in requests:
        pair = Pair.of(target, shared_near())
        end = pair.reply(request)
        assert (end.token_ids, end.text) == (plain(target, request).token_ids, plain(target, request).text)
        pair.assert_in_step()
        ends.add(end.finish_reason)
    assert ends >= {FinishReason.EOS, FinishReason.STOP_STRING}


@pytest.mark.parametrize(("events", "by"), share(zip(range(20), cycle(["cancel", "close"]), strict=False), 20))
def test_the_caches_are_in_step_after_a_cancel_in_every_phase(by: str, events: int) -> None:
    target = shared_llama()
    pair = Pair.of(target, shared_near())
    request = ask("a prompt that is longer than one chunk of prefill", temperature=0.7, max_tokens=12)
    iterator = pair.start(request)
    begun = [next(iterator) for _ in range(events)]
    getattr(iterator, by)()
    for _ in iterator:
        pass
    held = list(pair.draft.cache.tokens)
    assert positions(pair.draft.cache) == len(held)
    assert held == pair.cache.tokens[: len(held)]
    if begun and isinstance(begun[-1], TokenEvent):
        pair.assert_in_step()
    assert pair.reply(request).token_ids == plain(target, request).token_ids


def test_a_cancel_while_the_draft_model_reads_the_prompt_keeps_what_it_read() -> None:
    target = shared_llama()
    pair = Pair.of(target, shared_near())
    prompt = target.encode_chat(ask("several chunks of prompt please").messages)
    drafter = DraftModelDrafter(pair.draft, prompt, ask(), shape_of=lambda _: TREE)
    looks = iter([False, False, True])
    read = list(drafter.prefill(lambda: next(looks)))
    drafter.end_reply(len(prompt))
    assert read == [0, 8, 16]
    assert pair.draft.cache.tokens == prompt[:16]
    assert positions(pair.draft.cache) == 16


@pytest.mark.parametrize("failing_call", share([0, 3, 9, 14], 4))
def test_the_draft_cache_is_empty_after_an_error(failing_call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = shared_llama()
    pair = Pair.of(target, shared_near())
    whole = type(pair.draft.model.network).__call__
    calls = iter(range(1000))

    def fail(self: object, *arguments: object, **options: object) -> object:
        if self is pair.draft.model.network and next(calls) == failing_call:
            raise LookupError("out of luck")
        return whole(self, *arguments, **options)

    monkeypatch.setattr(type(pair.draft.model.network), "__call__", fail)
    with pytest.raises(LookupError, match="out of luck"):
        pair.reply(ask())
    assert (pair.draft.cache.tokens, positions(pair.draft.cache)) == ([], 0)
    request = ask(max_tokens=10)
    assert pair.reply(request).token_ids == plain(target, request).token_ids
    pair.assert_in_step()


def test_a_further_turn_reads_only_what_is_new_and_an_edit_what_follows_it(
    writes: list[tuple[RowBuffer, int]],
) -> None:
    target = shared_llama()
    pair = Pair.of(target, shared_near())
    first = ask("who are you", temperature=0.7, max_tokens=10)
    reply = pair.reply(first).text.rstrip("\0")
    rows = pair.draft.cache.layers[0].buffer
    said = {Role.USER: first.messages[0].content, Role.ASSISTANT: reply}
    turns = [*(ChatMessage(role, text) for role, text in said.items()), ChatMessage(Role.USER, "and what do you do")]
    for messages in (turns, [*turns[:2], replace(turns[2], content="and why")]):
        request = replace(first, messages=tuple(messages))
        prompt = target.encode_chat(request.messages)
        held = list(pair.draft.cache.tokens)
        shared = next((i for i, (a, b) in enumerate(zip(held, prompt, strict=False)) if a != b), len(held))
        assert shared > 20
        writes.clear()
        iterator = pair.start(request)
        while not isinstance(next(iterator), TokenEvent):
            pass
        assert sum(count for buffer, count in writes if buffer is rows) == len(prompt) - 1 - shared
        assert [*iterator][-1].token_ids == plain(target, request).token_ids  # type: ignore[union-attr]
        pair.assert_in_step()


@pytest.mark.slow
def test_a_wrapped_window_in_the_draft_model_is_taken_back_exactly() -> None:
    target = shared_llama()
    pair = Pair.of(target, shared_llama(sliding_window=7))
    for seed in range(3):
        request = ask("a prompt longer than the window", seed=seed, temperature=1.0, max_tokens=60)
        assert pair.reply(request).token_ids == plain(target, request).token_ids
        pair.assert_in_step()


def test_rows_of_a_window_survive_a_buffer_that_grows_within_a_round() -> None:
    """What a rejected draft pushed out of the window is wanted again, so growing must not drop it."""
    rows = mx.arange(300.0).reshape(1, 1, 300, 1)
    for fed in range(246, 258):
        cache = RoundKVCache(window=8)
        cache.update_and_fetch(rows[:, :, :fed], rows[:, :, :fed])
        cache.open_round()
        for step in range(9):
            cache.update_and_fetch(-rows[:, :, step : step + 1], -rows[:, :, step : step + 1])
        cache.close_round(RoundRows.for_path([0, 1]))
        keys, _ = cache.update_and_fetch(rows[:, :, fed : fed + 1], rows[:, :, fed : fed + 1])
        assert np.array(keys)[0, 0, :, 0].tolist() == [*range(fed - 5, fed), 0, -1, fed]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["mamba2", "lfm2"])
def test_a_draft_model_with_recurrent_state_reads_no_accepted_token_again(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, options = HYBRIDS[family]
    target, draft = (loaded(network_of(module, {**options, "vocab_size": SIZE})) for _ in range(2))
    request = ask(temperature=1.0, top_p=1.0, max_tokens=41)
    statistics = Pair.of(target, draft).reply(request, CHAIN).statistics
    # Each round brought the whole draft and a token, but the last one, in which the reply ended.
    assert statistics.rounds == -(-(statistics.generated_tokens - 1) // 5)
    attentive = shared_llama()
    pair = Pair.of(attentive, draft)
    rows = list[int]()
    feed = DraftModelDrafter._feed

    def noted(self: DraftModelDrafter, tokens: mx.array) -> mx.array:
        rows.append(len(tokens))
        return feed(self, tokens)

    monkeypatch.setattr(DraftModelDrafter, "_feed", noted)
    for seed in range(4):
        request = ask(temperature=1.0, seed=seed)
        assert pair.reply(request, TREE).token_ids == plain(attentive, request).token_ids
        pair.assert_in_step()
    assert max(rows) == 2, "a root behind a token that was accepted last and is not read yet"


@pytest.mark.parametrize("sampling", share(FILTERS, 3), ids=str)
@pytest.mark.parametrize("temperature", [0, 0.7, 1.3])
def test_the_first_candidate_is_what_the_target_would_choose(temperature: float, sampling: dict[str, float]) -> None:
    params = SamplingParams(temperature=temperature, **({"top_p": 1.0} | sampling))
    chooser = TokenChooser(params, 9, 500)
    ranker = CandidateRanker(params, 9, 500)
    mx.random.seed(4)
    for position in range(15):
        logits = 3 * mx.random.normal((1, 500))
        seen = chooser.seen([*range(0, 500, 3)])
        seen = None if seen is None else chooser.with_tokens(seen, mx.array([*range(0, 500, 2)]))
        expected = chooser.choose(logits, [position], seen).item()
        ranked = np.array(ranker.rank(logits, position, 3, seen)[0]).tolist()
        assert ranked[0] == expected
        assert len(set(ranked)) == 3


def test_runner_ups_are_the_next_choices_were_the_first_not_there() -> None:
    params = SamplingParams(temperature=0.8, top_p=1.0)
    ranker = CandidateRanker(params, 3, 100)
    chooser = TokenChooser(params, 3, 100)
    mx.random.seed(1)
    logits = mx.random.normal((1, 100))
    for token in np.array(ranker.rank(logits, 7, 4)[0]).tolist():
        assert token == chooser.choose(logits, [7]).item()
        logits[0, token] = -1e9


def test_a_shape_of_a_size_spends_its_nodes_on_the_most_likely_runner_ups() -> None:
    assert DraftShape.of_size(4, 5) == DraftShape(4, (0, 0, 0, 0))
    assert DraftShape.of_size(4, 3).draft_tokens == 4  # the chain is never shortened
    for nodes in range(6, 20):
        shape = DraftShape.of_size(4, nodes)
        assert sum(shape.runner_ups) == nodes - 5
        assert list(shape.runner_ups) == sorted(shape.runner_ups, reverse=True)


def test_a_packed_draft_hangs_runner_ups_beside_their_step() -> None:
    packed = pack(9, [mx.array([1, 2]), mx.array([3]), mx.array([4, 5, 6])])
    assert np.array(packed.tokens).tolist() == [9, 1, 3, 4, 2, 5, 6]
    assert np.array(packed.parents).tolist() == [-1, 0, 1, 2, 0, 2, 2]
    assert np.array(packed.depths).tolist() == [0, 1, 2, 3, 1, 3, 3]
    assert packed.ancestors is not None
    assert np.array(packed.ancestors)[5].tolist() == [True, True, True, False, False, True, False]
