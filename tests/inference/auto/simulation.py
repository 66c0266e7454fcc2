"""Replies without a model: drafts whose nodes are accepted by known chances, on machines of known costs."""

from dataclasses import dataclass, replace

import numpy as np

from rdchat.inference.api.requests import Mode
from rdchat.inference.auto.acceptance_estimates import DraftValues, NodeRates, ScoredNodes, value_by_nodes
from rdchat.inference.auto.drafter import SHADOW
from rdchat.inference.auto.plan import LENGTHS, LONGEST, MOST_ROWS, WIDEST, WIDTHS, Choice, Plan
from rdchat.inference.auto.planner import Allowance, Outlook, Planner
from scripts.chips import STEP_MS, Chip

NOTHING = np.empty(0)


@dataclass(frozen=True, slots=True)
class Drafting:
    """How well drafts do.

    Attributes:
        first: Chance of the best child of a node; each further child has half of the one before.
        boast: The drafter's own probabilities over the true chances, as far as all of them can sum to 1.
    """

    first: float
    boast: float = 1.0

    def draw(self, width: int = WIDEST, length: int = LONGEST) -> ScoredNodes:
        """Return a draft whose node tokens are their rank among their siblings; 2 x width nodes a level are kept."""
        kept = 2 * width if width > 1 else 1
        boast = min(self.boast, 0.99 / (2 * self.first))
        children = np.log(boast * self.first * 0.5 ** np.arange(kept))
        tokens, parents, scores = [np.array([0])], [np.array([-1])], [np.array([0.0])]
        live, totals = np.array([0]), np.array([0.0])
        for depth in range(1, length):
            grown = (totals[:, None] + children[None]).ravel()
            best = np.argsort(-grown, kind="stable")[:kept]
            tokens.append(best % kept)
            parents.append(live[best // kept])
            scores.append(grown[best])
            live, totals = np.arange(width) + 1 + (depth - 1) * kept, grown[best][:width]
        return ScoredNodes(*map(np.concatenate, (tokens, parents, scores)), kept, length - 1, width)

    def true_values(self) -> np.ndarray:
        """Return the expected accepted length, (widths, lengths, nodes), by the true chances."""
        honest = Drafting(self.first)
        values = DraftValues()
        for width in WIDTHS:
            drawn = honest.draw(width)
            chances = np.exp(drawn.scores)
            one = DraftValues()
            one.learn(drawn, chances)
            w = WIDTHS.index(width)
            values._means[w], values._drafts[w] = one._means[w], 1
        return values.table()

    def text(self, rng: np.random.Generator) -> list[int]:
        """Return what the target says along a draft: ranks of siblings, or a token that is no node's."""
        chances = self.first * 0.5 ** np.arange(2 * WIDEST)
        ranks = rng.choice(len(chances) + 1, size=LONGEST, p=[*chances, 1 - chances.sum()])
        return [int(rank) if rank < len(chances) else -1 for rank in ranks]


def accepted(drawn: ScoredNodes, nodes: int, text: list[int]) -> int:
    """Return how much of a text a draft's best nodes follow."""
    offered = set(np.argsort(-drawn.scores, kind="stable")[:nodes].tolist())
    node = length = 0
    for token in text[: drawn.levels]:
        right = [int(c) for c in drawn.children(node) if drawn.tokens[c] == token and int(c) in offered]
        if not right:
            break
        node, length = right[0], length + 1
    return length


def best_of_all(chip: Chip, values: np.ndarray, lookup: np.ndarray = NOTHING) -> float:
    """Return the most tokens a plain step's time that any plan gives, found by trying them all."""
    calls = chip.calls_of()
    best = 1.0
    for rows in range(2, MOST_ROWS + 1):
        for nodes in range(2, rows + 1):  # the rest is padding
            for w, width in enumerate(WIDTHS):
                for n, length in enumerate(LENGTHS):
                    time = chip.beams(width, length) + calls[rows]
                    best = max(best, (1 + values[w, n, nodes]) / time)
            if nodes - 1 <= len(lookup):
                best = max(best, (1 + lookup[: nodes - 1].sum()) / calls[rows])
    return best


def worth(chip: Chip, plan: Plan, values: np.ndarray) -> float:
    """Return the tokens a plain step's time that a recurrent plan or plain steps really give."""
    if plan.mode is Mode.OFF:
        return 1.0
    place = WIDTHS.index(plan.width), LENGTHS.index(plan.length), plan.nodes
    return (1 + values[place]) / (chip.beams(plan.width, plan.length) + chip.calls_of()[plan.rows])


class Simulation:
    """An automatic mode with a recurrent drafter, decoding.

    Args:
        chip: The machine.
        drafting: How well drafts do; may be changed at any time.
    """

    def __init__(self, chip: Chip, drafting: Drafting, seed: int = 0) -> None:
        self.chip, self.drafting = chip, drafting
        self.planner = Planner(chip.costs())
        self.nodes, self.values, self.allowance = NodeRates(), DraftValues(), Allowance(0)
        self.rng = np.random.default_rng(seed)
        self.tokens, self.ms, self.rounds = 0, 0.0, 0
        self.last = Plan()
        self._learn(drafting.draw(), drafting.text(self.rng))

    def begin_text(self, drafting: Drafting) -> None:
        """Begin another reply."""
        self.drafting, self.allowance = drafting, Allowance(self.values.drafts)
        self.values.begin_text()

    def run(self, calls: int) -> float:
        """Make so many target calls; return the tokens a plain step's time that they gave."""
        tokens, ms = self.tokens, self.ms
        for _ in range(calls):
            self._call()
        return (self.tokens - tokens) / (self.ms - ms) * STEP_MS

    def _call(self) -> None:
        choice = self.planner.choose(Outlook(128, MOST_ROWS, beams=self.values.table()))
        assert choice is not None
        text = self.drafting.text(self.rng)
        price = max(-choice.gain, 0.0)
        if price and not self.allowance.affords(price):
            self._plain(choice, text)
            return
        self.rounds += 1
        drawn = self.drafting.draw(choice.plan.width, choice.plan.length)
        made = self.planner.sized(choice, 128, value_by_nodes(drawn, self.nodes.chances(drawn)))
        self.last = made.plan
        length = accepted(drawn, self.last.nodes, text)
        if price:
            self.allowance.spend_on_round(max(-made.gain, 0.0), -replace(made, tokens=1 + length).gain)
        real = self.chip.beams(self.last.width, self.last.length) + self.chip.calls_of()[self.last.rows]
        self.planner.learn(made, length, real * STEP_MS)
        self._learn(drawn if self.rounds % 16 else self.drafting.draw(), text)
        self.allowance.earn(1 + length)
        self.tokens, self.ms = self.tokens + 1 + length, self.ms + real * STEP_MS

    def _plain(self, choice: Choice, text: list[int]) -> None:
        shadow = self.chip.beams(choice.plan.width, choice.plan.length)
        if SHADOW * shadow < -choice.gain and self.allowance.affords(SHADOW * shadow):
            self.allowance.spend(SHADOW * shadow)
            self.ms += shadow * STEP_MS
            self._learn(self.drafting.draw(choice.plan.width, choice.plan.length), text)
        self.allowance.earn(1)
        self.last = Plan()
        self.tokens, self.ms = self.tokens + 1, self.ms + STEP_MS

    def _learn(self, drawn: ScoredNodes, text: list[int]) -> None:
        self.nodes.learn(drawn, text[: drawn.levels])
        self.values.learn(drawn, self.nodes.chances(drawn))
