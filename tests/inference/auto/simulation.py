"""Replies without a model: drafts whose nodes are accepted by known chances, on machines of known costs."""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from rdchat.inference.api import BeamShape, Mode
from rdchat.inference.auto.controller import ChosenRound, Controller
from rdchat.inference.auto.cost_model import LENGTHS, MAX_ROWS, CostModel
from rdchat.inference.auto.planner import (
    LONGEST,
    WIDTH,
    AcceptanceEstimates,
    DraftEstimate,
    Plan,
    Planner,
    Source,
    head_source,
)
from rdchat.inference.decoding.loop import Call, CallResult, RoundPlan, decode
from rdchat.inference.drafting.beam_search import NodePool
from tests.inference.auto.chips import STEP_MS, Chip

PROMPT = 128  # tokens
_RANKS = 100  # tokens of each place in the text: a miss, then the ranks of siblings


@dataclass(frozen=True, slots=True)
class Drafting:
    """How well drafts do.

    Attributes:
        first: Chance of the best child of a node; each further child has half of the one before.
    """

    first: float

    def draw(self, width: int = WIDTH, length: int = LONGEST, place: int = 0) -> NodePool:
        """Return a draft below a place in the text; its tokens tell place and rank among their siblings."""
        kept = 2 * width if width > 1 else 1
        steps = np.log(self.first * 0.5 ** np.arange(kept))
        tokens = [np.array([0])]
        parents = [np.array([-1])]
        scores = [np.array([0.0])]
        live = np.array([0])
        totals = np.array([0.0])
        for depth in range(1, length):
            grown = (totals[:, None] + steps[None]).ravel()
            best = np.argsort(-grown, kind="stable")[:kept]
            tokens.append((place + depth) * _RANKS + 1 + best % kept)
            parents.append(live[best // kept])
            scores.append(grown[best])
            live = np.arange(width) + 1 + (depth - 1) * kept
            totals = grown[best][:width]
        return NodePool(*cast(Any, [np.concatenate(column) for column in (tokens, parents, scores)]), length - 1)

    def true_values(self, width: int = WIDTH) -> np.ndarray:
        """Return the expected accepted length, (lengths, nodes), by the true chances: the sum of the nodes' chances."""
        pool: Any = self.draw(width)
        values = np.zeros((len(LENGTHS), MAX_ROWS + 1))
        best_first = np.argsort(-pool.scores, kind="stable")
        for n, length in enumerate(LENGTHS):
            shorter = best_first[best_first < 1 + (length - 1) * pool.level_size]
            sums = np.concatenate([[0.0, 0.0], np.cumsum(np.exp(pool.scores[shorter])[1:MAX_ROWS])])
            values[n] = np.pad(sums, (0, MAX_ROWS + 1 - len(sums)), mode="edge")
        return values

    def text(self, rng: np.random.Generator, place: int, length: int = LONGEST) -> list[int]:
        """Return what the target says after a place in the text: ranks of siblings, or misses."""
        chances = self.first * 0.5 ** np.arange(16)
        ranks = rng.choice(len(chances) + 1, size=length, p=[*chances, 1 - chances.sum()])
        return [(place + d) * _RANKS + (1 + int(r)) * (r < len(chances)) for d, r in enumerate(ranks, start=1)]


def accepted(pool: NodePool, nodes: int, text: list[int]) -> int:
    """Return how much of a text a draft's best nodes follow."""
    scores, parents, tokens = cast(Any, (pool.scores, pool.parents, pool.tokens))
    offered = set(np.argsort(-scores, kind="stable")[:nodes].tolist())
    node = 0
    length = 0
    for token in text[: pool.levels]:
        right = [int(c) for c in np.flatnonzero(parents == node) if tokens[c] == token and int(c) in offered]
        if not right:
            break
        node = right[0]
        length = length + 1
    return length


def estimate_of(values: np.ndarray) -> DraftEstimate:
    """Return the estimate of a recurrent drafter whose drafts usually come to these values."""
    return DraftEstimate([length - 1 for length in LENGTHS], values)


def source(costs: CostModel, values: np.ndarray, trees: bool = True) -> Source:
    """Return a recurrent drafter whose drafts are known to come to these values."""
    return head_source(estimate_of(values), costs, WIDTH if trees else 1)


def best_of_all(chip: Chip, values: np.ndarray) -> float:
    """Return the most tokens a plain step's time that any plan gives, found by trying them all."""
    calls = chip.calls_of()
    best = 1.0
    for rows in range(2, MAX_ROWS + 1):
        for nodes in range(2, rows + 1):  # the rest is padding
            for n, length in enumerate(LENGTHS):
                time = chip.beams(WIDTH, length) + calls[rows]
                best = max(best, (1 + values[n, nodes]) / time)
    return best


def worth(chip: Chip, plan: Plan, values: np.ndarray) -> float:
    """Return the tokens a plain step's time that a recurrent plan or plain steps really give."""
    if plan.mode is Mode.OFF:
        return 1.0
    return (1 + values[LENGTHS.index(plan.length), plan.nodes]) / (
        chip.beams(plan.width, plan.length) + chip.calls_of()[plan.rows]
    )


class Simulation:
    """An automatic mode with a recurrent drafter, decoding; the `Calls` of its own loop.

    Args:
        chip: The machine.
        drafting: How well drafts do; may be changed at any time.
        estimates: What is known of that before; None for nothing.

    Attributes:
        last: What was done last.
    """

    room = MAX_ROWS

    def __init__(self, chip: Chip, drafting: Drafting, estimates: AcceptanceEstimates | None = None) -> None:
        self.chip = chip
        self.drafting = drafting
        self._calls = chip.calls_of()
        self.rng = np.random.default_rng(0)
        self.tokens = 0
        self.ms = 0.0
        self.rounds = 0
        self.last = Plan()
        self._queued = False
        costs = chip.costs()
        estimates = estimates or AcceptanceEstimates()
        head = head_source(estimates.head, costs, WIDTH)
        self.controller = Controller(Planner(costs), estimates, range(PROMPT), [head])
        self._events = decode(self, self.controller)
        next(self._events)  # the first token comes with the prefill

    def run(self, calls: int) -> float:
        """Make so many target calls; return the tokens a plain step's time that they gave."""
        tokens = self.tokens
        ms = self.ms
        for _ in range(calls):
            next(self._events)
        return (self.tokens - tokens) / (self.ms - ms) * STEP_MS

    def first(self) -> CallResult[None]:
        """See `Calls`."""
        return replace(self.step(queue=False), call=Call.FIRST)

    def round(self, plan: RoundPlan) -> CallResult[None]:
        """See `Calls`."""
        assert isinstance(plan, ChosenRound)
        drafted = plan.choice.plan
        place = len(self.controller.text)
        self.last = drafted
        shape = BeamShape(drafted.width, drafted.length)
        pool = self.drafting.draw(shape.width, shape.length, place)
        text = self.drafting.text(self.rng, place)
        right = accepted(pool, drafted.nodes, text)
        ms = (self.chip.beams(shape.width, shape.length) + self._calls[drafted.rows]) * STEP_MS
        self.rounds += 1
        self.tokens = self.tokens + 1 + right
        self.ms = self.ms + ms
        self._queued = False
        return CallResult(Call.ROUND, (None,), text[: 1 + right], ms, plan=plan)

    def step(self, queue: bool) -> CallResult[None]:
        """See `Calls`."""
        self.last = Plan()
        ms = STEP_MS if self._queued else self._calls[1] * STEP_MS
        self.tokens = self.tokens + 1
        self.ms = self.ms + ms
        self._queued = queue
        return CallResult(Call.STEP, (None,), self.drafting.text(self.rng, len(self.controller.text), 1), ms, queue)
