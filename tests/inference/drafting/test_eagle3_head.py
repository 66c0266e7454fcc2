"""EAGLE-3 in the loop: the same text as plain decoding, a memory of committed tokens alone, levels that are paths."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rdchat.errors import ModelError
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import BeamShape, ChatMessage, GenerationRequest, Role
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.drafting.beam_search import PathScorer
from rdchat.inference.drafting.folders.drafter_folder import load_drafter
from rdchat.inference.drafting.head_drafter import HeadDrafter, HeadModel, HeadSettings
from rdchat.inference.drafting.heads.block_config import RopeConfig
from rdchat.inference.drafting.heads.eagle3_head import BoundEagle3Head, Eagle3Memory, StoredEagle3
from rdchat.inference.drafting.heads.eagle3_network import Eagle3Config, Eagle3Layer, Eagle3Network, FeatureNorm
from rdchat.inference.drafting.heads.head import Root
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.target import LoadedModel
from tests.inference.drafting.eagle3_folders import eagle3_folder, sizes_of
from tests.inference.fakes import ask, chains_only, shared_family, shared_llama
from tests.inference.plain_replies import plain

pytestmark = pytest.mark.across_rows

TREE, CHAIN = BeamShape(3, 5), BeamShape(1, 5)


def bound(model: LoadedModel, bits: int = 0, **changes: Any) -> BoundEagle3Head:
    """Return a drafter of random weights; `changes` are fields of its `Eagle3Config`."""
    width, vocabulary, depth = sizes_of(model)
    fields: dict[str, Any] = {
        "hidden_size": width, "intermediate_size": 64, "heads": 4, "kv_heads": 2, "head_width": 8,
        "norm_epsilon": 1e-5, "layers": (Eagle3Layer(True),), "target_layers": (0, depth - 1), "target_width": width,
        "vocabulary_size": vocabulary, "candidates": vocabulary - 5, "rope": RopeConfig(10_000.0),
    }  # fmt: skip
    mx.random.seed(7)
    with mx.stream(mx.cpu):
        network = Eagle3Network(Eagle3Config(**(fields | changes)))
        mx.eval(network.parameters())
    ids = mx.arange(vocabulary - network.config.candidates, vocabulary, dtype=mx.int32)
    return BoundEagle3Head(network, ids, TargetEmbeddings(model.network, vocabulary), bits)


def read(drafters: HeadModel, model: LoadedModel, request: GenerationRequest, shape: BeamShape) -> ReplyEnd:
    prompt = model.encode_chat(request.messages, continue_last=False)
    drafter = drafters.drafter(prompt, request, HeadSettings(shape, lookup_branch=False))
    *_, end = RoundIterator(ReplyJob.fresh(model, prompt, request), drafter)
    assert isinstance(end, ReplyEnd)
    return end


TEXTS = [
    ("safeailab", 0, TREE), ("safeailab", 1.3, CHAIN), ("speculators", 0.7, TREE), ("speculators", 0, CHAIN),
    ("deepspec", 1.3, TREE), ("deepspec", 0.7, CHAIN),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "temperature", "shape"), TEXTS)
def test_the_text_is_that_of_plain_decoding(layout: str, temperature: float, shape: BeamShape, tmp_path: Path) -> None:
    model = shared_llama()
    drafters = HeadModel(model, load_drafter(eagle3_folder(tmp_path, model, layout), model))
    request = ask(temperature=temperature, max_tokens=16, seed=2)
    for _ in range(2):  # the second time with what the memory holds of the first
        end = read(drafters, model, request, shape)
        assert end.token_ids == plain(model, request).token_ids
        assert end.statistics.host_syncs == end.statistics.rounds, "one a round"
        assert end.statistics.drafted > 0


FAMILIES = [
    ("qwen3", "float32", 0), ("gpt_oss", "4bit", 0.7), ("gemma3", "float32", 1.3),
    ("llama with llama3 rope", "4bit", 0),
    ("qwen3_moe", "float32", 0.7), ("lfm2", "float32", 0.7), ("qwen3_next", "4bit", 1.3), ("phi3", "4bit", 0),
]  # fmt: skip


@pytest.mark.parametrize(("family", "dtype", "temperature"), FAMILIES)
def test_families_are_drafted_for(family: str, dtype: str, temperature: float, tmp_path: Path) -> None:
    """As trees, or as chains where the target keeps recurrent state; with weights of 4 bits where the target's are."""
    model = shared_family(family, dtype)
    stored = load_drafter(eagle3_folder(tmp_path, model, "speculators"), model)
    request = ask(temperature=temperature, max_tokens=16)
    end = read(HeadModel(model, Quantised(stored, 4 if dtype == "4bit" else 0)), model, request, TREE)
    assert end.token_ids == plain(model, request).token_ids
    assert end.statistics.drafted > 0


class Quantised(StoredEagle3):
    """A drafter that is bound with weights of so many bits."""

    def __init__(self, stored: StoredEagle3, bits: int) -> None:
        super().__init__(stored.network, stored.vocabulary)
        object.__setattr__(self, "_bits", bits)

    def bind(self, model: LoadedModel, bits: int | None = None) -> BoundEagle3Head:
        return super().bind(model, self._bits)


def test_a_target_that_takes_chains_only_gets_chains(tmp_path: Path) -> None:
    model = shared_llama()
    chains = chains_only(model)
    request = ask(temperature=0, max_tokens=30)
    end = read(HeadModel(chains, load_drafter(eagle3_folder(tmp_path, model), model)), chains, request, TREE)
    assert end.token_ids == plain(model, request).token_ids
    assert end.statistics.verified_nodes == end.statistics.rounds + end.statistics.drafted


class Chat:
    """A conversation with a drafter whose memory outlives replies, as the target's cache does."""

    def __init__(self, **changes: Any) -> None:
        self.model = shared_llama()
        self.head = bound(self.model, **changes)
        self.model.hooks.read(self.head.reads)
        self.memory = Eagle3Memory(self.head)
        self.cache = KVCache(self.model.network)

    def begin(self, request: GenerationRequest, shape: BeamShape = TREE) -> RoundIterator:
        prompt = self.model.encode_chat(request.messages, continue_last=False)
        self.cache.keep_prefix_of(prompt)
        self.memory.begin(prompt)
        scorer = PathScorer(request.sampling, request.seed, self.head.vocabulary)
        settings = HeadSettings(shape, lookup_branch=False)
        drafter = HeadDrafter(self.model, self.head, self.memory, scorer, prompt, settings=settings, ledger=Ledger())
        return RoundIterator(ReplyJob.fresh(self.model, prompt, request, self.cache), drafter)

    def assert_remembers(self, gap: int | None = None) -> None:
        """Go on with two tokens more: the memory is the same as one that saw this text alone, and so is its draft.

        Args:
            gap: Position of the one token that it knows nothing of; None for none.
        """
        held = len(self.cache.tokens)
        text = [*self.cache.tokens, 5, 6]
        self.model.hooks.read(self.head.reads)
        self.model.network(mx.array([text]))
        features = self.model.hooks.hidden[0]
        fresh = Eagle3Memory(self.head)
        fresh.begin(text)
        fresh.take(text, features, 0)
        if gap is not None:  # another token is behind it
            fresh.catch_up(Root(7, len(text), features[-1]))
            fresh.begin([*text[: gap + 1], 1 + text[gap + 1]])
            fresh.begin(text)
            fresh.take(text[gap + 1 :], features[gap + 1 :], gap + 1)
        self.memory.begin(text)
        self.memory.take(text[held:], features[held:], held)
        root = Root(7, len(text), features[-1])
        states = [memory.state(root) for memory in (self.memory, fresh)]
        assert self.memory.positions == fresh.positions == [place for place in range(len(text)) if place != gap]
        for mine, wanted in zip(self.memory.buffers, fresh.buffers, strict=True):
            for rows, expected in zip(mine.view(0), wanted.view(0), strict=True):
                np.testing.assert_allclose(np.array(rows), np.array(expected), atol=2e-4)
        for tokens in ([3, 9], [4, 4]):
            np.testing.assert_allclose(*[np.array(state.logits()) for state in states], atol=2e-4)
            states = [state.after(mx.array([0, 0]), mx.array(tokens)) for state in states]


def cancelled(iterator: RoundIterator, events: int) -> None:
    list(islice(iterator, events))
    iterator.cancel()
    list(iterator)


ENDS: dict[str, Callable[[RoundIterator], object]] = {
    "finished": list,
    "cancelled before it began": lambda iterator: cancelled(iterator, 0),
    "cancelled while the prompt is read": lambda iterator: cancelled(iterator, 2),
    "cancelled while writing": lambda iterator: cancelled(iterator, 9),
    "closed while writing": lambda iterator: (list(islice(iterator, 9)), iterator.close()),
    "closed within a round": lambda iterator: (list(islice(iterator, 12)), iterator.close()),
}


@pytest.mark.parametrize("shape", [TREE, CHAIN], ids=["tree", "chain"])
@pytest.mark.parametrize("end", ENDS)
def test_after_each_kind_of_end_the_memory_is_that_of_the_committed_tokens(end: str, shape: BeamShape) -> None:
    chat = Chat()
    ENDS[end](chat.begin(ask("hello there", max_tokens=20, temperature=1.3), shape))
    chat.assert_remembers()


@pytest.mark.parametrize("layers", [1, 2])
def test_further_turns_leave_the_memory_of_the_text(layers: int) -> None:
    chat = Chat(layers=tuple(Eagle3Layer(number == 0) for number in range(layers)))
    turns = (ChatMessage(Role.USER, "hello"),)
    for _ in range(3):
        request = replace(ask(max_tokens=9, temperature=0.7), messages=turns)
        *_, end = chat.begin(request)
        assert isinstance(end, ReplyEnd)
        assert end.token_ids == plain(chat.model, request).token_ids
        turns = (*turns, ChatMessage(Role.ASSISTANT, end.text), ChatMessage(Role.USER, "more"))
    chat.assert_remembers()


@pytest.mark.parametrize("layers", [1, 2])
def test_an_edit_leaves_the_memory_of_the_text_but_for_the_token_before_it(layers: int) -> None:
    """Its row held the token that was edited, and the target does not read it again."""
    chat = Chat(layers=tuple(Eagle3Layer(number == 0) for number in range(layers)))
    for prompt in ("one two three four", "one two edited", "one two edited"):
        request = ask(prompt, max_tokens=8, temperature=0.7)
        *_, end = chat.begin(request)
        assert end.token_ids == plain(chat.model, request).token_ids
    chat.assert_remembers(gap=len("user: one two ") - 1)


def test_a_long_prompt_is_remembered() -> None:
    chat = Chat()
    list(chat.begin(ask("all of this is a long text. " * 8, max_tokens=8)))
    chat.assert_remembers()


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "head norms and biases": {"head_norms": True, "biases": frozenset({"layers.0.self_attn.k_proj", "fc"})},
    "normalised output": {"norm_output": True, "norm_before_residual": True, "feature_norm": FeatureNorm.EACH},
    "two layers": {"layers": (Eagle3Layer(True), Eagle3Layer(False)), "feature_norm": FeatureNorm.TOGETHER},
    "two layers with embeddings": {"layers": (Eagle3Layer(True), Eagle3Layer(True))},
    "sliding": {"layers": (Eagle3Layer(True, 4), Eagle3Layer(False))},
    "sliding second": {"layers": (Eagle3Layer(True), Eagle3Layer(False, 3))},
    "own tables": {"own_embeddings": True, "own_output": False, "tied_output": True, "candidates": 31},
    "tables of another width": {"own_embeddings": True, "hidden_size": 24},
    "the target's output rows": {"own_output": False, "candidates": 31},
}


@cache
def features_of_a_text() -> tuple[list[int], mx.array]:
    """Return a text and numbers in the place of the target's features of it; the last token is a root."""
    rng = np.random.default_rng(1)
    text = [int(token) for token in rng.integers(0, 31, 13)]
    return text, mx.array(rng.normal(size=(12, 64)).astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_a_level_has_the_logits_of_each_of_its_paths_alone(kind: str) -> None:
    """Fed as committed rows a path gives other rows, so the paths are fed as chains below the same root."""
    head = bound(shared_llama(), **KINDS[kind])
    text, features = features_of_a_text()
    memory = head.memory()
    memory.begin(text[:-1])
    memory.take(text[:-1], features, 0)
    root = Root(text[-1], 12, features[-1])
    levels = [([0, 0, 0], [3, 8, 9]), ([0, 2, 0, 1], [4, 4, 7, 3]), ([3, 1], [5, 6]), ([1, 0], [2, 2])]
    state, paths = memory.state(root), [[]]
    for beams, tokens in levels:
        state = state.after(mx.array(beams), mx.array(tokens))
        paths = [[*paths[beam], token] for beam, token in zip(beams, tokens, strict=True)]
        for row, path in zip(state.logits(), paths, strict=True):
            alone = memory.state(root)
            for token in path:
                alone = alone.after(mx.array([0]), mx.array([token]))
            np.testing.assert_allclose(np.array(row), np.array(alone.logits()[0]), atol=1e-5)


def test_rows_out_of_a_window_change_nothing_and_those_within_do() -> None:
    head = bound(shared_llama(), layers=(Eagle3Layer(True, 4),))
    text, features = features_of_a_text()
    logits = []
    for changed in (None, 5, 10):
        own = features if changed is None else mx.where(mx.arange(12)[:, None] == changed, 9.0, features)
        memory = head.memory()
        memory.begin(text[:-1])
        memory.take(text[:-1], own, 0)
        state = memory.state(Root(text[-1], 12, own[-1]))
        below = state.after(mx.array([0, 0]), mx.array([3, 4]))
        logits.append((np.array(state.logits()), np.array(below.logits())))
    (plainly, far, near) = logits
    for mine, same, other in zip(plainly, far, near, strict=True):
        np.testing.assert_allclose(mine, same, atol=1e-6)
        assert np.abs(mine - other).max() > 1e-3


def test_another_root_at_the_same_place_is_computed_anew() -> None:
    """The row before a root holds the root itself, so another root's would be a draft from the wrong token."""
    head = bound(shared_llama())
    text, features = features_of_a_text()
    memory = head.memory()
    memory.begin(text[:-1])
    memory.take(text[:-1], features, 0)
    found = [np.array(memory.state(Root(token, 12, features[-1])).logits()) for token in (4, 9, 4)]
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-3
    assert memory.positions == list(range(12))


@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantised_copy_is_near_and_leaves_the_weights_alone(bits: int) -> None:
    model = shared_family("llama")
    text, _ = features_of_a_text()
    features = mx.random.normal((12, 128), key=mx.random.key(2))
    logits = []
    for each in (0, bits):
        head = bound(model, each, intermediate_size=128, heads=8, head_width=16)
        memory = head.memory()
        memory.take(text[:-1], features, 0)
        logits.append(np.array(memory.state(Root(text[-1], 12, features[-1])).logits()))
        packed = head.network.layers[0].mlp.down_proj.weight.dtype == mx.uint32
        assert packed == bool(each)
    error = np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max()
    assert 0 < error < {4: 0.25, 8: 0.02}[bits]


def test_a_drafter_of_another_width_is_refused() -> None:
    with pytest.raises(ModelError, match="width 16"):
        bound(shared_llama(), target_width=16)
    with pytest.raises(ModelError, match="width 24"):
        bound(shared_llama(), hidden_size=24)
