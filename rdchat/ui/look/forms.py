"""Rows of a form: a label, its field, and an explanation as the tooltip of both."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFormLayout, QLayout, QWidget

from rdchat.ui.look.plain_text import PlainLabel, set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL


def form(within: QWidget | None = None, *, spacing: int = SMALL, margins: int = 0) -> QFormLayout:
    """Return an empty form; it becomes the layout of `within`."""
    layout = QFormLayout(within)
    layout.setContentsMargins(margins, margins, margins, margins)
    layout.setHorizontalSpacing(MEDIUM)
    layout.setVerticalSpacing(spacing)
    layout.setLabelAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
    layout.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
    return layout


def add_row[F: QWidget](layout: QFormLayout, name: str, field: F, explanation: str, beside: QLayout | None = None) -> F:
    """Add a field with its label, and return it.

    Args:
        layout: The form.
        name: The label, and the field's name for screen readers.
        field: What the person edits.
        explanation: The tooltip, and the field's description for screen readers.
        beside: The row's layout, where it holds more than the field.
    """
    label = PlainLabel(name)
    label.setBuddy(field)
    field.setAccessibleName(name)
    field.setAccessibleDescription(explanation)
    for part in (label, field):
        set_tip(part, explanation)
    layout.addRow(label, beside or field)
    return field
