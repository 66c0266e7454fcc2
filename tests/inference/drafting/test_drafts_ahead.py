"""Heads begin their next draft before the host knows the accepted path, those that remember the text too."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import BeamShape
from rdchat.inference.drafting.beam_search import NodePool
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.heads.block_network import Markov
from rdchat.inference.drafting.heads.context_memory import ContextMemory
from rdchat.inference.drafting.heads.head import Head, HeadState, Root
from rdchat.inference.verification.target import LoadedModel
from tests.grids import pairs, share
from tests.inference.device_stand_in import DeviceStandIn, DeviceTimes, decoding, order, waits
from tests.inference.drafting.heads.assistant_targets import assistant_folder, shared_gemma
from tests.inference.drafting.heads.block_drafters import KINDS, HeadPair, stored_block
from tests.inference.drafting.heads.eagle3_drafters import bound
from tests.inference.drafting.heads.mtp_targets import GOLDEN, golden_folder, golden_target
from tests.inference.drafting.noted_searches import note_searches
from tests.inference.fakes import ask, random_drafter, reply_end, shared_llama
from tests.inference.plain_replies import plain

pytestmark = pytest.mark.across_rows

Made = tuple[LoadedModel, Head]


def eagle3(**changes: Any) -> Callable[[], Made]:
    return lambda: (shared_llama(), bound(shared_llama(), **changes))


def block(**changes: Any) -> Callable[[], Made]:
    return lambda: (shared_llama(), stored_block(shared_llama(), **changes).bind(shared_llama(), 0))


def mtp(case: str) -> Callable[[], Made]:
    return lambda: (
        golden_target(case),
        load_drafter(golden_folder(case), golden_target(case)),
    )


def assistant() -> Made:
    with TemporaryDirectory() as folder:
        return shared_gemma(), load_drafter(assistant_folder(Path(folder)), shared_gemma())


HEADS: dict[str, Callable[[], Made]] = {
    "recurrent": lambda: (shared_llama(), random_drafter(shared_llama()).head),
    "eagle3": eagle3(),
    "eagle3, two layers": eagle3(windows=(None, None), takes_embedding=(True, False)),
    "eagle3, sliding": eagle3(windows=(4, None), takes_embedding=(True, False)),
    "eagle3, sliding second": eagle3(windows=(None, 3), takes_embedding=(True, False)),
    "dflash": block(),
    "dspark": block(markov=Markov.RNN, from_anchor=True),
    "dspark, causal, sliding": block(markov=Markov.VANILLA, windows=(None, 4), causal=(True, True)),
    "domino, sliding": block(**KINDS[4]),
    "dflash 2, sliding": block(**KINDS[5]),
    "jetspec": block(**KINDS[6]),
    "xpress": block(**KINDS[7]),
    "mtp, mimo": mtp("mimo"),
    "mtp, deepseek_v32": mtp("deepseek_v32"),
    "mtp, qwen3_5": mtp("qwen3_5"),
    "mtp, three layers": lambda: (
        golden_target("glm4_moe"),
        load_drafter(GOLDEN / "several_mtp", golden_target("glm4_moe")),
    ),
    "assistant": assistant,
}
REMEMBERING = [name for name in HEADS if name not in {"recurrent", "assistant"}]
SHAPES = [BeamShape(3, 4), BeamShape(1, 4)]


@pytest.mark.parametrize(("name", "shape", "temperature"), share(pairs(HEADS, SHAPES, (0.0, 1.0)), 26), ids=str)
def test_a_draft_begun_ahead_is_the_one_that_the_round_would_have_begun_with(
    name: str, shape: BeamShape, temperature: float
) -> None:
    made = HEADS[name]()
    request = ask("abcabcabc", seed=4, max_tokens=10, temperature=temperature)
    searches = list[list[tuple[NodePool, bool]]]()
    for ahead in (True, False):
        iterator = HeadPair(*made).start(request, shape)
        drafter: Any = iterator._drafter
        searches.append(note_searches(drafter))
        if not ahead:
            drafter.drafts_ahead = lambda _limit: False
        assert reply_end(iterator).token_ids == plain(made[0], request).token_ids
    assert [{was_begun for _, was_begun in each[1:-1]} for each in searches] == [{True}, {False}]
    for (mine, _), (wanted, _) in zip(*searches, strict=True):
        np.testing.assert_array_equal(np.array(mine.tokens), np.array(wanted.tokens)[: len(mine.tokens)])
        np.testing.assert_allclose(np.array(mine.scores), np.array(wanted.scores), atol=1e-3)


@pytest.mark.parametrize("name", share(REMEMBERING, 6))
def test_a_draft_below_a_lazy_path_is_that_below_the_known_one(name: str) -> None:
    """Rows that were computed for a longer path are not seen, and those of the path are kept."""
    model, head = HEADS[name]()
    rng = np.random.default_rng(3)
    size = model.info.vocabulary_size - 1
    model.hooks.record_states(head.reads)
    text = rng.integers(3, size, 16)
    model.network(mx.array(text)[None])
    assert model.hooks.hidden is not None
    hidden = model.hooks.hidden[0]
    start = 9
    latest = 3
    stale = mx.concatenate([hidden[:13], -hidden[4:7]])
    for later in range(latest + 1):
        known = head.memory()
        lazy = head.memory()
        for memory in (known, lazy):
            memory.begin_reply(text[:start].tolist())
            memory.take_committed(text[: start - 1].tolist(), hidden[: start - 1], 0)
            memory.take_committed(text[start - 1 : start].tolist(), hidden[start - 1 : start], start - 1)
        end = start + later + 1  # position of the next root
        committed = text[start:end].tolist()
        wrong = rng.integers(3, size, latest - later).tolist()
        mixed = mx.concatenate([hidden[start:end], stale[end : start + latest + 1]])
        ahead = Root(mx.array(int(text[end])), start + 1, hidden[end - 1], mx.array(later), latest)
        lazy.take_ahead(mx.array([*committed, *wrong]), mixed, Root(committed[0], start, hidden[start - 1]), ahead)
        known.take_committed(committed, hidden[start:end], start)
        assert_alike(lazy.root_state(ahead), known.root_state(Root(int(text[end]), end, hidden[end - 1])))
        lazy.keep(committed, hidden[end - 1][None])
        assert isinstance(lazy, ContextMemory)
        assert isinstance(known, ContextMemory)
        assert lazy.positions == known.positions == list(range(end))
        for mine, wanted in zip(lazy.buffers, known.buffers, strict=True):
            for rows, expected in zip(mine.view(0), wanted.view(0), strict=True):
                np.testing.assert_allclose(np.array(rows), np.array(expected), atol=1e-4)
        if later % 2:
            again = Root(int(text[end]), end, hidden[end - 1])
            assert_alike(lazy.root_state(again), known.root_state(again))
        else:  # the next turn's prompt goes on with another token
            lazy.begin_reply([*text[:end].tolist(), 5, 6])
            lazy.take_committed([5, 6], hidden[:2], end)
            lazy.root_state(Root(7, end + 2, hidden[1]))
            assert lazy.positions == list(range(end + 2)), "no gap"


def assert_alike(mine: HeadState, wanted: HeadState) -> None:
    """Compare two levels of a draft and its root's logits."""
    for beams, tokens in (([0, 0, 0], [3, 8, 9]), ([2, 0, 2], [4, 4, 7]), ([1, 0], [5, 6])):
        np.testing.assert_allclose(np.array(mine.logits()), np.array(wanted.logits()), atol=1e-4)
        mine, wanted = (state.after(mx.array(beams), mx.array(tokens)) for state in (mine, wanted))


@pytest.mark.slow
@pytest.mark.parametrize("name", share(["eagle3, sliding", "dspark", "mtp, mimo"], 3))
def test_the_next_draft_is_queued_behind_the_call_before_the_host_waits(name: str) -> None:
    """It was built when the call was done, while the device had nothing to do."""
    made = HEADS[name]()
    request = ask("abcabcabc", max_tokens=20, temperature=0.7)
    device = DeviceStandIn(made[0].network, times=DeviceTimes().scaled(100))
    end, events = decoding(device, HeadPair(*made).start(request, SHAPES[0]))
    assert waits(events) == end.statistics.host_syncs == end.statistics.rounds
    steps = order(events)
    calls = [i for i, step in enumerate(steps) if step == "queue target"]
    for call in calls[:-2]:  # the last ones leave no room for another draft
        assert steps[call : call + 4] == ["queue target", "build beams", "queue beams", "wait"]
