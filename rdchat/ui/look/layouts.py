"""Rows and columns of widgets."""

from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLayout, QVBoxLayout, QWidget

from rdchat.ui.look.theme import SMALL

Part = QWidget | QLayout | int | None | tuple[QWidget | QLayout, int]
"""A part of a row or column: a widget or layout, perhaps with its stretch; a space in pixels; None for a stretch."""
_Margins = int | tuple[int, int, int, int]  # left, top, right, bottom


def row(*parts: Part, within: QWidget | None = None, spacing: int = SMALL, margins: _Margins = 0) -> QHBoxLayout:
    """Return a layout of parts side by side; it becomes the layout of `within`."""
    return _filled(QHBoxLayout(), parts, within, spacing, margins)


def column(*parts: Part, within: QWidget | None = None, spacing: int = SMALL, margins: _Margins = 0) -> QVBoxLayout:
    """Return a layout of parts one below the other; it becomes the layout of `within`."""
    return _filled(QVBoxLayout(), parts, within, spacing, margins)


def _filled[L: QBoxLayout](
    layout: L, parts: tuple[Part, ...], within: QWidget | None, spacing: int, margins: _Margins
) -> L:
    if within is not None:
        within.setLayout(layout)
    layout.setSpacing(spacing)
    layout.setContentsMargins(*(margins if isinstance(margins, tuple) else (margins,) * 4))
    for part in parts:
        content, stretch = part if isinstance(part, tuple) else (part, 0)
        if content is None:
            layout.addStretch(1)
        elif isinstance(content, int):
            layout.addSpacing(content)
        elif isinstance(content, QLayout):
            layout.addLayout(content, stretch)
        else:
            layout.addWidget(content, stretch)
    return layout
