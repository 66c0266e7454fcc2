"""Chooses the draft that brings the most tokens for its time, of all that the drafters can draft.

A reply's speed is a sum of tokens over a sum of times. So drafts are compared by their expected tokens minus what their
time would bring otherwise: `tokens - rate * ms`, where `rate` is the best ratio of plain decoding and of any drafter
that can always draft. Maximising this maximises the ratio of the sums (Dinkelbach 1967). Prompt lookup can draft only
now and then, and is chosen where it beats the rest; where it is alone, its own ratio counts.

How many drafted tokens the target accepts is estimated for each drafter, and learnt from reply to reply. Tables of
drafts have a row for each length and a column for each number of nodes. No MLX here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rdchat.inference.api import Mode
from rdchat.inference.auto.cost_model import LENGTHS, MAX_ROWS, ROWS, CostModel, Floats, WeightReads
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.lookup_index import LookupEstimate, LookupTree, Rate

# Beams of a head's draft, where the target takes trees.
WIDTH = 4
LONGEST = LENGTHS[-1]
# Numbers of tokens that a draft model may draft.
DRAFT_TOKENS = (1, 2, 3, 4, 6, 8)
# Chance that the target accepts the first choice of a drafter head.
_HEAD_CHANCE = 0.6
# The same for a draft model: 0.83 to 0.87 with the pair in docs/benchmarks.md.
_CHAIN_CHANCE = 0.84
# Exponent of misses: n candidates, a first choice and its runner-ups, miss n ** -0.85 times as often as one.
_RUNNER_UPS = 0.85
# Rounds over which a draft model's catching up is spread.
_SPREAD = 16
# Why drafts cost much, by how the device reads the weights.
_REASONS = {
    WeightReads.SHARED: "",
    WeightReads.BY_ROW: " M1 and M2 read models of 4 to 8 bits again for each drafted token.",
    WeightReads.TILED: " M1 and M2 read models of 16 bits at a third of the speed for more than one token.",
}
Rows = npt.NDArray[np.int_]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to draft for a target call.

    Attributes:
        mode: The drafter; `off` for a plain step.
        width: Beams of a head's draft; 1 for a chain, 0 in a plain step.
        length: Tokens of the longest path, the root included.
        nodes: Nodes of the tree, the root included.
        rows: Rows of the call: the nodes, with padding where a larger number of rows is cheaper.
    """

    mode: Mode = Mode.OFF
    width: int = 0
    length: int = 1
    nodes: int = 1
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan and its expected result.

    Attributes:
        plan: What to draft.
        tokens: Expected tokens of the call.
        ms: Expected time of the call, draft and host included.
        plain_ms: Time of a plain step at the same depth.
        rate: Tokens per millisecond of the best drafter that can always draft, or of plain decoding.
    """

    plan: Plan
    tokens: float
    ms: float
    plain_ms: float
    rate: float

    @property
    def gain(self) -> float:
        """Expected tokens, minus the one of a plain step, minus those that the additional time would bring at `rate`.

        Below 0 plain decoding is better.
        """
        return self.tokens - 1 - self.rate * (self.ms - self.plain_ms)

    @property
    def cost(self) -> float:
        """The call's time divided by a plain step's."""
        return self.ms / self.plain_ms

    @property
    def speedup(self) -> float:
        """Expected speed over plain decoding."""
        return self.tokens / self.cost


class DraftEstimate:
    """Expected accepted tokens of a drafter's trees: the usual ones, adjusted to the present text.

    A draft is described by one chance: that a path continues by another accepted token. A factor on that chance is
    learnt in each text; it starts from the average over texts.

    Args:
        drafted: Tokens of the longest path below the root, of each length.
        usual: (lengths, `MAX_ROWS` + 1) usual accepted tokens, by number of nodes, the root included.
    """

    def __init__(self, drafted: Sequence[int], usual: Floats) -> None:
        self._drafted = np.array(drafted)
        # Bisection finds the chances of continuing that give `usual`: binary digit by digit, from 1/2 down. A digit is
        # kept where it does not make the expected tokens too many.
        self._chances = np.zeros_like(usual)
        for bit in 0.5 ** np.arange(1, 40):
            self._chances += bit * (self._accepted(self._chances + bit) <= usual)
        # Accepted over expected tokens: in all texts, and in the present one, which is learnt and forgotten faster.
        self._of_texts = Rate(1.0, 20.0, 0.998)
        self._of_text = Rate(1.0, 6.0, 0.97)

    @property
    def factor(self) -> float:
        """How much more often than usual paths continue."""
        return self._of_text.given(self._of_texts.value)

    def table(self) -> Floats:
        """Return the expected accepted tokens, (lengths, `MAX_ROWS` + 1)."""
        return self._accepted(np.minimum(self._chances * self.factor, 1.0))

    def learn(self, drafted: int, nodes: int, accepted: int, ended: bool = False) -> None:
        """Learn from a verified draft.

        Args:
            drafted: Tokens of its longest path below the root.
            nodes: Nodes that were verified, the root included.
            accepted: Accepted tokens.
            ended: Whether the reply ended here, so that nothing is known about the next token.
        """
        chance = float(self._chances[np.searchsorted(self._drafted, drafted), nodes])
        # One observation for each accepted token, and one for the token that was refused after them.
        for observed in [1.0] * accepted + [0.0] * (accepted < drafted and not ended):
            for rate in (self._of_texts, self._of_text):
                rate.learn(observed, chance)

    def _accepted(self, chances: Floats) -> Floats:
        """Return the expected accepted tokens for chances of continuing, (lengths, `MAX_ROWS` + 1)."""
        total = np.zeros_like(chances)
        reached = np.ones_like(chances)
        for depth in range(1, self._drafted[-1] + 1):
            reached = reached * chances
            total += reached * (self._drafted >= depth)[:, None]
        return total

    def keep_share(self, share: float) -> None:
        """Keep this share of what the present text showed."""
        self._of_text.keep_share(share)


def usual_accepted(chance: float, shape: DraftShape, branches: bool = False) -> float:
    """Return the expected accepted tokens of a draft.

    Args:
        chance: Chance that a first choice is accepted after accepted ones.
        shape: Shape of the draft.
        branches: Whether paths continue below runner-ups, as in a beam search; in a draft model's drafts they end.
    """
    total = 0.0
    reached = 1.0
    for step in range(shape.draft_tokens):
        either = 1 - (1 - chance) * shape.candidates(step) ** -_RUNNER_UPS
        total += reached * either
        reached *= either if branches else chance
    return total


def usual_table(chance: float, drafted: Sequence[int], branches: bool = False) -> Floats:
    """Return `usual_accepted` for drafts of some lengths, (lengths, `MAX_ROWS` + 1), by number of nodes."""
    shapes = [[DraftShape.of_size(n, nodes) for nodes in ROWS.tolist()] for n in drafted]
    return np.array([[usual_accepted(chance, shape, branches) for shape in of_length] for of_length in shapes])


class AcceptanceEstimates:
    """The estimates of all drafters at one temperature; kept from reply to reply.

    Attributes:
        lookup: Estimate of prompt lookup.
        chains: Estimate of a draft model.
        head: Estimate of a drafter head.
    """

    def __init__(self) -> None:
        drafted = [length - 1 for length in LENGTHS]
        self.lookup = LookupEstimate()
        self.chains = DraftEstimate(DRAFT_TOKENS, usual_table(_CHAIN_CHANCE, DRAFT_TOKENS))
        self.head = DraftEstimate(drafted, usual_table(_HEAD_CHANCE, drafted, branches=True))

    def chain(self, shape: DraftShape) -> float:
        """Return the expected accepted tokens of a draft model's draft of this shape."""
        return usual_accepted(min(_CHAIN_CHANCE * self.chains.factor, 1.0), shape)

    def keep_share(self, share: float) -> None:
        """Keep this share of what the present text showed; the rest is the average over texts again."""
        for estimate in (self.chains, self.head):
            estimate.keep_share(share)


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """The drafts that one drafter can make now.

    Attributes:
        mode: The drafter.
        width: Beams; 1 for a chain.
        lengths: Tokens of each draft's longest path, the root included.
        accepted: (lengths, `MAX_ROWS` + 1) expected accepted tokens, by the number of verified nodes, the root
            included; minus infinity where such a draft is impossible.
        draft_ms: (lengths,) time of the draft itself.
    """

    mode: Mode
    width: int
    lengths: Sequence[int]
    accepted: Floats
    draft_ms: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A drafter that can draft below any token: a drafter head or a draft model.

    A new kind of drafter needs a mode and a source.

    Attributes:
        mode: The drafter.
        width: Beams; 1 for a chain.
        lengths: Tokens of the longest paths to choose from, the root included.
        possible: (lengths, `MAX_ROWS` + 1) bool: the numbers of nodes that a draft of each length can have, the root
            included.
        estimate: Acceptance of its drafts.
        draft_ms: Returns the time of a draft of each length, (lengths,).
    """

    mode: Mode
    width: int
    lengths: Sequence[int]
    possible: npt.NDArray[np.bool_]
    estimate: DraftEstimate
    draft_ms: Callable[[], Floats]

    def drafts(self, limit: int) -> Drafts:
        """Return what can be drafted.

        Args:
            limit: Maximum number of drafted tokens.
        """
        possible = self.possible & (np.array(self.lengths) <= 1 + limit)[:, None]
        accepted = np.where(possible, self.estimate.table(), -np.inf)
        return Drafts(self.mode, self.width, self.lengths, accepted, self.draft_ms())


def head_source(estimate: DraftEstimate, costs: CostModel, width: int, max_drafted: int = LONGEST) -> Source:
    """Return the source for a drafter head's drafts of a width, with at most `max_drafted` tokens below a root.

    A chain (width 1) has as many nodes as its length. A tree may have any number of nodes from its length on.
    """
    lengths = np.array(LENGTHS)[:, None]
    possible = (lengths <= 1 + max_drafted) & (lengths == ROWS if width == 1 else lengths <= ROWS)
    return Source(Mode.DRAFTER, width, LENGTHS, possible, estimate, lambda: costs.beams_ms(width))


def draft_model_source(
    estimate: DraftEstimate, costs: CostModel, unread: Callable[[], int], trees: bool = True
) -> Source:
    """Return the source for a draft model's drafts.

    Args:
        estimate: Their acceptance.
        costs: Their costs.
        unread: Returns how many tokens of the conversation it has not read yet.
        trees: Whether it may add runner-ups to its chain.
    """
    lengths = 1 + np.array(DRAFT_TOKENS)

    def draft_ms() -> Floats:
        """Return the times; reading more than one unread token is a cost that is spread over `_SPREAD` rounds."""
        behind = unread()
        soon = min(behind, 1)
        catching_up = costs.draft_model_ms(1, behind) - costs.draft_model_ms(1, soon)
        return np.array([costs.draft_model_ms(steps, soon) + catching_up / _SPREAD for steps in DRAFT_TOKENS])

    possible = (lengths[:, None] <= ROWS) if trees else (lengths[:, None] == ROWS)
    return Source(Mode.SPECULATIVE, 1, lengths.tolist(), possible, estimate, draft_ms)


def lookup_drafts(tree: LookupTree) -> Drafts:
    """Return the drafts that prompt lookup can make: the likeliest nodes of a tree, by their number.

    The table has a row for each number of nodes, 2 with the root and so on, and in each row one possible draft. Nodes
    with chances 0.8 and 0.5 give 0.8 accepted tokens at 2 nodes, and 1.3 at 3; all other entries are minus infinity.

    Args:
        tree: What may come next: fewer nodes than `MAX_ROWS`, and at least one.
    """
    nodes = np.arange(2, 2 + len(tree.tokens))
    accepted = np.full((len(nodes), len(ROWS)), -np.inf)
    accepted[np.arange(len(nodes)), nodes] = np.cumsum(tree.chances)
    lengths = 1 + np.maximum.accumulate(tree.depths)
    return Drafts(Mode.LOOKUP, 1, lengths.tolist(), accepted, np.zeros(len(nodes)))


class Planner:
    """Chooses among drafts by their cost and their expected tokens.

    Args:
        costs: Predicts times.
        padding: Whether calls may be padded with extra rows.

    Attributes:
        costs: The same.
    """

    def __init__(self, costs: CostModel, padding: bool = True) -> None:
        self.costs = costs
        self._padding = padding

    def best_draft(self, depth: int, drafts: Sequence[Drafts]) -> Choice | None:
        """Return the best draft, whether or not it beats a plain step; None without drafts or without known costs.

        Args:
            depth: Tokens in the target's cache.
            drafts: What each drafter can draft.
        """
        plain_ms = self.costs.plain_ms(depth)
        if not plain_ms:
            return None
        calls = [self._calls(table.mode, depth) for table in drafts]
        # The time of each draft with its call, in the shape of its drafter's `accepted`.
        times = [table.draft_ms[:, None] + ms for table, (ms, _) in zip(drafts, calls, strict=True)]
        # The drafters that can always draft set the rate; prompt lookup does so only where it is alone.
        steady = [n for n, table in enumerate(drafts) if table.mode is not Mode.LOOKUP] or range(len(drafts))
        rate = max([1 / plain_ms, *(float(np.max((1 + drafts[n].accepted) / times[n])) for n in steady)])
        # The best draft of each drafter.
        choices = []
        for table, ms, (_, rows) in zip(drafts, times, calls, strict=True):
            draft, nodes = np.unravel_index(int(np.argmax(table.accepted - rate * ms)), ms.shape)
            plan = Plan(table.mode, table.width, table.lengths[int(draft)], int(nodes), int(rows[nodes]))
            tokens = 1 + float(table.accepted[draft, nodes])
            choices.append(Choice(plan, tokens, float(ms[draft, nodes]), plain_ms, rate))
        return max((c for c in choices if np.isfinite(c.tokens)), key=lambda choice: choice.gain, default=None)

    def switch_tokens(self, depth: int) -> float:
        """Return the cost in tokens of a switch between rounds and plain steps: a step with nothing queued before."""
        plain_ms = self.costs.plain_ms(depth)
        alone = float(self.costs.calls_ms(Mode.OFF, depth)[1])
        return max(alone / plain_ms - 1, 0.0) if plain_ms else 0.0

    def rows_for(self, mode: Mode, nodes: int, depth: int) -> int:
        """Return the number of rows to verify these nodes with: more rows where that was measured to be cheaper.

        Args:
            mode: The drafting mode, chosen by hand.
            nodes: Nodes of the draft, the root included.
            depth: Tokens in the target's cache.
        """
        if not self.costs.measured or nodes > MAX_ROWS:
            return nodes
        return int(self._calls(mode, depth)[1][nodes])

    def best_size(self, drafts: Sequence[tuple[int, float]], draft_ms: float, depth: int) -> int:
        """Return the index of the draft model's draft with the most tokens for its time; one is made in any case.

        Args:
            drafts: For each draft its nodes, up to `MAX_ROWS`, and its expected accepted tokens.
            draft_ms: Time of drafting, the same for all drafts, which differ in their runner-ups only.
            depth: Tokens in the target's cache.
        """
        ms, _ = self._calls(Mode.SPECULATIVE, depth)
        return int(np.argmax([(1 + accepted) / (draft_ms + ms[nodes]) for nodes, accepted in drafts]))

    def _calls(self, mode: Mode, depth: int) -> tuple[Floats, Rows]:
        """Return, by nodes, (`MAX_ROWS` + 1,), the cost of verifying them and the rows to use."""
        ms = self.costs.calls_ms(mode, depth)
        if not self._padding:
            return ms, ROWS
        # The lowest cost with so many rows or more: more rows may be cheaper.
        cheapest = np.minimum.accumulate(ms[::-1])[::-1]
        return cheapest, np.array([nodes + int(np.argmin(ms[nodes:])) for nodes in ROWS])


def explanation(choice: Choice | None, drafts: bool, measured: bool, reads: WeightReads = WeightReads.SHARED) -> str:
    """Return a sentence on the expected gain of a choice, or on why nothing is drafted.

    Args:
        choice: The best plan that drafts.
        drafts: Whether it was taken.
        measured: Whether the costs of calls are measured, or the reply was drafted without.
        reads: How the device reads the weights.
    """
    if not measured:
        return "Not drafting yet: rdchat measures this computer between replies, on mains power."
    if choice is None:
        return "Not drafting: no earlier text repeats here."
    if drafts:
        return f"Expected: {choice.speedup:.1f} times as fast."
    percent = round(100 * (choice.speedup - 1))
    gained = f"gain only {percent}\N{NARROW NO-BREAK SPACE}%" if percent else "gain nothing"
    effect = "be slower" if percent < 0 else gained
    return f"Drafting would {effect} here, so it is off.{_REASONS[reads]}"
