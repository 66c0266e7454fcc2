"""Times and amounts of a training, in words."""

from rdchat.inference.api.training import TrainingOrder
from rdchat.ui.look.formatting import counted


def about(seconds: float) -> str:
    """Return a time to wait for, no more exact than it is known: `40 s`, `12 min`, `2 h 10 min`, `1 day 4 h`."""
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 10 * 60:
        hours, minutes = divmod(round(minutes / 5) * 5, 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    hours = round(minutes / 60)
    days, rest = divmod(hours, 24)
    if not days:
        return f"{hours} h"
    return f"{counted(days, 'day')} {rest} h" if rest else counted(days, "day")


def amount(order: TrainingOrder) -> str:
    """Return how much is trained: `2 hours` or `1,000,000 tokens`."""
    if order.hours is not None:
        return f"{order.hours:g} {'hour' if order.hours == 1 else 'hours'}"
    return counted(order.tokens or 0, "token")
