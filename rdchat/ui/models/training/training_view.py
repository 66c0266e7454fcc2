"""The layout that the views of the training page share: a column that scrolls, above a bar of buttons."""

from collections.abc import Sequence

from PySide6.QtWidgets import QPushButton, QWidget

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
    """Lay out a view.

    Args:
        view: The view.
        theme: The appearance to follow.
        parts: Of the column.
        bar: Of the bar; the buttons in it are no default buttons of a dialog by themselves.
        spacing: Between the parts of the column.
        widest: The column's width, at most.
    """
    inner = QWidget()
    inner.setMaximumWidth(widest)
    column(*parts, None, within=inner, spacing=spacing, margins=(LARGE, MEDIUM, LARGE, LARGE))
    for part in bar:
        if isinstance(part, QPushButton):
            part.setAutoDefault(False)
    below = row(*bar, margins=(LARGE, SMALL, LARGE, MEDIUM))
    column((scrolled(inner), 1), Separator(theme), below, within=view, spacing=0)
