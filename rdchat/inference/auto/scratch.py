"""A cache and a text of its own to measure on, and the calls and drafts that are timed there."""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from time import perf_counter

import mlx.core as mx
import numpy as np

from rdchat.inference.api.requests import BeamShape, ChatMessage, GenerationRequest, Role, SamplingParams
from rdchat.inference.auto.cost_model import PLAIN_STEP
from rdchat.inference.auto.plan import MOST_ROWS
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.target.capability import DraftKind
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import Verifier

Key = tuple[int, int]
Works = dict[Key, Callable[[], float]]

MOST_S = 60.0  # of computing at a depth
_SLOW_MS = 40  # steps above this are measured once in a slice, not more: a prompt may be waiting
_SHORT_S = 0.05  # chunks below this are doubled
_LONGEST_CHUNK = 512
_COMMITTED = 2  # tokens that a round brings, about


def tree_of(nodes: int, kind: DraftKind) -> PackedTree:
    """Return a tree in which every node has two children, or a chain, of any tokens."""
    tokens = np.arange(1, 1 + nodes, dtype=np.int32)
    if kind is not DraftKind.TREE:
        return PackedTree.chain(mx.array(tokens))
    parents = (np.arange(nodes, dtype=np.int32) - 1) // 2
    depths = np.array([int(np.log2(1 + node)) for node in range(nodes)], dtype=np.int32)
    return PackedTree.of(PrefixTree(tokens, parents, depths, np.empty((0, 0), dtype=np.int32)))


class HeadDrafts:
    """Drafts of a head behind the text of a `Scratch`.

    Args:
        model: The target.
        head: The head.
        text: (n,) ids of the text's tokens, which `Scratch.fill` feeds.
    """

    def __init__(self, model: LoadedModel, head: HeadModel, text: list[int]) -> None:
        request = GenerationRequest((ChatMessage(Role.USER, "-"),))
        self._drafter = head.drafter(text, request, apart=True)
        self._hooks, self._text, self._hidden = model.hooks, text, mx.zeros((0, 0))
        self.listen = head.listen

    def read(self, tokens: list[int], start: int) -> None:
        """Take the text's tokens from a place on, which were the target's last call."""
        hidden = self._hooks.hidden
        assert hidden is not None
        self._drafter.read(tokens, hidden[0], start)
        self._hidden = hidden[0, -_COMMITTED:]
        mx.eval(self._hidden)
        if start + len(tokens) == len(self._text):  # the first draft reads the hooks
            mx.eval(*self.draft(BeamShape(1, 2), 2).arrays)

    def begin_round(self) -> None:
        """Have the text's last tokens taken anew, as a round before the draft would bring some."""
        rows = self._hidden.shape[0]
        self._drafter.read(self._text[-rows:], self._hidden, len(self._text) - rows)

    def draft(self, shape: BeamShape, nodes: int) -> PackedTree:
        """Return a draft, still lazy."""
        return self._drafter.draft(0, shape, nodes).tree


class Scratch:
    """A cache of its own, and calls on it that leave it all but as it was."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._cache = KVCache(model.network)
        self._verifier = Verifier(model, self._cache)
        self._chooser = TokenChooser(SamplingParams(), 0, model.info.vocabulary_size)
        self._draw = np.random.default_rng(0)  # varied, as experts would all be the same for one token
        self._text: list[int] = []
        self._chunk, self._fed_s = MOST_ROWS, 0.0

    def text(self, depth: int) -> list[int]:
        """Return the random tokens that `fill` feeds up to a depth."""
        missing = max(depth - len(self._text), 0)
        self._text += self._draw.integers(0, self._model.info.vocabulary_size, size=missing).tolist()
        return self._text[:depth]

    def fill(self, depth: int, drafts: "HeadDrafts | None" = None) -> Generator[None, None, bool]:
        """Feed random tokens up to a depth, in chunks that grow as long as they are quick.

        Args:
            depth: Tokens in the cache afterwards.
            drafts: They observe what is fed.

        Returns:
            Whether it is reached: not where that would take longer than all measuring there may.
        """
        first = not self._cache.tokens
        while (missing := depth - len(self._cache.tokens)) > 0:
            start = len(self._cache.tokens)
            tokens = self.text(depth)[start : start + min(missing, self._chunk)]
            began = perf_counter()
            if drafts is not None:
                drafts.listen()
            self._model.network(mx.array([tokens]), cache=self._cache.layers)
            self._cache.evaluate()
            if drafts is not None:  # before anything else calls the target
                drafts.read(tokens, start)
            took_s = perf_counter() - began
            self._cache.tokens += tokens
            yield
            if took_s < _SHORT_S:
                self._chunk = min(2 * self._chunk, _LONGEST_CHUNK)
            if not first and took_s / len(tokens) * (missing - len(tokens)) > MOST_S:
                return False
            first = False  # the first time, kernels may be compiled
        return True

    def works(self, rows: Sequence[int], kind: DraftKind) -> Works:
        """Return what is to be timed at this depth, by rows and depth."""
        depth = len(self._cache.tokens)
        trees = {n: tree_of(n, kind) for n in rows} if kind is not DraftKind.NONE else {}
        calls: Works = {(n, depth): partial(self.call, tree) for n, tree in trees.items()}
        return {(PLAIN_STEP, depth): self.plain_step, **calls}

    def call(self, tree: PackedTree) -> float:
        """Return the milliseconds of a round's call, which is taken back."""
        began = perf_counter()
        verified = self._verifier.verify(tree)
        start = len(self._cache.tokens) + 1
        mx.eval(*self._chooser.choose_quickly(verified.logits, start, tree.depths, tree.deepest), verified.hidden)
        ended = perf_counter()
        self._verifier.rollback()
        return (ended - began) * 1000

    def plain_step(self) -> float:
        """Return the milliseconds of a plain step, each next one queued before the last is read.

        Only what lies between two reads with a step queued in between is one step's time: a read may wait for all that
        is queued, as it does on a CPU, or for its own step alone. Tokens stay: a few make the cache no deeper to speak
        of, and not every cache can give them back.
        """
        running, reads = self._step(mx.array([0])), list[float]()
        while len(reads) < 2 or (len(reads) < 4 and reads[-1] - reads[-2] < _SLOW_MS / 1000):
            following = self._step(running)
            mx.eval(running)
            reads.append(perf_counter())
            running = following
        mx.eval(running)
        return float(np.diff(reads).min()) * 1000

    def _step(self, token: mx.array) -> mx.array:
        logits = self._model.network(token[None], cache=self._cache.layers)[:, -1]
        position = len(self._cache.tokens)
        self._cache.tokens.append(0)
        chosen, sure = self._chooser.choose_quickly(logits, position, mx.array([0]), 0)
        mx.async_eval(chosen, sure)
        return chosen
