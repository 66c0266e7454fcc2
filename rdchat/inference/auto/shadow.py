"""Compares drafts with the text as it appears: those that were offered, and those that only serve to learn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rdchat.inference.auto.acceptance import ScoredNodes
from rdchat.inference.auto.state import Followed
from rdchat.inference.recurrent_beam import NodePool

_FIRST = 8  # drafts that were offered, which are asked what other shapes would have brought
_VALUED = 3  # of so many later ones, one is


@dataclass(frozen=True, slots=True)
class _Waiting:
    start: int  # index in the text of the token after the root
    pool: NodePool
    width: int
    valued: bool


class DraftComparison:
    """Holds recurrent drafts back until the text has gone as far as they reach.

    Args:
        followed: Learns from them.
    """

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._waiting: list[_Waiting] = []
        self._offered = 0

    def add(self, start: int, pool: NodePool, width: int, offered: bool) -> None:
        """Take a draft, which the device may still be working on.

        Args:
            start: Number of tokens in the text, the draft's root included.
            pool: Its nodes.
            width: Its beams.
            offered: Whether it was offered to the target.
        """
        self._offered += offered
        valued = not offered or self._offered <= _FIRST or self._offered % _VALUED == 0
        self._waiting.append(_Waiting(start, pool, width, valued))

    @property
    def waiting(self) -> int:
        """Number of drafts that the text has not passed yet."""
        return len(self._waiting)

    def look(self, text: Sequence[int]) -> None:
        """Learn from the drafts that the text has passed."""
        while self._waiting and len(text) >= self._waiting[0].start + self._waiting[0].pool.levels:
            waiting = self._waiting.pop(0)
            drawn, followed = _on_host(waiting.pool, waiting.width), self._followed
            followed.nodes.learn(drawn, text[waiting.start : waiting.start + drawn.levels])
            if waiting.valued:
                followed.values.learn(drawn, followed.nodes.chances(drawn))


def _on_host(pool: NodePool, width: int) -> ScoredNodes:
    return ScoredNodes(
        np.array(pool.tokens, dtype=np.int64),
        np.array(pool.parents, dtype=np.int64),
        np.array(pool.scores, dtype=np.float64),
        pool.level_size,
        pool.levels,
        width,
    )
