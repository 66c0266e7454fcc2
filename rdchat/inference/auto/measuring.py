"""Measures what target calls and drafts cost, in slices of one or a few calls, on a cache of its own.

Each function is a generator that rests between two slices; in the end it returns what was measured. It takes about a
minute of computing at each depth of the cache, or two turns of all calls where those take longer.
"""

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from time import perf_counter, sleep
from typing import NamedTuple

import mlx.core as mx

from rdchat import machine
from rdchat.inference.api.requests import BeamShape
from rdchat.inference.auto.cost_model import NEAR, PLAIN_STEP, Costs
from rdchat.inference.auto.plan import MOST_ROWS
from rdchat.inference.auto.scratch import MOST_S, HeadDrafts, Key, Scratch, Works, tree_of
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.target.capability import DraftKind
from rdchat.inference.target.target import LoadedModel


class Measured(NamedTuple):
    """What came of measuring.

    Attributes:
        costs: Milliseconds.
        quiet: Whether other programs left the machine alone meanwhile.
    """

    costs: Costs
    quiet: bool


Measurement = Generator[None, None, Measured]

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
_MOST_BUSY = 0.15  # of all processors; a desktop at rest has some 5 %
_LOOK_S = 0.5  # over which use is looked at: processor times are counted in steps of 10 ms
_RESTS_S = (2.0, 4.0, 8.0, 16.0)  # for which others are waited for
_NAP_S = 0.1  # at a time: a prompt may come


class OtherPrograms:
    """Watches what share of the processors other programs take, and waits for a quieter moment, but not for ever."""

    def __init__(self) -> None:
        self._at, self._seconds = perf_counter(), machine.others_seconds()
        self._busy = False
        self._rests = list(_RESTS_S)

    @property
    def busy(self) -> bool:
        """Whether they took much since this was last asked for; as the last time where that was just now."""
        took_s = perf_counter() - self._at
        if took_s >= _LOOK_S:
            seconds = machine.others_seconds()
            self._busy = (seconds - self._seconds) / (took_s * machine.processors()) > _MOST_BUSY
            self._at, self._seconds = self._at + took_s, seconds
        return self._busy

    @property
    def may_rest(self) -> bool:
        """Whether they may still be waited for."""
        return bool(self._rests)

    def rest(self) -> Iterator[None]:
        """Do nothing for a while, in naps; each rest is twice as long as the one before."""
        if not self._rests:
            return
        until = perf_counter() + self._rests.pop(0)
        while (left := until - perf_counter()) > 0:
            sleep(min(left, _NAP_S))
            yield


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
    scratch = Scratch(model)
    if not (yield from scratch.fill(depth)):
        return Measured({}, quiet=True)
    return (yield from _in_turns(scratch.works(rows, kind), others))


def measure_deep_calls(model: LoadedModel, others: OtherPrograms) -> Measurement:
    """Measure the same further on in a text, as far as the context goes, and as a minute takes one there."""
    kind = model.capability.kind
    yield
    scratch, found = Scratch(model), Measured({}, quiet=True)
    for depth in depths_of(model.info.context_length):
        if not (yield from scratch.fill(depth)):
            break
        at_depth = yield from _in_turns(scratch.works(_ROWS_DEEP, kind), others)
        found = Measured({**found.costs, **at_depth.costs}, found.quiet and at_depth.quiet)
    return found


def measure_beams(model: LoadedModel, head: HeadModel, others: OtherPrograms) -> Measurement:
    """Measure drafts of a head by width and length."""
    scratch = Scratch(model)
    drafts = HeadDrafts(model, head, scratch.text(NEAR))
    if not (yield from scratch.fill(NEAR, drafts)):
        return Measured({}, quiet=True)

    def draft(width: int, length: int) -> float:
        drafts.begin_round()
        began = perf_counter()
        mx.eval(*drafts.draft(BeamShape(width, length), MOST_ROWS // 2).arrays)
        return (perf_counter() - began) * 1000

    shapes = {(width, min(length, 1 + head.head.most_drafted)) for width, length in _BEAMS}
    return (yield from _in_turns({shape: partial(draft, *shape) for shape in sorted(shapes)}, others))


def measure_draft_model(draft: DraftModel, others: OtherPrograms) -> Measurement:
    """Measure a draft model's calls by the rows that it is fed."""
    scratch = Scratch(draft.model)
    yield from scratch.fill(NEAR)
    trees = {rows: tree_of(rows, DraftKind.CHAIN) for rows in _FED}
    return (yield from _in_turns({(rows, 0): partial(scratch.call, tree) for rows, tree in trees.items()}, others))


def _in_turns(works: Works, others: OtherPrograms) -> Measurement:
    """Do all works a few times in turn, as a machine's speed drifts; return the shortest times.

    Before a turn it waits while other programs take the machine, but not for ever. A turn that they disturbed is done
    again; where none was quiet, the disturbed ones have to do. What others do can only make a time longer.
    """
    kept: dict[bool, list[dict[Key, float]]] = {True: [], False: []}  # turns by whether they were quiet
    spent_ms, warm = 0.0, False
    while len(kept[True]) < _TRIALS and len(kept[False]) < _DISTURBED:
        while others.busy and others.may_rest:
            yield from others.rest()
        turn: dict[Key, float] = {}
        for key, work in works.items():
            turn[key] = work()
            yield
        if warm:  # in the first turn kernels may be compiled
            kept[not others.busy].append(turn)
        spent_ms, took_ms = spent_ms + sum(turn.values()), sum(turn.values())
        if warm and spent_ms + took_ms > MOST_S * 1000:
            break
        warm = True
    turns = kept[True] or kept[False]
    return Measured({key: min(turn[key] for turn in turns) for key in works}, quiet=bool(kept[True]))
