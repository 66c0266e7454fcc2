"""A draft model in the loop: the same text as plain decoding, drafts that the reply's own rule would take, and a draft
cache that is in step with the conversation after every kind of end.
"""

import importlib
from dataclasses import dataclass, replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_map
from mlx_lm.models import llama

from rdchat.errors import InvalidSettingError, ModelError
from rdchat.inference.autoregressive import AutoregressiveIterator
from rdchat.inference.candidates import CandidateRanker, DraftShape
from rdchat.inference.draft_model import DraftModel
from rdchat.inference.ledger import Ledger
from rdchat.inference.loading import load_model
from rdchat.inference.probe import Capability, DraftKind
from rdchat.inference.protocol import (
    ChatMessage,
    DraftSettings,
    FinishReason,
    GenerationRequest,
    ReplyEnd,
    Role,
    SamplingParams,
    TokenEvent,
)
from rdchat.inference.reply import Clock, ReplyJob
from rdchat.inference.round_cache import RoundKVCache, RoundShape
from rdchat.inference.rounds import RoundIterator
from rdchat.inference.sampling import TokenChooser
from rdchat.inference.target import KVCache, LoadedModel
from tests.inference.fakes import ALPHABET, ask, loaded, tiny_llama

SIZE = len(ALPHABET)
CHAIN, TREE = DraftShape(4), DraftShape(4, (2, 1, 0, 2))


def near(model: LoadedModel, distance: float = 0.03) -> LoadedModel:
    """Return a model that often, but not always, agrees with another one."""
    copy = tiny_llama()
    mx.random.seed(11)
    noise = tree_map(lambda array: distance * mx.random.normal(array.shape), model.network.parameters())
    copy.network.update(tree_map(lambda array, error: array + error, model.network.parameters(), noise))
    mx.eval(copy.network.parameters())
    return copy


@dataclass
class Pair:
    """A target and its draft model, each with a cache that outlives replies."""

    target: LoadedModel
    draft: DraftModel
    cache: KVCache

    @classmethod
    def of(cls, target: LoadedModel, draft: LoadedModel, shared: int = SIZE) -> "Pair":
        return cls(target, DraftModel(target, draft, shared), KVCache(target.network))

    def start(self, request: GenerationRequest, shape: DraftShape = TREE) -> RoundIterator:
        prompt = self.target.encode_chat(request.messages, continue_last=False)
        self.cache.keep_prefix_of(prompt)
        job = ReplyJob(self.target, self.cache, prompt, request, Ledger(), Clock())
        return RoundIterator(job, self.draft.drafter(prompt, request, shape))

    def reply(self, request: GenerationRequest, shape: DraftShape = TREE) -> ReplyEnd:
        *_, end = self.start(request, shape)
        assert isinstance(end, ReplyEnd)
        return end

    def assert_in_step(self) -> None:
        """Both caches hold the same tokens, as many positions, and the rows that these tokens give."""
        assert self.draft.cached_tokens == self.cache.tokens
        assert self.draft.cached_positions in (len(self.cache.tokens), 0)  # recurrent state counts no positions
        probe = mx.array([[5]])
        model, fresh = self.draft.model.network, KVCache(self.draft.model.network)
        if self.draft.cached_tokens:
            model(mx.array([self.draft.cached_tokens]), cache=fresh.layers)
        expected = model(probe, cache=fresh.layers)
        found = model(probe, cache=self.draft.cache.layers)
        self.draft.cache.tokens.append(5)
        self.draft.cache.trim_to(len(self.cache.tokens))
        np.testing.assert_allclose(np.array(found), np.array(expected), atol=2e-4)


def plain(target: LoadedModel, request: GenerationRequest) -> ReplyEnd:
    prompt = target.encode_chat(request.messages, continue_last=False)
    job = ReplyJob(target, KVCache(target.network), prompt, request, Ledger(), Clock())
    *_, end = AutoregressiveIterator(job)
    assert isinstance(end, ReplyEnd)
    return end


FILTERS = [{}, {"top_p": 0.8}, {"top_k": 4}, {"min_p": 0.1}, {"repetition_penalty": 1.4}]


@pytest.mark.parametrize("sampling", FILTERS, ids=str)
@pytest.mark.parametrize("temperature", [0, 0.7, 1.3])
@pytest.mark.parametrize("shape", [DraftShape(1), CHAIN, TREE, DraftShape.of_size(8, 16)], ids=str)
def test_the_text_is_that_of_plain_decoding(shape: DraftShape, temperature: float, sampling: dict[str, float]) -> None:
    target = tiny_llama()
    request = ask(temperature=temperature, max_tokens=30, **({"top_p": 1.0} | sampling))
    pair = Pair.of(target, near(target))
    expected, drafted = plain(target, request), pair.reply(request, shape)
    assert drafted.token_ids == expected.token_ids
    assert drafted.text == expected.text
    assert drafted.finish_reason == expected.finish_reason
    assert 0 < drafted.statistics.accepted < drafted.statistics.drafted
    pair.assert_in_step()


@pytest.mark.parametrize("sampling", FILTERS, ids=str)
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_draft_model_that_is_the_target_has_every_draft_accepted(
    temperature: float, sampling: dict[str, float]
) -> None:
    """mlx-lm's rule, independent sampling and an equality check, reaches 1.4 tokens a round of 4 there."""
    target = tiny_llama()
    for seed in range(6):
        request = ask(temperature=temperature, max_tokens=41, seed=seed, **({"top_p": 1.0} | sampling))
        statistics = Pair.of(target, tiny_llama()).reply(request, CHAIN).statistics
        if statistics.drafted:  # else the first token was the last
            assert statistics.generated_tokens > 1
            cut = statistics.drafted - statistics.accepted  # where the reply ended inside the last round
            assert cut == 0
            assert statistics.rounds == -(-(statistics.generated_tokens - 1) // 5)


def test_one_model_in_both_parts_needs_no_second_copy() -> None:
    target = tiny_llama()
    request = ask(temperature=1.0, top_p=1.0, max_tokens=21)
    end = Pair.of(target, target).reply(request, TREE)
    assert end.token_ids == plain(target, request).token_ids
    assert end.statistics.acceptance_rate == 1


def test_runner_ups_are_accepted_and_leave_the_cache_in_step() -> None:
    target = tiny_llama()
    pairs = {shape: Pair.of(target, near(target, 0.06)) for shape in (CHAIN, TREE)}
    accepted = dict.fromkeys(pairs, 0)
    for seed in range(8):
        for shape, pair in pairs.items():
            accepted[shape] += pair.reply(ask(temperature=1.0, seed=seed), shape).statistics.accepted
            pair.assert_in_step()
    assert accepted[TREE] > accepted[CHAIN]


def test_a_target_that_verifies_chains_only_gets_chains() -> None:
    target = replace(tiny_llama(), capability=Capability(DraftKind.CHAIN, "it is so"))
    request = ask(temperature=1.0)
    end = Pair.of(target, near(target)).reply(request, TREE)
    assert end.token_ids == plain(target, request).token_ids
    assert end.statistics.verified_nodes == end.statistics.drafted + end.statistics.rounds


def test_new_settings_count_from_the_next_round_on() -> None:
    target = tiny_llama()
    request = ask(temperature=1.0, top_p=1.0, max_tokens=60, seed=3)
    pair = Pair.of(target, tiny_llama())
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
    target = tiny_llama()
    draft = replace(tiny_llama(), capability=Capability(DraftKind.NONE, "its cache type is not known"))
    with pytest.raises(ModelError, match="tiny cannot draft: its cache type is not known"):
        DraftModel(target, draft, SIZE)


# --- the draft model's cache after every kind of end ---


@pytest.mark.parametrize("max_tokens", range(1, 13))
def test_the_caches_are_in_step_after_a_cut_at_every_place_of_a_round(max_tokens: int) -> None:
    target = tiny_llama()
    for draft in (target, near(target)):
        pair = Pair.of(target, draft)
        end = pair.reply(ask(temperature=1.0, max_tokens=max_tokens))
        assert len(end.token_ids) == max_tokens
        pair.assert_in_step()


def test_the_caches_are_in_step_after_an_end_token_and_after_a_stop_string() -> None:
    target = tiny_llama()
    text = plain(target, ask(temperature=0.7)).text
    ends = set()
    for seed, stop in [*((seed, ()) for seed in range(12)), *((1, (text[at : at + 2],)) for at in range(1, 14))]:
        pair = Pair.of(target, near(target))
        request = ask(temperature=0.7, seed=seed, stop=stop, max_tokens=60)
        end = pair.reply(request)
        assert (end.token_ids, end.text) == (plain(target, request).token_ids, plain(target, request).text)
        pair.assert_in_step()
        ends.add(end.finish_reason)
    assert ends >= {FinishReason.EOS, FinishReason.STOP_STRING}


@pytest.mark.parametrize("events", range(20))
@pytest.mark.parametrize("by", ["cancel", "close"])
def test_the_caches_are_in_step_after_a_cancel_in_every_phase(by: str, events: int) -> None:
    target = tiny_llama()
    pair = Pair.of(target, near(target))
    request = ask("a prompt that is longer than one chunk of prefill", temperature=0.7)
    iterator = pair.start(request)
    begun = [next(iterator) for _ in range(events)]
    getattr(iterator, by)()
    for _ in iterator:
        pass
    held = pair.draft.cached_tokens
    assert pair.draft.cached_positions == len(held)
    assert held == pair.cache.tokens[: len(held)]
    if begun and isinstance(begun[-1], TokenEvent):
        pair.assert_in_step()
    assert pair.reply(request).token_ids == plain(target, request).token_ids


def test_a_cancel_while_the_draft_model_reads_the_prompt_keeps_what_it_read() -> None:
    target = tiny_llama()
    pair = Pair.of(target, near(target))
    prompt = target.encode_chat(ask("several chunks of prompt please").messages, continue_last=False)
    drafter = pair.draft.drafter(prompt, ask(), TREE)
    looks = iter([False, False, True])
    read = list(drafter.prefill(lambda: next(looks)))
    drafter.close(len(prompt))
    assert read == [0, 8, 16]
    assert pair.draft.cached_tokens == prompt[:16]
    assert pair.draft.cached_positions == 16


@pytest.mark.parametrize("failing_call", [0, 3, 9, 14])
def test_the_draft_cache_is_empty_after_an_error(failing_call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_llama()
    pair = Pair.of(target, near(target))
    whole = type(pair.draft.model.network).__call__
    calls = iter(range(1000))

    def fail(self: object, *arguments: object, **options: object) -> object:
        if self is pair.draft.model.network and next(calls) == failing_call:
            raise RuntimeError("out of luck")
        return whole(self, *arguments, **options)

    monkeypatch.setattr(type(pair.draft.model.network), "__call__", fail)
    with pytest.raises(RuntimeError, match="out of luck"):
        pair.reply(ask())
    assert (pair.draft.cached_tokens, pair.draft.cached_positions) == ([], 0)
    assert pair.reply(ask()).token_ids == plain(target, ask()).token_ids
    pair.assert_in_step()


def test_a_further_turn_reads_only_what_is_new_and_an_edit_what_follows_it() -> None:
    target = tiny_llama()
    pair = Pair.of(target, near(target))
    first = ask("who are you", temperature=0.7)
    reply = pair.reply(first).text.rstrip("\0")
    rows = pair.draft.cache.layers[0].buffer
    said = {Role.USER: first.messages[0].content, Role.ASSISTANT: reply}
    turns = [*(ChatMessage(role, text) for role, text in said.items()), ChatMessage(Role.USER, "and what do you do")]
    for messages in (turns, [*turns[:2], replace(turns[2], content="and why")]):
        request = replace(first, messages=tuple(messages))
        prompt = target.encode_chat(request.messages, continue_last=False)
        held = pair.draft.cached_tokens
        shared = next((i for i, (a, b) in enumerate(zip(held, prompt, strict=False)) if a != b), len(held))
        assert shared > 20
        written = rows.written
        iterator = pair.start(request)
        while not isinstance(next(iterator), TokenEvent):
            pass
        assert rows.written - written == len(prompt) - 1 - shared
        assert [*iterator][-1].token_ids == plain(target, request).token_ids  # type: ignore[union-attr]
        pair.assert_in_step()


def test_a_wrapped_window_in_the_draft_model_is_taken_back_exactly() -> None:
    target = tiny_llama()
    pair = Pair.of(target, tiny_llama(sliding_window=7))
    for seed in range(3):
        request = ask("a prompt longer than the window", seed=seed, temperature=1.0, max_tokens=60)
        assert pair.reply(request).token_ids == plain(target, request).token_ids
        pair.assert_in_step()


def test_rows_of_a_window_survive_a_buffer_that_grows_within_a_round() -> None:
    """What a rejected draft pushed out of the window is wanted again, so growing must not drop it."""
    rows = mx.arange(300.0).reshape(1, 1, 300, 1)
    for fed in range(240, 260):
        cache = RoundKVCache(window=8)
        cache.update_and_fetch(rows[:, :, :fed], rows[:, :, :fed])
        cache.begin(RoundShape(mx.arange(9)))
        for step in range(9):
            cache.update_and_fetch(-rows[:, :, step : step + 1], -rows[:, :, step : step + 1])
        cache.commit([0, 1])
        keys, _ = cache.update_and_fetch(rows[:, :, fed : fed + 1], rows[:, :, fed : fed + 1])
        assert np.array(keys)[0, 0, :, 0].tolist() == [*range(fed - 5, fed), 0, -1, fed]


@pytest.mark.parametrize("family", ["mamba2", "lfm2"])
def test_a_draft_model_with_recurrent_state_reads_accepted_tokens_again(family: str) -> None:
    target, draft = recurrent(family), recurrent(family)
    request = ask(temperature=1.0, top_p=1.0, max_tokens=41)
    end = Pair.of(target, draft).reply(request, CHAIN)
    assert end.statistics.acceptance_rate == 1
    attentive = tiny_llama()
    pair = Pair.of(attentive, draft)
    for seed in range(4):
        request = ask(temperature=1.0, seed=seed)
        assert pair.reply(request, TREE).token_ids == plain(attentive, request).token_ids
        pair.assert_in_step()


def recurrent(family: str) -> LoadedModel:
    """Return a small model of a family whose layers keep state."""
    module = importlib.import_module(f"mlx_lm.models.{family}")
    common = {
        "model_type": family, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": SIZE, "max_position_embeddings": 512,
        "rope_theta": 10000.0, "tie_word_embeddings": False,
    }  # fmt: skip
    own = {
        "mamba2": {
            "num_heads": 8, "state_size": 16, "layer_norm_epsilon": 1e-5, "conv_kernel": 4, "expand": 2, "n_groups": 2,
            "use_bias": False, "use_conv_bias": True, "time_step_limit": (0.0, float("inf")), "time_step_rank": "auto",
        },
        "lfm2": {
            "norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3, "block_dim": 64, "block_ff_dim": 128,
            "block_multiple_of": 8, "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": False,
            "full_attn_idxs": [1],
        },
    }[family]  # fmt: skip
    mx.random.seed(2)
    network = module.Model(module.ModelArgs.from_dict(common | own))
    network.update(tree_map(lambda array: array + 0.1 * mx.random.normal(array.shape), network.parameters()))
    network.eval()
    return loaded(network)


# --- limits and damage ---


def test_drafts_end_where_the_draft_models_own_context_does() -> None:
    target = tiny_llama()
    for context in (8, 40, 47):
        draft = tiny_llama(context_length=context)
        pair = Pair.of(target, draft)
        end = pair.reply(ask(temperature=1.0, max_tokens=40))
        assert end.token_ids == plain(target, ask(temperature=1.0, max_tokens=40)).token_ids
        assert pair.draft.cached_positions == len(pair.draft.cached_tokens) <= context


def test_tokens_that_only_the_draft_models_padding_has_are_never_offered() -> None:
    target = tiny_llama()
    args = replace(llama.ModelArgs(**vars(target.network.args)), vocab_size=SIZE + 9, tie_word_embeddings=False)
    network = llama.Model(args)
    network.lm_head.weight[SIZE:] = 100 * mx.ones((9, 32))  # their logits are extreme: half of the time the largest
    wide = loaded(network)
    wide = replace(wide, info=replace(wide.info, vocabulary_size=SIZE + 9))
    request = ask(temperature=1.0)
    assert Pair.of(target, wide, SIZE + 9).reply(request).token_ids == plain(target, request).token_ids
    logits = wide.network(mx.array([[3]]))[:, -1]
    for params in (SamplingParams(temperature=0), SamplingParams(temperature=1.0), SamplingParams(top_p=0.5)):
        ranked = np.array(CandidateRanker(params, 1, SIZE).rank(logits, 4, SIZE))
        assert sorted(ranked.tolist()) == list(range(SIZE))


def test_weights_that_are_not_numbers_are_an_error_that_names_model_and_layer() -> None:
    target, draft = tiny_llama(), tiny_llama(1)
    draft.network.model.layers[1].mlp.up_proj.weight[3, 4] = float("nan")
    draft = replace(draft, info=replace(draft.info, name="small-one"))
    pair = Pair.of(target, draft)
    with pytest.raises(ModelError, match=r"draft model small-one .* Layer model\.layers\.1\.mlp\.up_proj is damaged"):
        pair.reply(ask())
    assert (pair.draft.cached_tokens, pair.cache.tokens) == ([], [])


@pytest.mark.parametrize("draft_tokens", [0, -1, 65])
def test_a_depth_out_of_range_is_refused(draft_tokens: int) -> None:
    with pytest.raises(InvalidSettingError, match=r"draft-tokens .* from 1 to 64"):
        DraftShape(draft_tokens)


# --- candidates ---


@pytest.mark.parametrize("sampling", FILTERS, ids=str)
@pytest.mark.parametrize("temperature", [0, 0.7, 1.3])
def test_the_first_candidate_is_what_the_target_would_choose(temperature: float, sampling: dict[str, float]) -> None:
    params = SamplingParams(temperature=temperature, **({"top_p": 1.0} | sampling))
    chooser, ranker = TokenChooser(params, 9, 500), CandidateRanker(params, 9, 500)
    mx.random.seed(4)
    for position in range(40):
        logits = 3 * mx.random.normal((1, 500))
        seen = chooser.seen(list(range(0, 500, 3))) if chooser.needs_seen else None
        expected = chooser.choose(logits, mx.array([position]), seen).item()
        ranked = np.array(ranker.rank(logits, position, 3, seen)).tolist()
        assert ranked[0] == expected
        assert len(set(ranked)) == 3


def test_runner_ups_are_the_next_choices_were_the_first_not_there() -> None:
    params = SamplingParams(temperature=0.8, top_p=1.0)
    ranker, chooser = CandidateRanker(params, 3, 100), TokenChooser(params, 3, 100)
    mx.random.seed(1)
    logits = mx.random.normal((1, 100))
    for token in np.array(ranker.rank(logits, 7, 4)).tolist():
        assert token == chooser.choose(logits, mx.array([7])).item()
        logits[0, token] = -1e9


def test_a_shape_of_a_size_spends_its_nodes_on_the_likeliest_runner_ups() -> None:
    assert DraftShape.of_size(4, 5) == DraftShape(4, (0, 0, 0, 0))
    assert DraftShape.of_size(4, 3).draft_tokens == 4  # the chain is never shortened
    for nodes in range(6, 20):
        shape = DraftShape.of_size(4, nodes)
        assert sum(shape.runner_ups) == nodes - 5
        assert list(shape.runner_ups) == sorted(shape.runner_ups, reverse=True)


def test_a_packed_draft_hangs_runner_ups_beside_their_step() -> None:
    packed = DraftShape(3).pack(9, [mx.array([1, 2]), mx.array([3]), mx.array([4, 5, 6])])
    assert np.array(packed.tokens).tolist() == [9, 1, 3, 4, 2, 5, 6]
    assert np.array(packed.parents).tolist() == [-1, 0, 1, 2, 0, 2, 2]
    assert np.array(packed.depths).tolist() == [0, 1, 2, 3, 1, 3, 3]
    assert packed.ancestors is not None
    assert np.array(packed.ancestors)[5].tolist() == [True, True, True, False, False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [{"temperature": 1.0, "top_p": 1.0}, {"temperature": 0.7, "top_p": 0.95}], ids=str)
def test_the_real_model_accepts_its_own_drafts(default_model: Path, sampling: dict[str, float]) -> None:
    """Rows computed alone and in a batch differ in their last bits, so now and then a near-tie falls the other way."""
    target = load_model(default_model)
    pair = Pair.of(target, target, target.info.vocabulary_size)
    request = ask("Describe a harbour in the early morning.", max_tokens=60, **sampling)
    end = pair.reply(request, CHAIN)
    assert end.statistics.acceptance_rate is not None
    assert end.statistics.acceptance_rate > 0.95
    assert pair.draft.cached_tokens == pair.cache.tokens
    assert end.token_ids == plain(target, request).token_ids
