"""Measures what target calls and drafts cost, in slices of one or a few calls, on a cache of its own.

Each function is a generator that rests between two slices; in the end it returns what was measured. It takes about a
minute of computing at each depth of the cache, or two turns of all calls where those take longer.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from rdchat.inference.api.requests import BeamShape, ChatMessage, GenerationRequest, Role, SamplingParams
from rdchat.inference.auto.costs.cost_curve import PLAIN_STEP, Call, Costs
from rdchat.inference.auto.costs.other_programs import OtherPrograms
from rdchat.inference.auto.costs.wait_costs import STEPS, Wait
from rdchat.inference.auto.plan import MOST_ROWS
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.head_drafter import (
    DEFAULT_SHAPE,
    HeadDrafter,
    HeadModel,
    HeadSettings,
)
from rdchat.inference.target.capability import DraftKind
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import Verifier


class Measured(NamedTuple):
    """What came of measuring.

    Attributes:
        costs: Milliseconds.
        quiet: Whether other programs left the machine alone meanwhile.
    """

    costs: Costs
    quiet: bool


Measurement = Generator[None, None, Measured]
_Key = tuple[int, int]
_Works = dict[_Key, Callable[[], float]]

NEAR = 128  # tokens in the cache
DEEP = (1024, 4096)  # from these on, MLX's attention takes other kernels on Apple's chips
# Behind 5, 6, 8, 9, 10, 13 and 15 rows Apple's chips may take other kernels for quantised weights; the next tile of 5
# rows begins there, or the chip's limit of the vector kernel lies there.
_ROWS = (*range(1, 17), 20, 24, 28, MOST_ROWS)
# Fused attention ends behind 8 rows, or sooner: behind 32 over the number of queries that share a key.
_ROWS_DEEP = (1, 2, 4, 5, 6, 7, 8, 9, 16, MOST_ROWS)
_ROOM = 2 * MOST_ROWS  # tokens that the context must leave: for a call's rows, and for plain steps
_BEAMS = ((1, 2), (1, 6), (4, 2), (4, 6), (8, 2), (8, 6))
_FED = (1, 4, 16)  # rows that a draft model is fed
_TRIALS = 3
_DISTURBED = 3  # turns that others may disturb before what there is has to do
_MOST_S = 60.0  # of computing at a depth
_SLOW_MS = 40  # steps above this are measured once in a slice, not more: a prompt may be waiting
_SHORT_S = 0.05  # chunks below this are doubled
_LONGEST_CHUNK = 512


def depths_of(context_length: int) -> Sequence[int]:
    """Return the depths that are measured of a model with such a context, besides `NEAR`.

    A context that ends before the next of them is measured near its end, if that is far from the depth before.
    """
    deepest = context_length - _ROOM
    found = [depth for depth in DEEP if depth <= deepest]
    if len(found) < len(DEEP) and deepest >= 1.5 * (found or [NEAR])[-1]:
        found.append(deepest)
    return found


def lacks_rows(calls: Costs) -> bool:
    """Tell whether calls were measured with fewer numbers of rows than now, as version 0.1 did."""
    rows = {rows for rows, _ in calls}
    return rows != {PLAIN_STEP} and not rows.issuperset(_ROWS)


def measure_calls(model: LoadedModel, others: OtherPrograms) -> Measurement:
    """Measure plain steps and rounds' calls by their rows, near the beginning of a text.

    A model that cannot verify drafts gets its plain steps measured.
    """
    return measure_rows(model, NEAR, _ROWS, others)


def measure_rows(model: LoadedModel, depth: int, rows: Sequence[int], others: OtherPrograms) -> Measurement:
    """Measure plain steps and calls of these rows at one depth; nothing where the context ends before."""
    kind = model.capability.kind
    yield
    if model.info.context_length < depth + _ROOM:
        return Measured({}, quiet=True)
    scratch = _Scratch(model)
    if not (yield from scratch.fill(depth)):
        return Measured({}, quiet=True)
    return (yield from _in_turns(scratch.works(rows, kind), others))


def measure_deep_calls(model: LoadedModel, others: OtherPrograms) -> Measurement:
    """Measure the same further on in a text, as far as the context goes, and as a minute takes one there."""
    kind = model.capability.kind
    yield
    scratch, found = _Scratch(model), Measured({}, quiet=True)
    for depth in depths_of(model.info.context_length):
        if not (yield from scratch.fill(depth)):
            break
        at_depth = yield from _in_turns(scratch.works(_ROWS_DEEP, kind), others)
        found = Measured({**found.costs, **at_depth.costs}, found.quiet and at_depth.quiet)
    return found


def measure_beams(model: LoadedModel, head: HeadModel, others: OtherPrograms) -> Measurement:
    """Measure drafts of a drafter head by width and length."""
    scratch = _Scratch(model)
    yield from scratch.fill(1)
    request = GenerationRequest((ChatMessage(Role.USER, "-"),))
    drafter = head.drafter([0], request, HeadSettings(BeamShape(1, 2), lookup_branch=False), apart=True)

    def draft(width: int, length: int) -> float:
        began = perf_counter()
        drawn = drafter.draft(0, BeamShape(width, length), MOST_ROWS // 2)
        mx.eval(*drawn.tree.arrays)
        return (perf_counter() - began) * 1000

    return (yield from _in_turns({shape: partial(draft, *shape) for shape in _BEAMS}, others))


def measure_draft_model(draft: DraftModel, others: OtherPrograms) -> Measurement:
    """Measure a draft model's calls by the rows that it is fed."""
    scratch = _Scratch(draft.model)
    yield from scratch.fill(NEAR)
    trees = {rows: _tree(rows, DraftKind.CHAIN) for rows in _FED}
    return (yield from _in_turns({(rows, 0): partial(scratch.call, tree) for rows, tree in trees.items()}, others))


def measure_waits(
    model: LoadedModel, head: HeadModel | None, draft: DraftModel | None, others: OtherPrograms
) -> Measurement:
    """Measure what a wait costs in the middle of a round: the same work without and with it; see `WaitCosts`."""
    works = _Works()
    if head is not None:
        scratch = _Scratch(model)
        yield from scratch.fill(NEAR)
        request = GenerationRequest((ChatMessage(Role.USER, "-"),))
        drafter = head.drafter([0], request, HeadSettings(lookup_branch=False), apart=True)
        works |= {(Wait.BEFORE_CALL, waits): partial(scratch.drafted_call, drafter, bool(waits)) for waits in (0, 1)}
    if draft is not None:
        small = _Scratch(draft.model)
        yield from small.fill(NEAR)
        works |= {(Wait.BETWEEN_STEPS, waits): partial(small.steps, bool(waits)) for waits in (0, 1)}
    return (yield from _in_turns(works, others, 2 * _TRIALS))  # what counts is a small difference


def _in_turns(works: _Works, others: OtherPrograms, trials: int = _TRIALS) -> Measurement:
    """Do all works a few times in turn, as a machine's speed drifts; return the shortest times.

    Before a turn it waits while other programs take the machine, but not for ever. A turn that they disturbed is done
    again; where none was quiet, the disturbed ones have to do. What others do can only make a time longer.
    """
    kept: dict[bool, list[dict[_Key, float]]] = {True: [], False: []}  # turns by whether they were quiet
    spent_ms, warm = 0.0, False
    while len(kept[True]) < trials and len(kept[False]) < max(trials, _DISTURBED):
        while others.busy and others.may_rest:
            yield from others.rest()
        turn: dict[_Key, float] = {}
        for key, work in works.items():
            turn[key] = work()
            yield
        if warm:  # in the first turn kernels may be compiled
            kept[not others.busy].append(turn)
        spent_ms, took_ms = spent_ms + sum(turn.values()), sum(turn.values())
        if warm and spent_ms + took_ms > _MOST_S * 1000:
            break
        warm = True
    turns = kept[True] or kept[False]
    return Measured({key: min(turn[key] for turn in turns) for key in works}, quiet=bool(kept[True]))


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
        self._chunk, self._fed_s = MOST_ROWS, 0.0

    def fill(self, depth: int) -> Generator[None, None, bool]:
        """Feed random tokens up to a depth, in chunks that grow as long as they are quick.

        Returns:
            Whether it is reached: not where that would take longer than all measuring there may.
        """
        highest, first = self._model.info.vocabulary_size, not self._cache.tokens
        while (missing := depth - len(self._cache.tokens)) > 0:
            tokens = self._tokens.integers(0, highest, size=min(missing, self._chunk)).tolist()
            began = perf_counter()
            self._model.network(mx.array([tokens]), cache=self._cache.layers)
            self._cache.evaluate()
            took_s = perf_counter() - began
            self._cache.tokens += tokens
            yield
            if took_s < _SHORT_S:
                self._chunk = min(2 * self._chunk, _LONGEST_CHUNK)
            if not first and took_s / len(tokens) * (missing - len(tokens)) > _MOST_S:
                return False
            first = False  # the first time, kernels may be compiled
        return True

    def works(self, rows: Sequence[int], kind: DraftKind) -> _Works:
        """Return what is to be timed at this depth, by `Call`."""
        depth = len(self._cache.tokens)
        trees = {n: _tree(n, kind) for n in rows} if kind is not DraftKind.NONE else {}
        calls: _Works = {Call(n, depth): partial(self.call, tree) for n, tree in trees.items()}
        return {Call(PLAIN_STEP, depth): self.plain_step, **calls}

    def call(self, tree: PackedTree) -> float:
        """Return the milliseconds of a round's call, which is taken back."""
        began = perf_counter()
        verified = self._verifier.verify(tree)
        start = len(self._cache.tokens) + 1
        mx.eval(*self._chooser.choose_quickly(verified.logits, start, tree.depths, tree.deepest), verified.hidden)
        ended = perf_counter()
        self._verifier.rollback()
        return (ended - began) * 1000

    def drafted_call(self, drafter: HeadDrafter, waits: bool) -> float:
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
