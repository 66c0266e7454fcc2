"""Picks the draft that brings the most tokens for its time.

What a reply takes is a sum of times over a sum of tokens, so drafts are compared by their expected tokens less what
their time would bring otherwise: `tokens - rate * ms`, where the rate is the best ratio of plain decoding and of any
drafter that can always draft. Maximising this maximises the ratio of the sums (Dinkelbach 1967). Prompt lookup drafts
only now and then, and is taken where it beats that.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rdchat.inference.api.requests import Mode
from rdchat.inference.auto.acceptance import AcceptanceEstimates
from rdchat.inference.auto.cost_model import CostModel
from rdchat.inference.auto.plan import MOST_ROWS, ROWS, WIDTHS, Choice, Floats, Plan
from rdchat.inference.auto.sources import Drafts, head_source

_USUAL_WIDTH = 4  # where nothing is known of a head

Rows = npt.NDArray[np.int_]


class Planner:
    """Chooses among drafts by what they cost and bring.

    Args:
        costs: Predicts times.
        padding: Whether rows without meaning may be added to a call.

    Attributes:
        costs: The same.
    """

    def __init__(self, costs: CostModel, padding: bool = True) -> None:
        self.costs = costs
        self._padding = padding

    def choose(self, depth: int, drafts: Sequence[Drafts]) -> Choice | None:
        """Return the best draft, whether or not it beats a plain step; None where there is none, or no cost is known.

        Args:
            depth: Tokens in the target's cache.
            drafts: What each drafter can draft.
        """
        plain_ms = self.costs.plain_ms(depth)
        if not plain_ms:
            return None
        calls = [self._calls(table.mode, depth) for table in drafts]
        times = [table.draft_ms[:, None] + ms for table, (ms, _) in zip(drafts, calls, strict=True)]
        steady = (n for n, table in enumerate(drafts) if table.mode is not Mode.LOOKUP)
        rate = max([1 / plain_ms, *(float(np.max((1 + drafts[n].accepted) / times[n])) for n in steady)])
        found = []
        for table, ms, (_, rows) in zip(drafts, times, calls, strict=True):
            draft, nodes = np.unravel_index(int(np.argmax(table.accepted - rate * ms)), ms.shape)
            plan = Plan(table.mode, table.width, table.lengths[int(draft)], int(nodes), int(rows[nodes]))
            tokens = 1 + float(table.accepted[draft, nodes])
            found.append(Choice(plan, tokens, float(ms[draft, nodes]), plain_ms, rate))
        return max((c for c in found if np.isfinite(c.tokens)), key=lambda choice: choice.gain, default=None)

    def beam_width(self, estimates: AcceptanceEstimates, depth: int, most_drafted: int = MOST_ROWS) -> int:
        """Return the width of a head's draft that pays best on this machine; see docs/adr/0008.

        Args:
            estimates: What is known of the head.
            depth: Tokens in the target's cache.
            most_drafted: The most tokens that the head drafts below a root.
        """
        if estimates.known is None:
            return _USUAL_WIDTH
        tables = [
            head_source(estimates.head(width), self.costs, width, most_drafted).drafts(MOST_ROWS) for width in WIDTHS
        ]
        choices = [choice for table in tables if (choice := self.choose(depth, [table]))]
        best = max(choices, key=lambda choice: choice.speedup, default=None)
        return best.plan.width if best else _USUAL_WIDTH

    def switch_tokens(self, depth: int) -> float:
        """Return what one change between rounds and plain steps costs, in tokens: a step with nothing queued before."""
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
            drafts: Of each its nodes, up to `MOST_ROWS`, and its expected accepted tokens.
            draft_ms: Time of drafting: the same for all, which differ by their runner-ups.
            depth: Tokens in the target's cache.
        """
        ms, _ = self._calls(Mode.SPECULATIVE, depth)
        return int(np.argmax([(1 + accepted) / (draft_ms + ms[nodes]) for nodes, accepted in drafts]))

    def _calls(self, mode: Mode, depth: int) -> tuple[Floats, Rows]:
        """Return by nodes, (`MOST_ROWS` + 1,), the cost of verifying them and the rows to do it with."""
        ms = self.costs.calls_ms(mode, depth)
        if not self._padding:
            return ms, ROWS
        cheapest = np.minimum.accumulate(ms[::-1])[::-1]
        return cheapest, np.array([nodes + int(np.argmin(ms[nodes:])) for nodes in ROWS])


def in_words(choice: Choice | None, drafts: bool, measured: bool) -> str:
    """Say why a choice was taken, or why not.

    Args:
        choice: The best plan that drafts.
        drafts: Whether it was taken.
        measured: Whether the costs of calls are measured.
    """
    if not measured:
        return "What drafting costs on this machine is not measured yet: that is done between replies, not on battery."
    if choice is None:
        return "There is nothing to draft with here."
    rows = f"verifying {choice.plan.rows} takes {choice.cost:.1f} times as long as one, drafting included"
    figures = f"{choice.tokens:.1f} tokens per call, {rows}"
    if drafts:
        return f"Drafting is {choice.speedup:.2f}x here: {figures}."
    enough = ", too little to change yet" if choice.speedup > 1 else ""
    return f"Drafting would be {choice.speedup:.2f}x here{enough}: {figures}."
