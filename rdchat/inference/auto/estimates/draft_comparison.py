"""Compares drafts with the text as it appears: those that were offered, and those that only serve to learn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rdchat.inference.auto.estimates.acceptance_estimates import DraftValues, NodeRates
from rdchat.inference.drafting.node_pool import HostPool, NodePool, children

_FIRST = 8  # drafts that were offered, by which drafts on the whole are judged
_VALUED = 3  # of so many later ones, one is


@dataclass(slots=True)
class _Waiting:
    """A draft and the text that follows, as far as they agree.

    Attributes:
        start: Index in the text of the token after the root.
        pool: Its nodes.
        offered: Whether it was offered to the target.
        valued: Whether drafts on the whole are judged by it.
        drawn: Its nodes on the host, once they are looked at.
        node: The last one that the text took.
        depth: Where that is.
    """

    start: int
    pool: NodePool[Any]
    offered: bool
    valued: bool
    drawn: HostPool | None = None
    node: int = 0
    depth: int = 0

    def told_by(self, text: Sequence[int], ended: bool) -> HostPool | None:
        """Return the nodes once the text has left the draft, or passed it, or ended in it; None before."""
        if len(text) <= self.start + (not self.offered and not ended):  # the device may still be working on it
            return None
        drawn = self.drawn = self.drawn or self.pool.fetch()
        while self.depth < drawn.levels and self.start + self.depth < len(text):
            below = children(drawn, self.node)
            right = below[drawn.tokens[below] == text[self.start + self.depth]]
            if not right.size:
                return drawn
            self.node, self.depth = int(right[0]), self.depth + 1
        return drawn if ended or self.depth == drawn.levels else None


class DraftComparison:
    """Holds heads' drafts back until the text has left them, or gone as far as they reach.

    Args:
        nodes: Learn from them.
        values: Likewise.
    """

    def __init__(self, nodes: NodeRates, values: DraftValues) -> None:
        self._nodes, self._values = nodes, values
        self._waiting: list[_Waiting] = []
        self._offered = 0
        self._dropped = 0

    def add(self, start: int, pool: NodePool[Any], offered: bool) -> None:
        """Take a draft, which the device may still be working on.

        Args:
            start: Number of tokens in the text, the draft's root included.
            pool: Its nodes.
            offered: Whether it was offered to the target.
        """
        self._offered += offered
        valued = not offered or self._offered <= _FIRST or self._offered % _VALUED == 0
        self._waiting.append(_Waiting(start, pool, offered, valued))

    @property
    def waiting(self) -> int:
        """Number of drafts of which the text does not tell yet."""
        return len(self._waiting)

    def take_dropped(self) -> int:
        """Return how many drafts that were not offered had scores that are not finite, since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def look(self, text: Sequence[int], ended: bool = False) -> None:
        """Learn from the drafts that the text has left or passed; nothing from those whose scores are not finite.

        Args:
            text: All tokens so far.
            ended: Whether there will be no more, so that drafts which it still follows tell what they told.
        """
        still = []
        for waiting in self._waiting:
            if (drawn := waiting.told_by(text, ended)) is None:
                still.append(waiting)
                continue
            if not drawn.finite:
                self._dropped += not waiting.offered
                continue
            self._nodes.learn(drawn, text[waiting.start : waiting.start + drawn.levels])
            if waiting.valued:
                self._values.learn(drawn, self._nodes.chances(drawn))
        self._waiting = still
