"""Picks what to do with the next target call: the draft that brings the most tokens for its time.

What a reply takes is a sum of times over a sum of tokens, so drafts are compared by their expected tokens less what
their time would bring otherwise: `tokens - rate * ms`, where the rate is the best ratio of any draft that is always to
be had, plain decoding among them. Maximising this maximises the ratio of the sums (Dinkelbach 1967), and a draft that
is to be had only now and then, a path from prompt lookup, is taken where it beats that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rdchat.inference.api.requests import Mode
from rdchat.inference.auto.costs.cost_curve import ROWS, Floats
from rdchat.inference.auto.costs.cost_model import CostModel
from rdchat.inference.auto.draft_table import DraftTable, HeadSource
from rdchat.inference.auto.estimates.acceptance_estimates import Acceptance, DraftValues
from rdchat.inference.auto.plan import MOST_ROWS, WIDTHS, Choice, Plan

_USUAL_WIDTH = 4  # where nothing is known

Rows = npt.NDArray[np.int_]


class Planner:
    """Chooses among drafts by what they cost and bring.

    Args:
        costs: Predicts times.
        padding: Whether rows without meaning may be added to a call.

    Attributes:
        costs: Those.
    """

    def __init__(self, costs: CostModel, padding: bool = True) -> None:
        self.costs = costs
        self._padding = padding

    def choose(self, depth: int, steady: Sequence[DraftTable], passing: Iterable[DraftTable] = ()) -> Choice | None:
        """Return the best draft; None where there is none, or where no cost is known.

        Whether it beats a plain step, its `gain` says.

        Args:
            depth: Tokens in the target's cache.
            steady: What can be drafted at any time.
            passing: What can be drafted now and then.
        """
        plain_ms = self.costs.plain_ms(depth)
        if not plain_ms:
            return None
        calls = {mode: self._calls(mode, depth) for mode in {table.mode for table in steady} | {Mode.LOOKUP}}
        with_ms = [(table, table.draft_ms[:, None] + calls[table.mode][0]) for table in (*steady, *passing)]
        ratios = (float(np.max((1 + table.accepted) / ms)) for table, ms in with_ms[: len(steady)])
        rate = max([1 / plain_ms, *ratios])
        found = (_best(table, ms, calls[table.mode][1], plain_ms, rate) for table, ms in with_ms)
        return max((choice for choice in found if np.isfinite(choice.tokens)), key=lambda c: c.gain, default=None)

    def beam_width(self, known: Acceptance | None, depth: int, most_drafted: int = MOST_ROWS) -> int:
        """Return the width of a head's draft that pays best on this machine, by what is known of the drafter.

        Of the replies in docs/adr/0008 none gained by other widths at other places.

        Args:
            known: That; None for nothing.
            depth: Tokens in the target's cache.
            most_drafted: The most tokens that the head drafts below a root.
        """
        if known is None:
            return _USUAL_WIDTH
        sources = [HeadSource(DraftValues(v), self.costs, w) for w, v in zip(WIDTHS, known.values, strict=True)]
        tables = [table for source in sources if (table := source.table(most_drafted, depth))]
        choices = [choice for table in tables if (choice := self.choose(depth, [table]))]
        best = max(choices, key=lambda choice: choice.speedup, default=None)
        return best.plan.width if best else _USUAL_WIDTH

    def goes_on(
        self, choice: Choice, depth: int, nodes: Sequence[int], accepted: Sequence[float], drafted: bool = False
    ) -> bool:
        """Tell whether a draft model should draft another token: whether some number of them is worth its time.

        Args:
            choice: What began the draft.
            depth: Tokens in the target's cache.
            nodes: Nodes of the draft as it is, and with one token more, two, and so on.
            accepted: Likewise, the expected accepted length.
            drafted: Whether they are drafted already, so that only their rows cost anything.
        """
        ms, _ = self._calls(Mode.SPECULATIVE, depth)
        step_ms = 0.0 if drafted else self.costs.draft_model_step_ms
        spent = np.arange(len(nodes)) * step_ms + ms[list(nodes)]
        worth = np.array(accepted) - choice.rate * spent
        return bool(np.any(worth[1:] > worth[0]))

    def made(self, choice: Choice, depth: int, table: DraftTable) -> Choice:
        """Return a choice as it turned out: by a table of the one draft that was made."""
        ms, rows = self._calls(table.mode, depth)
        return _best(table, table.draft_ms[:, None] + ms, rows, choice.plain_ms, choice.rate)

    def sized(self, choice: Choice, depth: int, accepted: Floats) -> Choice:
        """Return the choice of a head's draft with as many nodes as pay, now that it is made; perhaps the root alone.

        Args:
            choice: What was drafted.
            depth: Tokens in the target's cache.
            accepted: Expected accepted length of this draft's best nodes, by their number, the root counted.
        """
        ms, rows = self._calls(Mode.DRAFTER, depth)
        nodes = 1 + int(np.argmax(accepted[1:] - choice.rate * ms[1 : len(accepted)]))
        plan = replace(choice.plan, nodes=nodes, rows=int(rows[nodes]))
        took = choice.ms + float(ms[nodes] - ms[choice.plan.nodes])
        return replace(choice, plan=plan, tokens=1 + float(accepted[nodes]), ms=took)

    def cut_gain(self, choice: Choice, depth: int, accepted: Floats) -> float:
        """Return the tokens that `sized` gains over verifying a draft as it was planned."""
        planned = float(accepted[min(choice.plan.nodes, len(accepted) - 1)])
        return self.sized(choice, depth, accepted).gain - replace(choice, tokens=1 + planned).gain

    def switch_tokens(self, depth: int) -> float:
        """Return what one change between rounds and plain steps costs, in tokens: a step with nothing queued before.

        What is learnt of plain steps holds for both kinds of them alike.
        """
        plain_ms = self.costs.plain_ms(depth)
        alone = float(self.costs.calls_ms(Mode.OFF, depth)[1])
        return max(alone / plain_ms - 1, 0.0) if plain_ms else 0.0

    def rows_for(self, mode: Mode, nodes: int, depth: int) -> int:
        """Return the rows to verify so many nodes with: more of them where they were measured as cheaper.

        Args:
            mode: A drafting mode that was chosen by hand.
            nodes: Of its draft, the root included.
            depth: Tokens in the target's cache.
        """
        if not self.costs.measured or nodes > MOST_ROWS:
            return nodes
        return int(self._calls(mode, depth)[1][nodes])

    def best_size(self, drafts: Sequence[tuple[int, float]], draft_ms: float, depth: int) -> int:
        """Return which draft of a draft model brings the most tokens for its time, as one is made in any case.

        Args:
            drafts: Of each its nodes, up to `MOST_ROWS`, and its expected accepted length.
            draft_ms: What drafting takes: the same for all, which differ by their runner-ups.
            depth: Tokens in the target's cache.
        """
        ms, _ = self._calls(Mode.SPECULATIVE, depth)
        return int(np.argmax([(1 + accepted) / (draft_ms + ms[nodes]) for nodes, accepted in drafts]))

    def _calls(self, mode: Mode, depth: int) -> tuple[Floats, Rows]:
        """Return by nodes, (`MOST_ROWS` + 1,), the cost of verifying them and the rows to do it with."""
        ms = self.costs.calls_ms(mode, depth)
        if not self._padding:
            return ms, ROWS
        cheapest, rows = ms.tolist(), ROWS.tolist()
        for nodes in range(MOST_ROWS - 1, 0, -1):
            if cheapest[nodes + 1] < cheapest[nodes]:
                cheapest[nodes], rows[nodes] = cheapest[nodes + 1], rows[nodes + 1]
        return np.array(cheapest), np.array(rows)


def _best(table: DraftTable, ms: Floats, rows: Rows, plain_ms: float, rate: float) -> Choice:
    """Return the best draft of a table at an exchange rate of tokens per millisecond.

    Args:
        table: The drafts.
        ms: (shapes, `MOST_ROWS` + 1) what each costs with its call, by nodes.
        rows: (`MOST_ROWS` + 1,) the rows to verify so many nodes with.
        plain_ms: What a plain step costs.
        rate: See `Choice`.
    """
    draft, nodes = np.unravel_index(int(np.argmax(table.accepted - rate * ms)), ms.shape)
    width, length = table.shapes[int(draft)]
    plan = Plan(table.mode, width, length, int(nodes), int(rows[nodes]))
    return Choice(plan, 1 + float(table.accepted[draft, nodes]), float(ms[draft, nodes]), plain_ms, rate)


def in_words(choice: Choice | None, drafts: bool, measured: bool) -> str:
    """Say why a choice was taken, or why not.

    Args:
        choice: The best plan that drafts.
        drafts: Whether it was taken.
        measured: Whether it was measured what calls cost.
    """
    if not measured:
        return "What drafting costs on this machine is not measured yet: that is done between replies, not on battery."
    if choice is None:
        return "There is nothing to draft with here."
    figures = f"{choice.tokens:.1f} tokens per call, a call of {choice.plan.rows} costs {choice.cost:.1f}"
    if drafts:
        return f"Drafting is {choice.speedup:.2f}x here: {figures}."
    enough = ", too little to change yet" if choice.speedup > 1 else ""
    return f"Drafting would be {choice.speedup:.2f}x here{enough}: {figures}."
