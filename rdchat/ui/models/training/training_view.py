"""The layout of the training page's views: a column that scrolls, above a bar of buttons."""

from collections.abc import Sequence

from PySide6.QtWidgets import QPushButton, QWidget

from rdchat.ui.look.labels import Separator
from rdchat.ui.look.layouts import Part, column, row
from rdchat.ui.look.scrolling import scrolled
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
    """Lay out a view.

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
