"""The layout and the texts that the training page's views share."""

from collections.abc import Sequence

from PySide6.QtWidgets import QPushButton, QWidget

from rdchat.inference.api.training import TrainingOrder
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import Separator
from rdchat.ui.look.layouts import Part, column, row, scrolled
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, Theme

WIDEST = 620
"""Width of a column of text, in pixels."""


def lay_out(
    view: QWidget,
    theme: Theme,
    parts: Sequence[Part],
    bar: Sequence[Part],
    *,
    spacing: int = SMALL,
    widest: int = WIDEST,
) -> None:
    """Lay out a view: a column that scrolls, above a bar of buttons.

    Args:
        view: The view.
        theme: The appearance to follow.
        parts: The column's.
        bar: The bar's; its buttons are not default buttons by themselves.
        spacing: Between the parts of the column.
        widest: The most that the column is wide.
    """
    inner = QWidget()
    inner.setMaximumWidth(widest)
    column(*parts, None, within=inner, spacing=spacing, margins=(LARGE, MEDIUM, LARGE, LARGE))
    for part in bar:
        if isinstance(part, QPushButton):
            part.setAutoDefault(False)
    below = row(*bar, margins=(LARGE, SMALL, LARGE, MEDIUM))
    column((scrolled(inner), 1), Separator(theme), below, within=view, spacing=0)


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
