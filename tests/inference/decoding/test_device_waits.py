"""What the host does while the device computes, with a stand-in whose work is done later.

Told is the order of what is built, queued and waited for, and how often; never how long anything took.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import BeamShape, DraftKind, GenerationEvent, ReplyEnd
from rdchat.inference.decoding.draft import LazyPath, accepted_path
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.head_drafter import HeadDrafter
from rdchat.inference.drafting.lookup import LookupDrafter
from rdchat.inference.verification import round_cache
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree
from tests.grids import grid, share
from tests.inference.device_stand_in import MAX_BUFFERS, DeviceStandIn, DeviceTimes, decoding, order, waits
from tests.inference.drafting.draft_pairs import Pair, shared_near
from tests.inference.drafting.noted_searches import note_searches
from tests.inference.fake_heads import fake_head
from tests.inference.fakes import (
    ScriptedDrafter,
    ask,
    chains_only,
    job_of,
    random_drafter,
    reply_end,
    shared_family,
    shared_llama,
    tree_of_beams,
    with_beams,
)
from tests.inference.plain_replies import plain

SLOW = DeviceTimes().scaled(100)  # so that the host is always ahead of the device
SAMPLINGS = [{"temperature": 0}, {"temperature": 1.0}, {"temperature": 0.7, "repetition_penalty": 1.3}]


def recurrent(model: LoadedModel, job: ReplyJob, branch: bool = False, width: int = 3) -> HeadDrafter:
    return random_drafter(model).drafter(job.prompt, with_beams(job.request, BeamShape(width, 4), branch))


def watched(model: LoadedModel, iterator: ReplyIterator) -> tuple[ReplyEnd, list[Any]]:
    """Return the end of a reply that waits once a round, and what happened on the device."""
    end, events = decoding(DeviceStandIn(model.network, times=SLOW), iterator)
    assert waits(events) == end.statistics.host_syncs == (end.statistics.rounds or end.statistics.target_calls)
    return end, events


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_plain_decoding_queues_each_call_before_it_waits_for_the_last(sampling: dict[str, float]) -> None:
    model = shared_llama()
    request = ask(max_tokens=12, **sampling)
    _, events = watched(model, ReplyIterator(job_of(model, request)))
    steps = [step for step in order(events) if not step.startswith("build")]
    between = [steps[i + 1] for i, step in enumerate(steps[:-1]) if step == "wait"]
    assert between.count("wait") <= 1, "but for the last token a call is queued before each wait"


@pytest.mark.slow
@pytest.mark.across_rows
def test_the_host_is_held_up_until_ten_command_buffers_are_left() -> None:
    """As MLX does on Metal; so a draft behind the call is built when little of the call is left."""
    model = shared_llama()
    request = ask(max_tokens=16, temperature=0)
    ends = []
    times = replace(SLOW, buffer=SLOW.call / 90)
    for chosen in (SLOW, times, replace(SLOW, buffer=SLOW.call)):
        job = job_of(model, request)
        device = DeviceStandIn(model.network, times=chosen)
        end, events = decoding(device, ReplyIterator(job, recurrent(model, job)))
        ends.append(end.token_ids)
        held = [place for place, event in enumerate(events) if event.what == "held"]
        if chosen is not times:  # no limit, or one that a call never reaches
            assert not held
            continue
        assert len(held) >= end.statistics.rounds
        for place in held:
            queued = events[place - 1]
            assert queued.what == "queue"
            left = queued.ended - events[place].ended
            most = max(queued.ended - queued.began, times.buffer) * MAX_BUFFERS
            assert 0 < left < most
            if queued.of == ("target",):
                assert left == pytest.approx(MAX_BUFFERS * times.buffer, rel=0.02)
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.parametrize("sampling", share(SAMPLINGS, 3), ids=str)
def test_prompt_lookup_waits_once_a_round(sampling: dict[str, float]) -> None:
    model = shared_llama()
    request = ask("abcabcabc", max_tokens=20, **sampling)
    job = job_of(model, request)
    end, _ = watched(model, ReplyIterator(job, LookupDrafter(job.prompt, 4)))
    assert end.token_ids == plain(model, request).token_ids


@pytest.mark.parametrize(("sampling", "branch"), grid(SAMPLINGS, [False, True], one_in=4), ids=str)
@pytest.mark.across_rows
def test_the_next_recurrent_draft_is_queued_behind_the_call_before_the_host_waits(
    sampling: dict[str, float], branch: bool
) -> None:
    """It was built when the call was done, while the device had nothing to do."""
    model = shared_llama()
    request = ask(max_tokens=16, **sampling)
    job = job_of(model, request)
    end, events = watched(model, ReplyIterator(job, recurrent(model, job, branch)))
    steps = [step for step in order(events) if "other" not in step]
    calls = [i for i, step in enumerate(steps) if step == "queue target"]
    for call in calls[:-2]:  # the last ones leave no room for another draft
        assert steps[call : call + 4] == ["queue target", "build beams", "queue beams", "wait"]
    first = steps.index("build target")
    assert steps[:first] == ["build beams", "queue beams"], "the device drafts while the call is built"
    assert end.token_ids == plain(model, request).token_ids


@pytest.mark.parametrize("name", share(["lfm2", "qwen3_5", "nemotron_h"], 3))
@pytest.mark.across_rows
def test_trees_on_recurrent_state_wait_once_a_round(name: str) -> None:
    """Their commits need to know on which path the last node lies. The last commit is waited for at the reply's end."""
    model = shared_family(name)
    request = ask(max_tokens=20, temperature=0, seed=3)
    assert model.capability.kind is DraftKind.TREE
    job = job_of(model, request)
    drafter = ScriptedDrafter(list(plain(model, request).token_ids), 3, 5)
    end, events = decoding(DeviceStandIn(model.network, times=SLOW), ReplyIterator(job, drafter))
    assert waits(events) - 1 == end.statistics.host_syncs == end.statistics.rounds
    assert end.statistics.accepted > 0
    assert end.token_ids == plain(model, request).token_ids


@pytest.mark.slow
@pytest.mark.across_rows
def test_a_draft_begun_below_another_token_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a quick choice turns out wrong, the draft was begun below a token that the reply does not have."""
    model = shared_llama()
    rng = np.random.default_rng(0)
    quickly = TokenChooser.choose_quickly

    def seldom_right(self: TokenChooser, logits: mx.array, *rest: object) -> tuple[mx.array, mx.array]:
        sure = mx.array(rng.random(len(logits)) < 0.5)
        return mx.where(sure, quickly(self, logits, *rest)[0], 1), sure  # type: ignore[arg-type]

    request = ask(max_tokens=30, temperature=1.0)
    expected = plain(model, request)
    monkeypatch.setattr(TokenChooser, "choose_quickly", seldom_right)
    job = job_of(model, request)
    drafter = recurrent(model, job)
    searches = note_searches(drafter)
    last = reply_end(ReplyIterator(job, drafter))
    assert last.token_ids == expected.token_ids
    assert {True, False} == {was_begun for _, was_begun in searches}


def test_a_draft_that_prompt_lookup_would_replace_is_not_begun() -> None:
    """Of a target that takes chains only, a found path is offered in place of the beam."""
    model = chains_only(shared_llama())
    request = ask("abcabcabc", max_tokens=16, temperature=0)
    job = job_of(model, request)
    drafter = recurrent(model, job, branch=True, width=1)
    assert not drafter.drafts_ahead(10)
    searches = note_searches(drafter)
    list(ReplyIterator(job, drafter))
    assert not any(was_begun for _, was_begun in searches)
    assert recurrent(model, job, branch=False, width=1).drafts_ahead(10)


@pytest.mark.parametrize("sampling", share(SAMPLINGS, 3), ids=str)
def test_a_draft_models_steps_are_queued_one_behind_the_other(sampling: dict[str, float]) -> None:
    model = shared_llama()
    small = shared_near()
    request = ask(max_tokens=20, **sampling)
    pair = Pair.of(model, small)
    device = DeviceStandIn(model.network, small.network, SLOW)
    end, events = decoding(device, pair.start(request, DraftShape(3)))
    assert waits(events) == end.statistics.host_syncs == end.statistics.rounds
    steps = order(events)
    assert steps[:7] == ["build draft model", "queue draft model"] * 3 + ["build target"]


@pytest.mark.parametrize("name", share(["lfm2", "qwen3_next", "mamba2"], 3))
def test_sampled_plain_decoding_with_recurrent_state_does_not_sort_its_vocabulary(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state could not be taken back, so every token was chosen by the definition, a full sort."""
    model = shared_family(name)
    exactly = TokenChooser.choose
    sorts = 0
    request = ask(max_tokens=16, temperature=0.9, seed=3)
    expected = plain(model, request)

    def counted(self: TokenChooser, *arguments: object) -> mx.array:
        nonlocal sorts
        sorts += 1
        return exactly(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TokenChooser, "choose", counted)
    end = reply_end(ReplyIterator(job_of(model, request)))
    assert (end.token_ids, sorts) == (expected.token_ids, 0)


@pytest.mark.parametrize("name", share(["lfm2", "qwen3_next", "mamba2", "llama"], 4))
def test_a_call_for_a_wrong_token_is_taken_back_with_its_state(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = shared_family(name)
    quickly = TokenChooser.choose_quickly
    request = ask(max_tokens=16, temperature=0.9, seed=3)
    expected = reply_end(ReplyIterator(job_of(model, request)))
    calls = 0

    def seldom_wrong(self: TokenChooser, logits: mx.array, *rest: object) -> tuple[mx.array, mx.array]:
        nonlocal calls
        tokens, sure = quickly(self, logits, *rest)  # type: ignore[arg-type]
        calls += 1
        return (tokens, sure) if calls % 3 else ((tokens + 1) % 20, sure & False)

    monkeypatch.setattr(TokenChooser, "choose_quickly", seldom_wrong)
    end = reply_end(ReplyIterator(job_of(model, request)))
    assert end.token_ids == expected.token_ids
    assert end.statistics.host_syncs > end.statistics.target_calls, "the second choice is waited for too"


def test_the_path_that_is_walked_on_the_device_is_the_accepted_one() -> None:
    rng = np.random.default_rng(5)
    for _ in range(30):
        beams = rng.integers(1, 4, (int(rng.integers(1, 5)), int(rng.integers(1, 6))))
        beams[:, 0] = 7
        tree = tree_of_beams(beams)
        chosen = rng.integers(1, 4, len(tree)).astype(np.uint32)
        path = accepted_path(tree, chosen)
        lazy = LazyPath.accepted(PackedTree.pack(tree), mx.array(chosen), 100)
        assert np.flatnonzero(np.array(lazy.nodes)).tolist() == path
        assert lazy.leads_to(path[-1], int(chosen[path[-1]]))
        assert not lazy.leads_to(path[-1], 9)
        assert int(lazy.depth.item()) == len(path) - 1 <= lazy.tree.deepest
        by_depth = lazy.by_depth().tolist()
        assert isinstance(by_depth, list)
        assert len(by_depth) == 1 + lazy.tree.deepest
        assert by_depth[: len(path)] == path


@pytest.mark.parametrize("mode", share(["plain", "lookup", "heads"], 2))
def test_a_wait_for_a_growing_buffer_is_counted(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call waited for the device once a layer, and nobody was told."""
    monkeypatch.setattr(round_cache, "_LARGE_BYTES", 0)
    model = shared_llama()
    request = ask("ab" * 115, max_tokens=16, temperature=0)
    job = job_of(model, request)
    assert len(job.prompt) < 256 < len(job.prompt) + 16, "the buffers grow while the reply is written"
    iterator: Iterator[GenerationEvent]
    grown = len(model.network.layers)
    if mode == "plain":
        iterator = ReplyIterator(job)
    elif mode == "lookup":
        iterator = ReplyIterator(job, LookupDrafter(job.prompt, 4))
    else:
        ready = fake_head(model, remembers=True)[1]
        iterator = ReplyIterator(
            job, ready.drafter(job.prompt, with_beams(request, BeamShape(3, 4), False), job.ledger)
        )
        grown += 1
    end = reply_end(iterator)
    assert end.statistics.host_syncs == end.statistics.target_calls + grown
