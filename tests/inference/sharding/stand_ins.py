"""Groups of ranks that do not exist."""

from typing import NamedTuple


class StandIn(NamedTuple):
    """The first rank of so many."""

    ranks: int

    def size(self) -> int:
        return self.ranks

    def rank(self) -> int:
        return 0
