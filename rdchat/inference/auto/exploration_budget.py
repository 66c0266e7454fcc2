"""What one reply may lose on learning how drafts do in it."""

_GRANT = 0.2  # tokens that a reply begins with
_FIRST_GRANT = 1.0  # where little is known of drafts at all
_LITTLE = 24  # drafts
_SHARE = 0.005  # of its tokens, that it earns
_DEBT = 0.1  # tokens by which one trial may exceed what is left


class ExplorationBudget:
    """What one reply may spend on learning how drafts do in it, in tokens: what its time would bring otherwise.

    A round that looks a little worse than a plain step teaches most for its price, where drafts do about as well as
    pays; one that looks far worse is dearer than a draft that is only compared with the text.

    Args:
        drafts: How many heads' drafts what is known comes from; None without such a drafter, since a draft model
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
