"""Gemma 4's assistant in the loop: the text of plain decoding, and drafts from the target's own rows."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import BeamShape, DraftSettings, Mode, ReplyEnd, TokenEvent
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.head_drafter import HeadDrafter, HeadModel
from rdchat.inference.drafting.heads.assistant_head import AssistantMemory, BoundAssistant
from rdchat.inference.drafting.heads.head import HeadState, Root
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree, Verifier
from tests.grids import share
from tests.inference.auto.automatic_replies import automatic
from tests.inference.drafting.heads.assistant_targets import (
    CASES,
    WINDOW,
    assistant_folder,
    golden_folder,
    golden_target,
    shared_gemma,
    stored,
)
from tests.inference.fakes import CharacterTokenizer, ask, with_beams
from tests.inference.plain_replies import drafted_by_beams, plain

pytestmark = pytest.mark.across_rows
TREE = BeamShape(3, 5)
CHAIN = BeamShape(1, 5)


class Endless(CharacterTokenizer):
    """No token ends a reply."""

    eos_token_ids = frozenset()


@pytest.mark.parametrize(
    ("clusters", "shape", "temperature"), share(list(product((31, 0), (TREE, CHAIN), (0.9, 0))), 7), ids=str
)
def test_the_text_is_that_of_plain_decoding(
    clusters: int, shape: BeamShape, temperature: float, tmp_path: Path
) -> None:
    """Prompt and reply are longer than the sliding window; the second reply takes the prefix that is still held."""
    model = shared_gemma()
    drafters = HeadModel(model, stored(assistant_folder(tmp_path, clusters=clusters), model))
    for seed in (2, 3):
        request = ask(temperature=temperature, max_tokens=2 * WINDOW, seed=seed)
        statistics = drafted_by_beams(drafters, model, request, shape).statistics
        assert statistics.host_syncs == statistics.rounds, "one a round"


@pytest.mark.parametrize("temperature", share([0.9, 0], 2))
def test_a_chat_that_goes_on_branches_and_stops_has_the_text_of_plain_decoding(
    temperature: float, tmp_path: Path
) -> None:
    """With the prefix cache of the turn before, an edited prompt, an end inside a round, and after a cancel."""
    model = shared_gemma()
    folder = assistant_folder(tmp_path)
    session = ChatSession(model)
    alone = ChatSession(model)
    mode = DraftSettings(Mode.DRAFTER, drafter=str(folder), beam_width=3, beam_length=5)
    for number, (prompt, tokens) in enumerate(
        [("one two three", 12), ("one two three and so on", 7), ("one two", 9), ("other", 1), ("one two three", 12)]
    ):
        request = ask(prompt, temperature=temperature, max_tokens=tokens, seed=4)
        events = session.generate(replace(request, draft=mode))
        if number == 2:
            next(iter(events))
            events.cancel()
        *_, end = events
        *_, reference = alone.generate(request)
        assert isinstance(end, ReplyEnd)
        assert isinstance(reference, ReplyEnd)
        assert end.mode_reason is None
        assert end.token_ids == reference.token_ids[: len(end.token_ids)]
        assert number == 2 or len(end.token_ids) == len(reference.token_ids)


def state_after(head: BoundAssistant, cache: KVCache, root: Root) -> HeadState:
    memory = head.memory()
    assert isinstance(memory, AssistantMemory)
    memory.use_cache(cache)
    return memory.root_state(root)


PATHS = [[0], [0, 1], [0, 2, 4], [0, 2]]


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_a_branch_gives_the_rows_that_a_plain_text_gives(path: list[int], tmp_path: Path) -> None:
    """While the round is open, and after its commit; rows of rejected nodes and padding are not seen."""
    model = shared_gemma()
    head = stored(assistant_folder(tmp_path), model)
    model.hooks.record_states(head.reads)
    text = [int(token) for token in np.random.default_rng(0).integers(3, 31, 2 * WINDOW)]
    tokens = [7, 8, 9, 10, 11]
    parents = [-1, 0, 0, 1, 2]
    tree = PackedTree(
        mx.array(tokens), mx.array(parents), mx.array([0, 1, 1, 2, 2]),
        mx.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]) > 0, 2,
    )  # fmt: skip
    cache = KVCache(model.network)
    straight = KVCache(model.network)
    model.network(mx.array([text]), cache=cache.layers)
    cache.tokens += text
    accepted = [tokens[node] for node in path]
    model.network(mx.array([[*text, *accepted]]), cache=straight.layers)
    end = len(text) + len(path)
    last = len(path) - 1
    assert model.hooks.hidden is not None
    reference = state_after(head, straight, Root(3, end, model.hooks.hidden[0, -1]))
    verifier = Verifier(model, cache)
    verified = verifier.verify(tree, 8)
    assert verified.hidden is not None
    hidden = verified.hidden[path[-1]]
    on_path = mx.array([node in path for node in range(5)])
    ahead = Root(mx.array(3), len(text) + 1, hidden, mx.array(last), 2, on_path)
    open_round = state_after(head, cache, ahead)
    np.testing.assert_allclose(np.array(open_round.logits()), np.array(reference.logits()), atol=1e-4)
    verifier.commit(accepted, path)
    committed = state_after(head, cache, Root(3, end, hidden))
    for beams, drafted in (([0, 0], [4, 5]), ([1, 0, 1], [6, 7, 8])):
        states = [reference, open_round, committed] = [
            each.after(mx.array(beams), mx.array(drafted)) for each in (reference, open_round, committed)
        ]
        for each in states[1:]:
            np.testing.assert_allclose(np.array(each.logits()), np.array(reference.logits()), atol=1e-4)


@pytest.mark.parametrize("temperature", share([0.9, 0.0], 2))
def test_auto_switches_between_plain_steps_lookup_and_the_assistant(temperature: float, tmp_path: Path) -> None:
    model = shared_gemma()
    head = HeadModel(model, stored(assistant_folder(tmp_path), model))
    request = ask("abcabcabc", seed=5, max_tokens=16, temperature=temperature)
    events, *_ = automatic(model, request, (Mode.LOOKUP, Mode.DRAFTER), 0, head)
    end = events[-1]
    assert isinstance(end, ReplyEnd)
    assert end.token_ids == plain(model, request).token_ids
    assert end.statistics.rounds > 0


def test_a_memory_does_not_keep_a_cache_alive(tmp_path: Path) -> None:
    """A chat's cache may hold gigabytes."""
    model = shared_gemma()
    memory = stored(assistant_folder(tmp_path), model).memory()
    assert isinstance(memory, AssistantMemory)
    cache = KVCache(model.network)
    memory.use_cache(cache)
    del cache
    assert memory._cache is not None
    assert memory._cache() is None


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "behind"])
def test_rounds_behind_a_long_text_copy_no_buffer(ahead: bool, tmp_path: Path) -> None:
    """MLX copies a buffer that is written while a draft still reads it."""
    model = shared_gemma()
    rows = 8192
    model = replace(model, tokenizer=Endless(), info=replace(model.info, context_length=2 * rows))
    head = stored(assistant_folder(tmp_path), model)
    prompt = np.random.default_rng(3).integers(3, 31, rows + 1).tolist()
    cache = KVCache(model.network)
    for layer in cache.layers:
        layer.update_and_fetch(*(mx.random.normal((1, 2, rows, 32 if layer._window is None else 16)) for _ in range(2)))
        mx.eval(layer.state)
    cache.tokens = prompt[:-1]
    model.hooks.record_states(head.reads)
    request = ask(temperature=0, max_tokens=9)
    drafter = HeadDrafter(
        model, head, head.memory(), prompt, request=with_beams(request, CHAIN, False), ledger=Ledger()
    )
    monkey: Any = drafter
    if not ahead:
        monkey.drafts_ahead = lambda limit: False
    buffer = cache.layers[1].buffer.arrays[0].nbytes
    peaks = list[int]()
    before = 0
    for event in ReplyIterator(ReplyJob.fresh(model, prompt, request, cache), drafter):
        if isinstance(event, TokenEvent) and event.round is not None:
            peaks.append(mx.get_peak_memory() - before)
        mx.reset_peak_memory()
        before = mx.get_active_memory()
    assert len(peaks) > 3
    # Scores take some of it; a copy would come on top.
    assert max(peaks[1:]) < buffer, "the first round makes room in the buffers"


class Golden:
    """One case."""

    def __init__(self, case: str) -> None:
        self.model = golden_target(case)
        self.head = stored(golden_folder(case), self.model)
        self.expected = dict(np.load(golden_folder(case) / "expected.npz"))
        self.text: list[int] = self.expected["text"].tolist()
        self.chain: list[int] = self.expected["chain"].tolist()

    def roots(self) -> Any:
        return zip(
            self.expected["roots"].tolist(), self.expected["target_logits"], self.expected["logits"], strict=True
        )

    def state(self, cache: KVCache, root: int) -> HeadState:
        memory = self.head.memory()
        memory.use_cache(cache)
        assert self.model.hooks.hidden is not None
        return memory.root_state(Root(self.text[root], root, self.model.hooks.hidden[0, -1]))


@pytest.fixture(params=CASES, scope="module")
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def read(model: LoadedModel, head: BoundAssistant, cache: KVCache, tokens: list[int]) -> mx.array:
    """Have the target read tokens; return the logits after the last one."""
    model.hooks.record_states(head.reads)
    logits: mx.array = model.network(mx.array([tokens]), cache=cache.layers)[0, -1]
    cache.tokens += tokens
    return logits


def assert_chosen(mine: mx.array, reference: np.ndarray) -> None:
    """Compare logits, (n, vocabulary); the reference gives tokens outside the chosen clusters a low one."""
    scored = reference > reference.min(axis=-1, keepdims=True)
    own = np.array(mine)
    if scored.sum() == reference.size - len(reference):
        scored[:] = True
    np.testing.assert_allclose(own[scored], reference[scored], atol=2e-4)
    assert (own[~scored] < -1000).all()


def test_a_chain_has_the_references_logits(golden: Golden) -> None:
    """With the rows and hidden states of the target's own call, before and after the sliding window is full."""
    for root, target_logits, logits in golden.roots():
        cache = KVCache(golden.model.network)
        np.testing.assert_allclose(
            np.array(read(golden.model, golden.head, cache, golden.text[:root])), target_logits, atol=2e-4
        )
        state = golden.state(cache, root)
        for level, token in enumerate([*golden.chain, 0]):
            assert_chosen(state.logits(), logits[level : level + 1])
            state = state.after(mx.array([0]), mx.array([token]))


def test_rows_that_come_one_by_one_are_those_that_come_at_once(golden: Golden) -> None:
    cache = KVCache(golden.model.network)
    for root, _, logits in golden.roots():
        while len(cache.tokens) < root:
            read(golden.model, golden.head, cache, golden.text[len(cache.tokens) :][:1])
        assert_chosen(golden.state(cache, root).logits(), logits[:1])


def test_a_levels_beams_do_not_depend_on_each_other(golden: Golden) -> None:
    cache = KVCache(golden.model.network)
    root, _, logits = list(golden.roots())[-1]
    read(golden.model, golden.head, cache, golden.text[:root])
    tokens = mx.array([9, golden.chain[0], 5])
    state = golden.state(cache, root).after(mx.array([0, 0, 0]), tokens)
    assert_chosen(state.logits()[1:2], logits[1:2])
    state = state.after(mx.array([2, 1]), mx.array([4, golden.chain[1]]))
    assert_chosen(state.logits()[1:], logits[2:3])
