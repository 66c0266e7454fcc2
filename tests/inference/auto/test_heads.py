"""The automatic mode with all kinds of heads: with a memory of the text, and with short drafts."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.inference.api import ChatMessage, Mode, Role
from rdchat.inference.auto.auto_drafter import AutoDrafter, AutoState, AvailableDrafters
from rdchat.inference.auto.controller import ChosenRound
from rdchat.inference.auto.cost_model import LENGTHS, MAX_ROWS, NEAR, PLAIN_STEP, CostModel, Part
from rdchat.inference.auto.measuring import measure_beams
from rdchat.inference.auto.planner import WIDTH, AcceptanceEstimates, Choice, Plan, Planner, head_source
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.lookup_index import LookupTree
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.machine import OtherPrograms
from tests.grids import grid
from tests.inference.auto.automatic_replies import automatic, iterator_of
from tests.inference.auto.chips import finished
from tests.inference.drafting.heads.assistant_targets import assistant_folder, shared_gemma
from tests.inference.drafting.heads.block_drafters import written_block
from tests.inference.drafting.heads.eagle3_drafters import eagle3_folder
from tests.inference.fake_heads import fake_head
from tests.inference.fakes import ask, random_drafter, reply_end, shared_llama, tiny_llama
from tests.inference.plain_replies import plain

TEMPERATURES = (0.0, 0.7, 1.3)
HEADS = {"remembers": {"remembers": True}, "of two tokens": {"max_drafted": 2}, "of one": {"max_drafted": 1}}


@pytest.mark.across_rows
@pytest.mark.parametrize(("sort", "temperature"), grid(list(HEADS), TEMPERATURES, one_in=5))
def test_the_text_is_that_of_plain_decoding_whatever_is_planned(sort: str, temperature: float) -> None:
    for seed, window in enumerate([None, 12]):
        model = shared_llama(sliding_window=window)
        head, ready = fake_head(model, **HEADS[sort])
        request = ask("abcabcabc", seed=5, max_tokens=60, temperature=temperature)
        expected = plain(model, request)
        events, *_ = automatic(model, request, (Mode.LOOKUP, Mode.DRAFTER), seed, ready)
        end = reply_end(events)
        assert (end.token_ids, end.text) == (expected.token_ids, expected.text)
        assert end.statistics.rounds > 0
        assert 0 < max(head.lengths) <= head.max_drafted
        assert not head.gaps, "it was not told of tokens"


@pytest.mark.slow
@pytest.mark.across_rows
@pytest.mark.parametrize(("temperature", "sort"), grid(TEMPERATURES, ["remembers", "of two tokens"], one_in=4))
def test_a_head_that_is_right_is_drafted_with(sort: str, temperature: float) -> None:
    """The planner is the real one; what it knows of the head is what it learns in the reply."""
    model = tiny_llama()
    model.tokenizer.eos_token_ids = frozenset()
    request = ask("what is it", max_tokens=48, temperature=temperature)
    expected = plain(model, request)
    text = [*model.encode_chat(request.messages), *expected.token_ids]
    head, ready = fake_head(model, text=text, **HEADS[sort])
    state = AutoState(model)
    state.use_drafters(AvailableDrafters(ready))
    state.costs.use(Part.CALLS, {(PLAIN_STEP, NEAR): 100.0, (1, NEAR): 101.0, (MAX_ROWS, NEAR): 110.0})
    state.costs.use(Part.BEAMS, {(WIDTH, 2): 1.0, (WIDTH, 8): 2.0})
    state.costs.learn = lambda *_: None  # type: ignore[method-assign]  a CPU's times would be learnt
    state.costs.learn_plain = lambda *_: None  # type: ignore[method-assign]
    end = reply_end(iterator_of(state, request))
    assert end.token_ids == expected.token_ids
    statistics = end.statistics
    assert statistics.rounds > 3
    assert statistics.accepted > statistics.rounds
    assert max(head.lengths) <= head.max_drafted
    assert statistics.choice is not None
    assert statistics.choice.length <= 1 + head.max_drafted


def test_a_conversation_that_goes_on_leaves_no_gap_in_what_a_head_remembers() -> None:
    """The automatic mode did not tell of a prompt's last token."""
    model = shared_llama()
    cache = None
    head, ready = fake_head(model, remembers=True)
    request = ask("abcabc", max_tokens=12, temperature=0.7)
    state = AutoState(model)
    state.use_drafters(AvailableDrafters(ready))
    for question in ("and then", "and again"):
        end = reply_end(iterator_of(state, request, cache := cache or KVCache(model.network)))
        said = ChatMessage(Role.ASSISTANT, end.text or "a")
        request = replace(request, messages=(*request.messages, said, ChatMessage(Role.USER, question)))
        cache.keep_prefix_of(model.encode_chat(request.messages))
    assert head.lengths, "nothing was drafted"
    assert not head.gaps


def test_lengths_beyond_what_a_head_drafts_are_not_planned() -> None:
    estimate = AcceptanceEstimates().head
    costs = CostModel()
    costs.use(Part.CALLS, {(PLAIN_STEP, NEAR): 1.0, (1, NEAR): 1.0})
    costs.use(Part.BEAMS, {(4, 2): 0.0})  # as long as can be
    for most in (1, 2, 3, 7, 15):
        table = head_source(estimate, costs, 4, most).drafts(MAX_ROWS)
        planned = [length for length, worth in zip(table.lengths, table.accepted, strict=True) if max(worth) >= 0]
        assert planned == [length for length in LENGTHS if length <= 1 + most]
        choice = Planner(costs).best_draft(NEAR, [table])
        assert choice is not None
        assert choice.plan.length in planned


@pytest.mark.parametrize("remembers", [True, False])
def test_a_head_is_begun_ahead_where_that_saves_time(remembers: bool) -> None:
    model = shared_llama()
    ready = fake_head(model, remembers=True)[1] if remembers else random_drafter(model)
    state = AutoState(model)
    request = ask("abc", max_tokens=12, temperature=0.7)
    state.use_drafters(AvailableDrafters(ready))
    state.costs.use(Part.CALLS, {(PLAIN_STEP, NEAR): 10.0, (1, NEAR): 20.0, (MAX_ROWS, NEAR): 21.0})
    state.costs.use(Part.BEAMS, {(WIDTH, length): 0.1 for length in LENGTHS})
    drafter = AutoDrafter(state, ReplyJob.fresh(model, [1, 2, 3], request))
    choice = Choice(Plan(Mode.DRAFTER, 4, 5, 8, 8), 2.0, 20.0, 10.0, 0.1)
    planned = drafter.planned(ChosenRound(choice, LookupTree()))
    assert planned.drafts_ahead(8)
    state.costs.use(Part.CALLS, {(PLAIN_STEP, NEAR): 10.0, (1, NEAR): 10.0, (MAX_ROWS, NEAR): 21.0})
    assert not planned.drafts_ahead(8)


def test_heads_are_measured_behind_a_text_that_they_were_told_of() -> None:
    model = shared_llama(context_length=2048)
    others = OtherPrograms()
    short, of_two = fake_head(model, max_drafted=2)
    assert set(finished(measure_beams(model, of_two, WIDTH, others)).costs) == {(WIDTH, 2), (WIDTH, 3)}
    head, remembering = fake_head(model, remembers=True)
    assert set(finished(measure_beams(model, remembering, WIDTH, others)).costs) == {(WIDTH, 2), (WIDTH, 6)}
    assert not head.gaps
    assert max(short.lengths) == 2
    assert remembering._memory.positions == [], "what it keeps of the chat is another memory"  # type: ignore[attr-defined]


WRITTEN = {
    "eagle3": (shared_llama, eagle3_folder),
    "block": (shared_llama, written_block),
    "assistant": (shared_gemma, lambda folder, _model: assistant_folder(folder)),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_their_costs_are_measured(kind: str, tmp_path: Path) -> None:
    make_model, write = WRITTEN[kind]
    model = make_model()
    model = replace(model, info=replace(model.info, context_length=2048))
    head = HeadModel(model, load_drafter(write(tmp_path / kind, model), model))
    assert head.head.kind == kind
    longest = min(6, 1 + head.head.max_drafted)
    costs = finished(measure_beams(model, head, 4, OtherPrograms())).costs
    assert set(costs) == {(4, 2), (4, longest)}
    assert all(ms > 0 for ms in costs.values())
