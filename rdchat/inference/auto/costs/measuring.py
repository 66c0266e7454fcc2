"""Measures what target calls and drafts cost, in slices of one or a few calls, on a cache of its own.

Each function is a generator that rests between two slices; what it returns in the end are the costs.
"""

from collections.abc import Callable, Generator
from functools import partial
from time import perf_counter

import mlx.core as mx
import numpy as np

from rdchat.inference.api.requests import BeamShape, ChatMessage, GenerationRequest, Role, SamplingParams
from rdchat.inference.auto.costs.cost_curve import PLAIN_STEP, Call, Costs
from rdchat.inference.auto.costs.wait_costs import STEPS, Wait
from rdchat.inference.auto.plan import MOST_ROWS
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.recurrent_drafter import (
    DEFAULT_SHAPE,
    RecurrentDrafter,
    RecurrentModel,
    RecurrentSettings,
)
from rdchat.inference.target.capability import DraftKind
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import Verifier

Measurement = Generator[None, None, Costs]
_Found = dict[tuple[int, int], float]
_Works = dict[tuple[int, int], Callable[[], float]]

NEAR, FAR = 128, 1024  # tokens in the cache
_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 16, 20, 24, 28, MOST_ROWS)
_ROWS_FAR = (1, 4, 8, 16, MOST_ROWS)
_BEAMS = ((1, 2), (1, 6), (4, 2), (4, 6), (8, 2), (8, 6))
_FED = (1, 4, 16)  # rows that a draft model is fed
_TRIALS = 3
_SLOW_MS = 40  # steps above this are measured once in a slice, not more: a prompt may be waiting


def measure_calls(model: LoadedModel) -> Measurement:
    """Measure plain steps and rounds' calls by their rows, near the beginning of a text and further on.

    A model that cannot verify drafts gets its plain steps measured.
    """
    kind = model.capability.kind
    yield
    scratch, costs = _Scratch(model), _Found()
    for depth, rows in ((NEAR, _ROWS), (FAR, _ROWS_FAR)):
        if depth + 2 * MOST_ROWS > model.info.context_length:
            break
        yield from scratch.fill(depth)
        trees = {n: _tree(n, kind) for n in rows} if kind is not DraftKind.NONE else {}
        works: _Works = {Call(n, depth): partial(scratch.call, tree) for n, tree in trees.items()}
        yield from _in_turns({Call(PLAIN_STEP, depth): scratch.plain_step, **works}, costs)
    return costs


def measure_beams(model: LoadedModel, recurrent: RecurrentModel) -> Measurement:
    """Measure drafts of a recurrent drafter by width and length."""
    scratch, costs = _Scratch(model), _Found()
    yield from scratch.fill(1)
    request = GenerationRequest((ChatMessage(Role.USER, "-"),))
    drafter = recurrent.drafter([0], request, RecurrentSettings(BeamShape(1, 2), lookup_branch=False))

    def draft(width: int, length: int) -> float:
        began = perf_counter()
        drawn = drafter.draft(0, BeamShape(width, length), MOST_ROWS // 2)
        mx.eval(*drawn.tree.arrays)
        return (perf_counter() - began) * 1000

    yield from _in_turns({shape: partial(draft, *shape) for shape in _BEAMS}, costs)
    return costs


def measure_draft_model(draft: DraftModel) -> Measurement:
    """Measure a draft model's calls by the rows that it is fed."""
    scratch, costs = _Scratch(draft.model), _Found()
    yield from scratch.fill(NEAR)
    trees = {rows: _tree(rows, DraftKind.CHAIN) for rows in _FED}
    yield from _in_turns({(rows, 0): partial(scratch.call, tree) for rows, tree in trees.items()}, costs)
    return costs


def measure_waits(model: LoadedModel, recurrent: RecurrentModel | None, draft: DraftModel | None) -> Measurement:
    """Measure what a wait costs in the middle of a round: the same work without and with it; see `WaitCosts`."""
    works, costs = _Works(), _Found()
    if recurrent is not None:
        scratch = _Scratch(model)
        yield from scratch.fill(NEAR)
        request = GenerationRequest((ChatMessage(Role.USER, "-"),))
        drafter = recurrent.drafter([0], request, RecurrentSettings(lookup_branch=False))
        works |= {(Wait.BEFORE_CALL, waits): partial(scratch.drafted_call, drafter, bool(waits)) for waits in (0, 1)}
    if draft is not None:
        small = _Scratch(draft.model)
        yield from small.fill(NEAR)
        works |= {(Wait.BETWEEN_STEPS, waits): partial(small.steps, bool(waits)) for waits in (0, 1)}
    yield from _in_turns(works, costs, 2 * _TRIALS)  # what counts is a small difference
    return costs


def _in_turns(works: _Works, costs: _Found, trials: int = _TRIALS) -> Generator[None]:
    """Do all works a few times in turn, as a machine's speed drifts; put the shortest times into `costs`.

    What else the machine does can only make a time longer.
    """
    times: dict[tuple[int, int], list[float]] = {key: [] for key in works}
    for trial in range(1 + trials):
        for key, work in works.items():
            ms = work()
            if trial:  # the first time, kernels may be compiled
                times[key].append(ms)
            yield
    costs.update({key: min(found) for key, found in times.items()})


def _tree(nodes: int, kind: DraftKind) -> PackedTree:
    """Return a tree in which every node has two children, or a chain, of any tokens."""
    tokens = np.arange(1, 1 + nodes, dtype=np.int32)
    if kind is not DraftKind.TREE:
        return PackedTree.chain(mx.array(tokens))
    parents = (np.arange(nodes, dtype=np.int32) - 1) // 2
    depths = np.array([int(np.log2(1 + node)) for node in range(nodes)], dtype=np.int32)
    return PackedTree.of(PrefixTree(tokens, parents, depths, np.empty((0, 0), dtype=np.int32)))


class _Scratch:
    """A cache of its own, and calls on it that leave it all but as it was."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._cache = KVCache(model.network)
        self._verifier = Verifier(model, self._cache)
        self._chooser = TokenChooser(SamplingParams(), 0, model.info.vocabulary_size)
        self._tokens = np.random.default_rng(0)  # varied, as experts would all be the same for one token

    def fill(self, depth: int) -> Generator[None]:
        """Feed random tokens up to a depth."""
        highest = self._model.info.vocabulary_size
        while (missing := depth - len(self._cache.tokens)) > 0:
            tokens = self._tokens.integers(0, highest, size=min(missing, MOST_ROWS)).tolist()
            mx.eval(self._model.network(mx.array([tokens]), cache=self._cache.layers))
            self._cache.tokens += tokens
            yield

    def call(self, tree: PackedTree) -> float:
        """Return the milliseconds of a round's call, which is taken back."""
        began = perf_counter()
        verified = self._verifier.verify(tree)
        start = len(self._cache.tokens) + 1
        mx.eval(*self._chooser.choose_quickly(verified.logits, start, tree.depths, tree.deepest), verified.hidden)
        ended = perf_counter()
        self._verifier.rollback()
        return (ended - began) * 1000

    def drafted_call(self, drafter: RecurrentDrafter, waits: bool) -> float:
        """Return the milliseconds of a draft and the call that verifies it; `waits`: for the draft, in between."""
        began = perf_counter()
        tree = drafter.draft(0, DEFAULT_SHAPE, MOST_ROWS // 4).tree
        if waits:
            mx.eval(*tree.arrays)
            tree.fetch()
        else:
            mx.async_eval(*tree.arrays)
        self.call(tree)
        return (perf_counter() - began) * 1000

    def steps(self, waits: bool) -> float:
        """Return the milliseconds of some steps, each for the token before; `waits`: for that, before it is built."""
        began = perf_counter()
        running = self._step(mx.array([0]))
        for _ in range(STEPS):
            if waits:
                mx.eval(running)
            running = self._step(running)
        mx.eval(running)
        return (perf_counter() - began) * 1000

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
