"""Picks what to do with the next target call: the plan that brings the most tokens for its time.

What a reply takes is a sum of times over a sum of tokens, so plans are compared by their expected tokens less what
their time would bring otherwise: `tokens - rate * ms`, where the rate is the best ratio of any plan that is always to
be had, plain decoding among them. Maximising this maximises the ratio of the sums (Dinkelbach 1967), and a plan that
is to be had only now and then, a path from prompt lookup, is taken where it beats that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from rdchat.inference.api.requests import Mode
from rdchat.inference.auto.acceptance_estimates import DRAFTED, Rate
from rdchat.inference.auto.costs import CostModel
from rdchat.inference.auto.curve import ROWS, Floats
from rdchat.inference.auto.plan import LENGTHS, MOST_ROWS, WIDTHS, Choice, Plan

_SURE = 16.0  # tokens for which a tree with a branch is taken at its word: its worth is reckoned roughly
_BRANCHES = (2, 4, LENGTHS[-1] - 1)  # tokens of a lookup path beside beams that are considered
_SPREAD = 16  # rounds that a draft model's catching up is spread over
_GRANT = 0.2  # tokens that a reply may lose on learning how drafts do in it
_FIRST_GRANT = 1.0  # where little is known of them at all
_LITTLE = 24  # drafts
_SHARE = 0.005  # of its tokens, that it may lose so later on
_DEBT = 0.1  # tokens by which one trial may exceed what is left

Rows = npt.NDArray[np.int_]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known before a draft.

    Attributes:
        depth: Tokens in the target's cache.
        limit: Tokens that may be drafted.
        lookup: (tokens,) the chance that a path from prompt lookup is accepted up to each token; empty without one.
        beams: (widths, lengths, nodes) expected accepted length of recurrent drafts (`DraftValues.table`); None without
            such a drafter.
        draft_model: Drafts of a draft model: its steps, the expected accepted length, and the nodes that are verified
            for it; empty without one.
        late: Tokens that the draft model has not read yet.
    """

    depth: int
    limit: int
    lookup: Floats = field(default_factory=lambda: np.empty(0))
    beams: Floats | None = None
    draft_model: tuple[tuple[int, float, int], ...] = ()
    late: int = 0


@dataclass(frozen=True, slots=True)
class _Option:
    plan: Plan
    drafted: float  # expected accepted length
    ms: float


class Allowance:
    """What one reply may spend on learning how drafts do in it, in tokens: what its time would bring otherwise.

    A round that looks a little worse than a plain step teaches most for its price, where drafts do about as well as
    pays; one that looks far worse is dearer than a draft that is only compared with the text.

    Args:
        drafts: How many recurrent drafts what is known comes from; None without such a drafter, since a draft model
            tells with its first tokens whether it is followed.
    """

    def __init__(self, drafts: float | None) -> None:
        self._left = _GRANT if drafts is None or drafts > _LITTLE else _FIRST_GRANT

    def earn(self, tokens: int) -> None:
        """Take tokens that were made; what is not spent adds up to no more than a reply begins with."""
        self._left = min(self._left + _SHARE * tokens, max(self._left, _GRANT))

    def affords(self, price: float) -> bool:
        """Tell whether so much is left."""
        return price <= self._left

    def spend(self, price: float) -> None:
        """Take the price of what is done to learn; below 0 it brought more than it cost."""
        self._left = min(max(self._left - price, -_DEBT), max(self._left, _GRANT))

    def spend_on_round(self, promised: float, lost: float) -> None:
        """Take a round that was made to learn: half of what it looked like losing, half of what it then lost.

        By its promise alone, a belief that is too good would go on being tried; by what came alone, bad luck would end
        it too soon.
        """
        self.spend((promised + lost) / 2)


class Planner:
    """Chooses plans, and learns from rounds that were made by them.

    Args:
        costs: Predicts times.
        trees: Whether the target verifies trees; else it gets chains.
        padding: Whether rows without meaning may be added to a call.
    """

    def __init__(self, costs: CostModel, trees: bool = True, padding: bool = True) -> None:
        self._costs = costs
        self._widths = len(WIDTHS) if trees else 1
        self._trees = trees
        self._padding = padding
        self._branch_kept = Rate(1.0, _SURE)  # what trees with a branch brought of what was expected

    def learn(self, choice: Choice, accepted: int, ms: float | None) -> None:
        """Take a round that was made by a choice; `ms` is None where its time tells nothing of others."""
        if ms is not None:
            self._costs.learn(choice.plan, ms / choice.ms)
        if choice.plan.branch:
            self._branch_kept.learn(accepted, (choice.tokens - 1) / self._branch_kept.value)

    def fade(self) -> None:
        """Give trees with a branch another chance, as another text begins."""
        self._branch_kept.fade(0.5)

    def choose(self, outlook: Outlook) -> Choice | None:
        """Return the best plan that drafts; None where nothing can be, or where no cost is known.

        Whether it beats a plain step, its `gain` says.
        """
        plain_ms = self._costs.plain_ms(outlook.depth)
        if not plain_ms:
            return None
        grid = self._beam_grid(outlook)
        models = list(self._draft_model(outlook))
        steady = [1 / plain_ms, *((1 + model.drafted) / model.ms for model in models)]
        if grid is not None:
            steady.append(float(np.max((1 + grid.drafted) / grid.ms)))
        rate = max(steady)
        options = [*models, *([grid.best(rate)] if grid else [])]
        if outlook.lookup.size and outlook.limit:
            options += [self._lookup(outlook, rate), *self._branches(outlook, grid, rate)]
        options = [option for option in options if np.isfinite(option.drafted)]
        if not options:
            return None
        best = max(options, key=lambda option: option.drafted - rate * option.ms)
        return Choice(best.plan, 1 + best.drafted, best.ms, plain_ms, rate)

    def goes_on(self, choice: Choice, depth: int, nodes: Sequence[int], accepted: Sequence[float]) -> bool:
        """Tell whether a draft model should draft another token: whether some number of them is worth its time.

        Args:
            choice: What began the draft.
            depth: Tokens in the target's cache.
            nodes: Nodes of the draft as it is, and with one token more, two, and so on.
            accepted: Likewise, the expected accepted length.
        """
        ms, _ = self._calls(Mode.SPECULATIVE, depth)
        spent = np.arange(len(nodes)) * self._costs.draft_model_step_ms + ms[list(nodes)]
        worth = np.array(accepted) - choice.rate * spent
        return bool(np.any(worth[1:] > worth[0]))

    def drafted(self, choice: Choice, outlook: Outlook) -> Choice:
        """Return a draft model's choice as it turned out: by an outlook of the one draft that it made."""
        (made,) = self._draft_model(outlook)
        return replace(choice, plan=made.plan, tokens=1 + made.drafted, ms=made.ms)

    def sized(self, choice: Choice, depth: int, accepted: Floats) -> Choice:
        """Return a recurrent draft's choice with as many nodes as pay, now that it is made; perhaps the root alone.

        Args:
            choice: What was drafted.
            depth: Tokens in the target's cache.
            accepted: Expected accepted length of this draft's best nodes, by their number, the root counted.
        """
        ms, rows = self._calls(Mode.RECURRENT, depth)
        nodes = 1 + int(np.argmax(accepted[1:] - choice.rate * ms[1 : len(accepted)]))
        plan = replace(choice.plan, nodes=nodes, rows=int(rows[nodes]))
        took = choice.ms + float(ms[nodes] - ms[choice.plan.nodes])
        return replace(choice, plan=plan, tokens=1 + float(accepted[nodes]), ms=took)

    def switch_tokens(self, depth: int) -> float:
        """Return what one change between rounds and plain steps costs, in tokens: a step with nothing queued before.

        What is learnt of plain steps holds for both kinds of them alike.
        """
        plain_ms = self._costs.plain_ms(depth)
        alone = float(self._costs.calls_ms(Mode.OFF, depth)[1])
        return max(alone / plain_ms - 1, 0.0) if plain_ms else 0.0

    def _calls(self, mode: Mode, depth: int) -> tuple[Floats, Rows]:
        """Return by nodes, (`MOST_ROWS` + 1,), the cost of verifying them and the rows to do it with."""
        ms = self._costs.calls_ms(mode, depth)
        if not self._padding:
            return ms, ROWS
        cheapest, rows = ms.tolist(), ROWS.tolist()
        for nodes in range(MOST_ROWS - 1, 0, -1):
            if cheapest[nodes + 1] < cheapest[nodes]:
                cheapest[nodes], rows[nodes] = cheapest[nodes + 1], rows[nodes + 1]
        return np.array(cheapest), np.array(rows)

    def _lookup(self, outlook: Outlook, rate: float) -> _Option:
        ms, rows = self._calls(Mode.LOOKUP, outlook.depth)
        drafted = np.cumsum(outlook.lookup[: min(outlook.limit, MOST_ROWS - 1)])
        best = int(np.argmax(drafted - rate * ms[2 : 2 + len(drafted)]))
        nodes = best + 2
        return _Option(Plan(Mode.LOOKUP, 1, nodes, nodes, int(rows[nodes])), float(drafted[best]), float(ms[nodes]))

    def _beam_grid(self, outlook: Outlook) -> "_BeamGrid | None":
        """Return all recurrent drafts without a branch; None without such a drafter."""
        if outlook.beams is None or not outlook.limit:
            return None
        ms, rows = self._calls(Mode.RECURRENT, outlook.depth)
        drafted = outlook.beams[: self._widths].copy()
        drafted[:, :, :2] = -np.inf
        drafted[:, outlook.limit < DRAFTED] = -np.inf
        if not self._padding:
            drafted[0][1 + DRAFTED[:, None] < ROWS] = -np.inf  # a chain has no more nodes than tokens
        return _BeamGrid(drafted, self._costs.beams_ms()[: self._widths, :, None] + ms, rows)

    def _branches(self, outlook: Outlook, grid: "_BeamGrid | None", rate: float) -> Iterator[_Option]:
        """Yield the best recurrent drafts with a branch from prompt lookup, which is no longer than the beams.

        A depth is reached by the branch or by the beams; how likely both fail there is reckoned as if they had nothing
        to do with each other, and what then comes is held against it.
        """
        if grid is None or not self._trees:
            return
        reached = _reached(grid.drafted)
        for branch in sorted({min(length, outlook.limit, len(outlook.lookup)) for length in _BRANCHES}):
            beside = np.tensordot(outlook.lookup[:branch], 1 - reached[:, :branch], axes=(0, 1))
            drafted = np.full_like(grid.drafted, -np.inf)
            drafted[:, :, 2 + branch :] = (grid.drafted + beside[:, None])[:, :, 2:-branch]
            drafted = np.minimum(drafted * self._branch_kept.value, DRAFTED[:, None])
            drafted[:, branch > DRAFTED] = -np.inf
            yield _BeamGrid(drafted, grid.ms, grid.rows).best(rate, branch)

    def _draft_model(self, outlook: Outlook) -> Iterator[_Option]:
        ms, rows = self._calls(Mode.SPECULATIVE, outlook.depth)
        for steps, accepted, nodes in outlook.draft_model:
            if steps <= outlook.limit and nodes <= MOST_ROWS:
                plan = Plan(Mode.SPECULATIVE, 1, steps + 1, nodes, int(rows[nodes]))
                late = min(outlook.late, 1)
                catching_up = self._costs.draft_model_ms(1, outlook.late) - self._costs.draft_model_ms(1, late)
                draft_ms = self._costs.draft_model_ms(steps, late) + catching_up / _SPREAD
                yield _Option(plan, accepted, draft_ms + float(ms[nodes]))


@dataclass(frozen=True, slots=True)
class _BeamGrid:
    """Recurrent drafts by width, length and nodes.

    Attributes:
        drafted: (widths, lengths, nodes) expected accepted length; minus infinity where there is no such draft.
        ms: Likewise, the time of the round.
        rows: (nodes,) rows to verify them with.
    """

    drafted: Floats
    ms: Floats
    rows: Rows

    def best(self, rate: float, branch: int = 0) -> _Option:
        """Return the best of them at an exchange rate of tokens per millisecond."""
        best = np.unravel_index(int(np.argmax(self.drafted - rate * self.ms)), self.ms.shape)
        width, length, nodes = WIDTHS[best[0]], LENGTHS[best[1]], int(best[2])
        plan = Plan(Mode.RECURRENT, width, length, nodes, int(self.rows[nodes]), branch)
        return _Option(plan, float(self.drafted[best]), float(self.ms[best]))


def _reached(drafted: Floats) -> Floats:
    """Return (widths, depths, nodes) how likely each depth is reached, by drafts' lengths and their accepted ones."""
    known = np.where(np.isfinite(drafted), drafted, 0.0)
    depths = np.diff(DRAFTED, prepend=0)
    by_length = np.diff(known, axis=1, prepend=0.0) / depths[:, None]
    return np.clip(np.repeat(by_length, depths, axis=1), 0.0, 1.0)


def in_words(choice: Choice | None, drafts: bool, measured: bool) -> str:
    """Say why a choice was taken, or why not.

    Args:
        choice: The best plan that drafts.
        drafts: Whether it was taken.
        measured: Whether it was measured what calls cost.
    """
    if not measured:
        return "What drafting costs on this machine is not measured yet."
    if choice is None:
        return "There is nothing to draft with here."
    figures = f"{choice.tokens:.1f} tokens per call, a call of {choice.plan.rows} costs {choice.cost:.1f}"
    if drafts:
        return f"Drafting is {choice.speedup:.2f}x here: {figures}."
    enough = ", too little to change yet" if choice.speedup > 1 else ""
    return f"Drafting would be {choice.speedup:.2f}x here{enough}: {figures}."
