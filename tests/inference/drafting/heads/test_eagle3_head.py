"""EAGLE-3 in the loop: the same text as plain decoding, and drafts that are right where the drafter knows the text."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice, product
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import BeamShape, ChatMessage, Role
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.head import HeadState, Root
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.drafting.heads.block_drafters import HeadPair
from tests.inference.drafting.heads.eagle3_drafters import (
    CHAIN,
    KINDS,
    TREE,
    bound,
    eagle3_folder,
    features_of_a_text,
    golden_folders,
)
from tests.inference.drafting.heads.golden_heads import GoldenHead
from tests.inference.fakes import ask, loaded, shared_family, shared_llama
from tests.inference.families import network_of
from tests.inference.plain_replies import drafted_by_beams, plain

pytestmark = pytest.mark.across_rows

TEXTS = [
    ("safeailab", 0, TREE), ("safeailab", 1.3, CHAIN), ("speculators", 0.7, TREE), ("speculators", 0, CHAIN),
    ("deepspec", 1.3, TREE), ("deepspec", 0.7, CHAIN),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "temperature", "shape"), share(TEXTS))
def test_the_text_is_that_of_plain_decoding(layout: str, temperature: float, shape: BeamShape, tmp_path: Path) -> None:
    model = shared_llama()
    drafters = HeadModel(model, load_drafter(eagle3_folder(tmp_path, model, layout), model))
    request = ask(temperature=temperature, max_tokens=16, seed=2)
    for _ in range(2):  # the second time with what the memory holds of the first
        statistics = drafted_by_beams(drafters, model, request, shape).statistics
        assert statistics.host_syncs == statistics.rounds, "one a round"


FAMILIES = [
    ("qwen3", "float32", 0), ("gpt_oss", "4bit", 0.7), ("gemma3", "float32", 1.3), ("llama with yarn rope", "4bit", 0),
    ("lfm2", "float32", 0.7), ("qwen3_next", "4bit", 1.3),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("family", "dtype", "temperature"), share(FAMILIES, 6))
def test_families_are_drafted_for(
    family: str, dtype: str, temperature: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As trees, or as chains where the target keeps recurrent state; with weights of 4 bits where the target's are."""
    model = shared_family(family, dtype)
    monkeypatch.setattr("rdchat.inference.drafting.heads.head.on_gpu", lambda: dtype == "4bit")
    head = load_drafter(eagle3_folder(tmp_path, model, "speculators"), model)
    request = ask(temperature=temperature, max_tokens=16)
    drafted_by_beams(HeadModel(model, head), model, request, TREE)


@pytest.mark.parametrize("shape", [TREE, CHAIN], ids=["tree", "chain"])
def test_a_drafter_that_was_fitted_to_a_reply_drafts_all_of_it(shape: BeamShape) -> None:
    """Its output rows are fitted to what it makes of the text: other features, tokens or places would draft wrong."""
    model = shared_llama()
    request = ask(temperature=0, max_tokens=13)
    prompt = model.encode_chat(request.messages)
    text = [*prompt, *plain(model, request).token_ids]
    head = bound(model, hidden_size=128, own_embeddings=True, draft_vocabulary_size=31)
    model.hooks.record_states(head.reads)
    model.network(mx.array([text]))
    features = model.hooks.hidden[0]
    outputs = []
    wanted = []
    for place in range(len(prompt), len(text) - 1):
        memory = head.memory()
        memory.begin_reply(text[:place])
        memory.take_committed(text[:place], features[:place], 0)
        state = memory.root_state(Root(text[place], place, features[place - 1]))
        for token in text[place + 1 : place + 5]:
            outputs.append(np.array(head.network.norm(state.output[0])))
            wanted.append(20.0 * np.eye(31)[token])
            state = state.after(mx.array([0]), mx.array([token]))
    rows = np.linalg.lstsq(np.stack(outputs), np.stack(wanted), rcond=None)[0].T
    head.network.lm_head.weight = mx.array(rows.astype(np.float32))
    statistics = drafted_by_beams(HeadModel(model, head), model, request, shape).statistics
    assert (statistics.rounds, statistics.accepted) == (3, 9), "12 tokens, 5 a round"


@pytest.mark.parametrize("kind", share(KINDS, 3))
def test_a_level_has_the_logits_of_each_of_its_paths_alone(kind: str) -> None:
    """Fed as committed rows a path gives other rows, so the paths are fed as chains below the same root."""
    head = bound(shared_llama(), **KINDS[kind])
    text, features = features_of_a_text()
    memory = head.memory()
    memory.begin_reply(text[:-1])
    memory.take_committed(text[:-1], features, 0)
    root = Root(text[-1], 12, features[-1])
    levels = [([0, 0, 0], [3, 8, 9]), ([0, 2, 0, 1], [4, 4, 7, 3]), ([3, 1], [5, 6]), ([1, 0], [2, 2])]
    state = memory.root_state(root)
    paths = [[]]
    for beams, tokens in levels:
        state = state.after(mx.array(beams), mx.array(tokens))
        paths = [[*paths[beam], token] for beam, token in zip(beams, tokens, strict=True)]
        for row, path in zip(state.logits(), paths, strict=True):
            alone = memory.root_state(root)
            for token in path:
                alone = alone.after(mx.array([0]), mx.array([token]))
            np.testing.assert_allclose(np.array(row), np.array(alone.logits()[0]), atol=1e-5)


def cancelled(iterator: ReplyIterator, events: int) -> None:
    list(islice(iterator, events))
    iterator.cancel()
    list(iterator)


ENDS: dict[str, Callable[[ReplyIterator], object]] = {
    "finished": list,
    "cancelled while the prompt is read": lambda iterator: cancelled(iterator, 2),
    "cancelled while writing": lambda iterator: cancelled(iterator, 9),
    "closed while writing": lambda iterator: (list(islice(iterator, 9)), iterator.close()),
    "closed within a round": lambda iterator: (list(islice(iterator, 12)), iterator.close()),
}


@pytest.mark.parametrize(("end", "shape"), share(product(ENDS, [TREE, CHAIN]), 6))
def test_after_each_kind_of_end_the_memory_is_that_of_the_committed_tokens(end: str, shape: BeamShape) -> None:
    chat = HeadPair(shared_llama(), bound(shared_llama()))
    ENDS[end](chat.start(ask("hello there", max_tokens=20, temperature=1.3), shape))
    chat.assert_in_step()


@pytest.mark.slow
@pytest.mark.parametrize("layers", share([1, 2], 2))
def test_further_turns_leave_the_memory_of_the_text(layers: int) -> None:
    changes = {"windows": (None,) * layers, "takes_embedding": (True, False)[:layers]}
    chat = HeadPair(shared_llama(), bound(shared_llama(), **changes))
    turns = (ChatMessage(Role.USER, "hello"),)
    for _ in range(3):
        request = replace(ask(max_tokens=9, temperature=0.7), messages=turns)
        end = chat.reply(request, TREE)
        turns = (*turns, ChatMessage(Role.ASSISTANT, end.text), ChatMessage(Role.USER, "more"))
    chat.assert_in_step()


def test_another_root_at_the_same_place_is_computed_anew() -> None:
    """The row before a root holds the root itself, so another root's would be a draft from the wrong token."""
    head = bound(shared_llama())
    text, features = features_of_a_text()
    memory = head.memory()
    memory.begin_reply(text[:-1])
    memory.take_committed(text[:-1], features, 0)
    found = [np.array(memory.root_state(Root(token, 12, features[-1])).logits()) for token in (4, 9, 4)]
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-3
    assert memory.positions == list(range(12))


def test_a_draft_does_not_copy_the_committed_rows() -> None:
    """Each level copied all of them."""
    head = bound(shared_llama(), heads=4, head_size=64)
    rows = 4096
    memory = head.memory()
    memory.begin_reply([1] * rows)
    memory.take_committed([1] * rows, mx.random.normal((rows, 64), key=mx.random.key(0)), 0)

    def drafted(token: int) -> mx.array:
        state = memory.root_state(Root(token, rows, mx.zeros(64)))
        for _ in range(3):
            state = state.after(mx.array([0, 0]), mx.array([3, 4]))
        return state.logits()

    mx.eval(drafted(2), [buffer.arrays for buffer in memory.buffers])
    held = sum(array.nbytes for buffer in memory.buffers for array in buffer.arrays)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(drafted(3))
    assert mx.get_peak_memory() - before < held / 2


WIDTH = 32  # of the target that the reference's weights are for
VOCABULARY = 48
DEPTH = 12


@cache
def target() -> LoadedModel:
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": DEPTH, "vocab_size": VOCABULARY, "intermediate_size": 8}
    model = loaded(network_of("llama", sizes))
    return replace(model, info=replace(model.info, vocabulary_size=VOCABULARY))


class Golden(GoldenHead):
    """One case: the drafter bound to a target of its sizes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(load_drafter(folder, target()), folder, "features", 1e-4)

    def assert_same(self, state: HeadState, name: str, rows: slice) -> None:
        super().assert_same(state, name, rows)
        best, found = (np.argsort(-logits, axis=-1)[:, :3]
                       for logits in (self.expected[name][rows], np.array(state.logits())))  # fmt: skip
        assert np.array_equal(found, best)


@pytest.mark.parametrize("folder", golden_folders(), ids=lambda folder: folder.name)
def test_logits_are_those_of_the_reference(folder: Path) -> None:
    Golden(folder).assert_all()
